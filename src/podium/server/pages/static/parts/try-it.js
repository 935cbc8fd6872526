// How an endpoint is called by programs, with the address of this server, and its answer here.

import { get, post } from '../lib/api.js';
import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';

/** What may be tried: what answers with JSON at once, and deletes nothing. */
const TRIED = ['get', 'post'];
const LONGEST_RESULT = 20_000;

/**
 * @param {{method: string, path: string}} what
 * @param {any} schema Of the body, if it takes one.
 * @returns {HTMLElement}
 */
export function tryIt({ method, path }, schema) {
  const body = schema ? example(schema) : null;
  const mayBeTried = TRIED.includes(method) && path.startsWith('/v1/') && !path.endsWith('/events');
  return h(
    'div',
    { class: 'api-part' },
    h('h3', {}, 'Examples'),
    Object.entries(examples(method.toUpperCase(), location.origin + path, body)).map(([name, text]) =>
      h(
        'details',
        { class: 'api-example' },
        h('summary', {}, name),
        h('pre', { tabindex: 0, 'aria-label': `${name} example` }, text),
        copyButton('Copy', () => text),
      ),
    ),
    mayBeTried && form(method, path, body),
  );
}

/**
 * The parts of the address and the body to fill in, and what the server answers to them.
 * @param {string} method @param {string} path @param {any} body
 */
function form(method, path, body) {
  const inputs = [...path.matchAll(/\{(\w+)\}/g)].map(
    ([, name]) => /** @type {HTMLInputElement} */ (h('input', { name, required: true, spellcheck: 'false' })),
  );
  const text = /** @type {HTMLTextAreaElement} */ (h('textarea', { rows: 9, spellcheck: 'false' }));
  text.value = JSON.stringify(body, null, 2);
  const result = h('pre', { tabindex: 0, role: 'status', hidden: true });
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    result.hidden = false;
    replace(result, 'Asking…');
    const address = inputs.reduce(
      (done, { name, value }) => done.replace(`{${name}}`, encodeURIComponent(value)),
      path,
    );
    try {
      const answered = method === 'get' ? get(address) : post(address, body && JSON.parse(text.value));
      replace(result, JSON.stringify(await answered, null, 2).slice(0, LONGEST_RESULT));
    } catch (error) {
      replace(result, error instanceof Error ? error.message : String(error));
    }
  };
  return h(
    'form',
    { class: 'api-try', onsubmit: run },
    inputs.map((input) => h('label', {}, h('code', {}, input.name), input)),
    body && h('label', {}, 'Body', text),
    h('div', {}, h('button', { class: 'small' }, 'Try it')),
    result,
  );
}

/** @param {string} method @param {string} url @param {any} body */
function examples(method, url, body) {
  const json = body && JSON.stringify(body);
  const python = body && json.replaceAll(/\b(true|false|null)\b/g, (/** @type {string} */ word) =>
    word === 'null' ? 'None' : word[0].toUpperCase() + word.slice(1));
  return {
    curl: [
      `curl -X ${method} ${url}`,
      '-H "Authorization: Bearer $PODIUM_KEY"',
      ...(json ? ['-H "Content-Type: application/json"', `-d '${json}'`] : []),
    ].join(' \\\n  '),
    Python: [
      'import os, httpx',
      '',
      'headers = {"Authorization": f"Bearer {os.environ[\'PODIUM_KEY\']}"}',
      ...(json ? [`body = ${python}`] : []),
      `response = httpx.request("${method}", "${url}", headers=headers${json ? ', json=body' : ''})`,
      'print(response.json())',
    ].join('\n'),
    JavaScript: [
      `const response = await fetch('${url}', {`,
      `  method: '${method}',`,
      '  headers: { Authorization: \'Bearer \' + process.env.PODIUM_KEY, \'Content-Type\': \'application/json\' },',
      ...(json ? [`  body: JSON.stringify(${json}),`] : []),
      '});',
      'console.log(await response.json());',
    ].join('\n'),
  };
}

/** The required fields, with plausible values. @param {any} schema */
function example(schema) {
  const special = /** @type {Record<string, unknown>} */ ({
    model: 'podium',
    messages: [{ role: 'user', content: 'Why is the sky blue?' }],
    input: 'Why is the sky blue?',
    max_tokens: 500,
  });
  const plain = /** @type {Record<string, unknown>} */ ({ string: 'text', number: 1, integer: 1, boolean: true, array: [], object: {} });
  const names = /** @type {string[]} */ (schema.required ?? []);
  return Object.fromEntries(
    names.map((name) => [name, special[name] ?? plain[[schema.properties?.[name]?.type].flat()[0]] ?? 'text']),
  );
}
