// The form of an API key: its fields, and the document that they make.

import { h } from '../lib/dom.js';
import { field } from './dialog.js';

export const SCOPES = Object.freeze({
  ask: 'send questions',
  plan: 'see plans',
  workflow: 'run its own workflow',
  'runs:read': 'read its own runs',
  'runs:delete': 'delete its own runs',
  gateway: 'call a worker by name',
  metrics: 'read the metrics of the server',
  admin: 'everything, for the runs of every key',
});
export const SPECIAL = ['metrics', 'admin'];
export const PERIODS = /** @type {const} */ ([
  ['per_request', 'Per request', ''],
  ['per_day', 'Per day', 'day'],
  ['per_month', 'Per month', 'month'],
  ['in_total', 'In total', 'total'],
]);
export const RATES = /** @type {const} */ ([
  ['requests_per_minute', 'Requests per minute'],
  ['tokens_per_minute', 'Tokens per minute'],
]);

/** @param {any} key Null for a new one. */
export function fields(key) {
  const usual = Object.keys(SCOPES).filter((scope) => !SPECIAL.includes(scope));
  const given = key?.scopes ?? usual;
  const amount = (/** @type {string} */ id, /** @type {unknown} */ value, /** @type {object} */ more) =>
    h('input', { id, name: id, type: 'number', min: 0, step: 1, value: value ?? null, placeholder: 'no limit', ...more });
  return [
    field('Name', h('input', { id: 'key-name', name: 'name', required: true, maxlength: 100, value: key?.name, autocomplete: 'off' })),
    h(
      'fieldset',
      { class: 'scopes' },
      h('legend', {}, 'Scopes'),
      Object.entries(SCOPES).map(([scope, words]) =>
        h(
          'label',
          { class: 'check' },
          h('input', { type: 'checkbox', name: 'scope', value: scope, checked: given.includes(scope) }),
          h('span', {}, h('code', {}, scope), h('span', { class: 'small quiet-text' }, words)),
        ),
      ),
    ),
    h(
      'fieldset',
      { class: 'caps' },
      h('legend', {}, 'Caps'),
      PERIODS.map(([rule, words]) => [
        h('span', { class: 'small' }, words),
        amount(`${rule}.usd`, key?.[rule].usd, { step: 'any', placeholder: '$', 'aria-label': `${words}, dollars` }),
        amount(`${rule}.tokens`, key?.[rule].tokens, { placeholder: 'tokens', 'aria-label': `${words}, tokens` }),
      ]),
    ),
    h(
      'div',
      { class: 'field-row' },
      RATES.map(([name, words]) => field(words, amount(name, key?.[name], { min: 1 }))),
      field('Expires', h('input', { id: 'expires', name: 'expires', type: 'date', value: key?.expires_at?.slice(0, 10) })),
    ),
    field(
      'Never send to these workers or providers',
      h('input', { id: 'exclude', name: 'exclude', value: key?.exclude.join(', '), placeholder: 'openai, solver' }),
    ),
    h(
      'label',
      { class: 'check' },
      h('input', { type: 'checkbox', name: 'training', checked: key?.training ?? true }),
      h('span', {}, 'Runs of this key may become training data'),
    ),
  ];
}

/** @param {HTMLFormElement} form */
export function draft(form) {
  const data = new FormData(form);
  const text = (/** @type {string} */ name) => String(data.get(name) ?? '').trim();
  const number = (/** @type {string} */ name) => (text(name) ? Number(text(name)) : null);
  return {
    name: text('name'),
    scopes: data.getAll('scope'),
    exclude: text('exclude').split(',').map((each) => each.trim()).filter(Boolean),
    training: data.has('training'),
    ...(text('expires') ? { expires_at: `${text('expires')}T23:59:59Z` } : { expires_at: null }),
    ...Object.fromEntries(RATES.map(([name]) => [name, number(name)])),
    ...Object.fromEntries(
      PERIODS.map(([rule]) => [rule, { usd: number(`${rule}.usd`), tokens: number(`${rule}.tokens`) }]),
    ),
  };
}
