// How an endpoint is called by programs, with the address of this server, and its answer here.

import { get } from '../lib/api.js';
import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';

/**
 * @param {{method: string, path: string}} what
 * @param {any} schema Of the body, if it takes one.
 * @returns {HTMLElement}
 */
export function tryIt({ method, path }, schema) {
  const body = schema ? example(schema) : null;
  const result = h('pre', { tabindex: 0, role: 'status', hidden: true });
  const run = async () => {
    result.hidden = false;
    replace(result, 'Asking…');
    try {
      replace(result, JSON.stringify(await get(path), null, 2).slice(0, 20_000));
    } catch (error) {
      replace(result, error instanceof Error ? error.message : String(error));
    }
  };
  const isSimple = method === 'get' && !path.includes('{') && path.startsWith('/v1/');
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
    isSimple && h('button', { type: 'button', class: 'small', onclick: run }, 'Try it'),
    isSimple && result,
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
      `response = httpx.request("${method}", "${url}", headers=headers${json ? `, json=${python}` : ''})`,
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
