// The API, described by the server itself: every endpoint with what it takes and what it answers.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { loading } from '../lib/states.js';
import { endpoint } from '../parts/endpoint.js';

export const title = 'API';

/** What most come for is shown first. */
const FIRST = ['chat', 'responses', 'messages', 'embeddings', 'completions', 'moderations', 'plan'];
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

/**
 * @param {HTMLElement} root
 * @param {{signal: AbortSignal}} context
 */
export async function show(root, { signal }) {
  replace(root, loading('Reading the description of the API…'));
  const description = await get('/openapi.json', { signal });
  const groups = grouped(description);
  replace(
    root,
    h(
      'header',
      { class: 'page-head' },
      h('h1', {}, 'API'),
      h('a', { class: 'button', href: '/openapi.json', download: 'podium-openapi.json' }, 'OpenAPI'),
      h(
        'p',
        { class: 'lead' },
        `What this server answers, version ${description.info.version}. Programs send a key as `,
        h('code', {}, 'Authorization: Bearer pk_…'),
        ' where one is asked for.',
      ),
    ),
    [...groups].filter(([, { length }]) => length).map(([name, operations]) =>
      h(
        'section',
        { class: 'api-group', 'aria-label': name },
        h('h2', {}, name[0].toUpperCase() + name.slice(1)),
        operations.map((operation) => endpoint(operation, description)),
      ),
    ),
  );
}

/**
 * The operations by what they are about: what most come for, and then as in the description.
 * @param {any} description
 * @returns {Map<string, {method: string, path: string, operation: any}[]>}
 */
function grouped(description) {
  /** @type {ReturnType<typeof grouped>} */
  const groups = new Map(FIRST.map((name) => [name, []]));
  for (const [path, operations] of Object.entries(description.paths)) {
    for (const method of METHODS) {
      const operation = operations[method];
      if (!operation) continue;
      const name = operation.tags?.[0] ?? 'other';
      const others = groups.get(name) ?? [];
      groups.set(name, [...others, { method, path, operation }]);
    }
  }
  return groups;
}
