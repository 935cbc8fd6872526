// One endpoint of the API: how it is called, what it takes, what it answers.

import { h } from '../lib/dom.js';
import { inline } from '../lib/inline.js';
import { tryIt } from './try-it.js';

/**
 * @param {{method: string, path: string, operation: any}} what
 * @param {any} description The whole description, for what is referred to.
 * @returns {HTMLElement}
 */
export function endpoint({ method, path, operation }, description) {
  const body = operation.requestBody?.content?.['application/json']?.schema;
  const parameters = operation.parameters ?? [];
  const words = (operation.description ?? operation.summary ?? '').replace(/\s+/g, ' ');
  return h(
    'details',
    { class: 'api-endpoint', id: `${method}-${path.replaceAll(/[^a-z0-9]+/gi, '-')}` },
    h(
      'summary',
      {},
      h('span', { class: `api-method api-${method}` }, method.toUpperCase()),
      h('code', { class: 'api-path' }, path),
      h('span', { class: 'api-gist' }, inline(words.split(/(?<=\.)\s/)[0])),
    ),
    words ? h('p', { class: 'api-words' }, inline(words)) : null,
    parameters.length > 0 ? section('Parameters', parameters.map(parameter)) : null,
    body ? section('Body', fields(resolved(body, description), description, 0)) : null,
    section('Answers', Object.entries(operation.responses ?? {}).map(answer)),
    tryIt({ method, path }, body && resolved(body, description)),
  );
}

/**
 * @param {string} name
 * @param {Node[]} rows
 */
function section(name, rows) {
  return h('div', { class: 'api-part' }, h('h3', {}, name), h('dl', { class: 'api-fields' }, rows));
}

/** @param {any} given */
function parameter(given) {
  const note = given.in === 'path' ? 'in the address' : `in the ${given.in}`;
  const words = inline(given.description ?? note);
  return row(given.name, kindOf(given.schema), words, given.required);
}

/** @param {[string, any]} given */
function answer([status, { description }]) {
  return row(status, '', inline(description ?? ''), false);
}

const DEEPEST = 3;

/**
 * The fields of an object, and those of the objects in it.
 * @param {any} schema
 * @param {any} description
 * @param {number} depth
 * @returns {Node[]}
 */
function fields(schema, description, depth) {
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, given]) => {
    const field = resolved(given, description);
    const inner = depth < DEEPEST ? fields(field.items ?? field, description, depth + 1) : [];
    return row(
      name,
      kindOf(field),
      [inline(field.description ?? ''), inner.length > 0 ? h('dl', { class: 'api-fields' }, inner) : null],
      required.has(name),
    );
  });
}

/**
 * @param {string} name
 * @param {string} kind
 * @param {import('../lib/dom.js').Child} words
 * @param {boolean} required
 */
function row(name, kind, words, required) {
  return h(
    'div',
    { class: 'api-field' },
    h(
      'dt',
      {},
      h('code', {}, name),
      kind ? h('span', { class: 'api-kind' }, kind) : null,
      required ? h('span', { class: 'api-kind' }, 'required') : null,
    ),
    h('dd', {}, words),
  );
}

/** @param {unknown} value */
function written(value) {
  return JSON.stringify(value);
}

/**
 * @param {any} schema
 * @returns {string}
 */
function kindOf(schema) {
  if (!schema) return '';
  if (schema.enum) return schema.enum.map(written).join(' | ');
  if ('const' in schema) return JSON.stringify(schema.const);
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return [...new Set(either.map(kindOf))].join(' | ');
  if (schema.type === 'array') return `list of ${kindOf(schema.items) || 'anything'}`;
  return [schema.type ?? ''].flat().join(' | ');
}

/**
 * What a reference refers to; anything else as it is.
 * @param {any} schema
 * @param {any} description
 */
function resolved(schema, description) {
  const path = schema?.$ref?.replace(/^#\//, '').split('/');
  if (!path) return schema;
  return path.reduce((/** @type {any} */ at, /** @type {string} */ name) => at?.[name], description) ?? {};
}
