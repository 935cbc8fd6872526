// API keys: created, changed and revoked by administrators; any other key sees itself.

import { get, patch, post, remove } from '../lib/api.js';
import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';
import { count, countText, usdText, when } from '../lib/format.js';
import { may, session } from '../lib/session.js';
import { empty, loading } from '../lib/states.js';
import { field, formDialog } from '../parts/dialog.js';
import { draft, fields, PERIODS, RATES, SCOPES, SPECIAL } from '../parts/key-form.js';
import { table, usedBar } from '../parts/table.js';

export const title = 'Keys';

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
export async function show(root, { signal }) {
  const content = h('div', { class: 'keys' });
  const load = async () => {
    const [{ data }, { keys }] = await Promise.all([get('/v1/keys', { signal }), session()]);
    replace(content, !keys && notRequired(), listed(data, load));
  };
  replace(root, loading('Loading keys…'));
  await load();
  const add = h('button', { type: 'button', class: 'primary', onclick: () => create(load) }, 'Create key');
  replace(
    root,
    h(
      'div',
      { class: 'page-head' },
      h('h1', {}, title),
      may('admin') && add,
      h(
        'p',
        { class: 'lead' },
        'Programs and people sign in with an API key. Each has its scopes, rate limits and caps; days ',
        'and months are those of UTC.',
      ),
    ),
    content,
  );
}

function notRequired() {
  return h(
    'p',
    { class: 'notice' },
    'This server requires no API key: keys can be prepared here, and take effect with ',
    h('code', {}, 'podium serve --keys'),
    '.',
  );
}

/**
 * @param {any[]} keys
 * @param {() => Promise<void>} reload
 */
function listed(keys, reload) {
  const active = keys.filter((key) => key.state === 'active');
  const ended = keys.filter((key) => key.state !== 'active');
  return [
    active.length
      ? overview('API keys', active, reload)
      : empty('There are no keys yet.', 'The first should have the scope admin.'),
    ended.length > 0 &&
      h(
        'details',
        { class: 'ended' },
        h('summary', {}, `Revoked and expired keys (${ended.length})`),
        overview('Revoked and expired keys', ended, reload),
      ),
  ];
}

/**
 * @param {string} name
 * @param {any[]} keys
 * @param {() => Promise<void>} reload
 */
function overview(name, keys, reload) {
  return table(
    name,
    [['Name'], ['Scopes'], ['Rates'], ['Caps'], ['Last used'], ['', 'actions']],
    keys.map((key) => ({ cells: [named(key), scopes(key), rates(key), caps(key), used(key), actions(key, reload)] })),
  );
}

/** @param {any} key */
function named(key) {
  const looks = { active: '', revoked: 'bad', expired: 'warn' }[/** @type {'active'} */ (key.state)];
  return [
    h('span', {}, key.name),
    key.state !== 'active' && [' ', h('span', { class: `badge ${looks}` }, key.state)],
    h('code', { class: 'small quiet-text key-id' }, key.id),
    key.state === 'active' &&
      key.expires_at &&
      h('span', { class: 'small quiet-text' }, 'expires ', when(key.expires_at)),
  ];
}

/** @param {any} key */
function scopes({ scopes: given, tiers, workers, exclude, training }) {
  const usual = Object.keys(SCOPES).filter((scope) => !SPECIAL.includes(scope));
  const isUsual = usual.every((scope) => given.includes(scope));
  const words = given.includes('admin')
    ? ['admin']
    : [...(isUsual ? ['usual'] : given.filter((/** @type {string} */ each) => usual.includes(each))),
       ...given.filter((/** @type {string} */ each) => SPECIAL.includes(each))];
  const limits = [
    tiers && `tiers: ${tiers.join(', ')}`,
    workers && `workers: ${workers.join(', ') || 'none'}`,
    exclude.length > 0 && `without ${exclude.join(', ')}`,
    !training && 'not for training',
  ].filter(Boolean);
  return [
    h(
      'span',
      { class: 'badges', title: given.join(', ') },
      words.map((scope) => h('span', { class: `badge ${SPECIAL.includes(scope) ? 'accent' : ''}` }, scope)),
    ),
    limits.map((each) => h('p', { class: 'small quiet-text' }, each)),
  ];
}

/** @param {any} key */
function rates(key) {
  const set = RATES.filter(([name]) => key[name] !== null);
  if (!set.length) return h('span', { class: 'quiet-text' }, 'no limit');
  return set.map(([name, words]) =>
    h('p', { class: 'small' }, count(key[name]), ` ${words.toLowerCase().replace(' per minute', '/min')}`),
  );
}

/** @param {any} key */
function caps(key) {
  const bars = PERIODS.flatMap(([rule, words, period]) => {
    const { usd, tokens } = key[rule];
    if (period === '') {
      const most = [usd !== null && usdText(usd), tokens !== null && `${countText(tokens)} tokens`];
      const told = most.filter(Boolean).join(', ');
      return told ? [h('p', { class: 'small' }, `${told} per request`)] : [];
    }
    const { used: spent, left, resets_at: resets } = key.usage[period];
    const of = words.toLowerCase();
    const made = [
      usd !== null &&
        usedBar(`${usdText(spent.usd)} of ${usdText(usd)} used ${of}`, spent.usd, usd, [
          `${usdText(spent.usd)} of ${usdText(usd)} ${of}`,
          h('span', { class: 'quiet-text' }, `, ${usdText(left.usd)} left`),
        ]),
      tokens !== null &&
        usedBar(`${countText(spent.tokens)} of ${countText(tokens)} tokens used ${of}`, spent.tokens, tokens, [
          `${countText(spent.tokens)} of ${countText(tokens)} tokens ${of}`,
          h('span', { class: 'quiet-text' }, `, ${countText(left.tokens)} left`),
        ]),
    ].filter((bar) => bar instanceof HTMLElement);
    for (const bar of made) if (resets) bar.title = `resets ${new Date(resets).toLocaleString()}`;
    return made;
  });
  if (bars.length) return bars;
  return [
    h('span', { class: 'quiet-text' }, 'no cap'),
    key.usage.total.used.usd > 0 &&
      h('p', { class: 'small quiet-text' }, `${usdText(key.usage.total.used.usd)} used in total`),
  ];
}

/** @param {any} key */
function used(key) {
  return key.last_used_at ? when(key.last_used_at) : h('span', { class: 'quiet-text' }, 'never');
}

/**
 * @param {any} key
 * @param {() => Promise<void>} reload
 */
function actions(key, reload) {
  if (key.state !== 'active' || !may('admin')) return null;
  return h(
    'div',
    { class: 'buttons' },
    h('button', { type: 'button', class: 'small', onclick: () => change(key, reload), 'aria-label': `Edit ${key.name}` }, 'Edit'),
    h(
      'button',
      { type: 'button', class: 'small danger', onclick: () => revoke(key, reload), 'aria-label': `Revoke ${key.name}` },
      'Revoke',
    ),
  );
}

/** @param {() => Promise<void>} reload */
async function create(reload) {
  /** @type {any} */
  let made = null;
  const options = {
    submit: 'Create',
    wide: true,
    onSubmit: async (/** @type {HTMLFormElement} */ form) => {
      made = await post('/v1/keys', draft(form));
    },
  };
  if (!(await formDialog('Create an API key', options, fields(null)))) return;
  await reload();
  const secret = h('input', { id: 'secret', class: 'secret', readonly: true, value: made.token });
  await formDialog(
    `Key ${made.name} created`,
    { cancel: 'Done' },
    h('p', {}, 'Copy the secret now: it is shown this once, and cannot be shown again.'),
    field('API key', secret),
    h('div', {}, copyButton('Copy', () => made.token)),
  );
}

/**
 * @param {any} key
 * @param {() => Promise<void>} reload
 */
async function change(key, reload) {
  const options = {
    submit: 'Save',
    wide: true,
    onSubmit: async (/** @type {HTMLFormElement} */ form) => {
      await patch(`/v1/keys/${key.id}`, draft(form));
    },
  };
  if (await formDialog(`Edit ${key.name}`, options, fields(key))) await reload();
}

/**
 * @param {any} key
 * @param {() => Promise<void>} reload
 */
async function revoke(key, reload) {
  const options = {
    submit: 'Revoke',
    danger: true,
    onSubmit: async () => {
      await remove(`/v1/keys/${key.id}`);
    },
  };
  const words = 'Programs that use this key are refused within seconds. This cannot be undone.';
  if (await formDialog(`Revoke ${key.name}?`, options, h('p', {}, words))) await reload();
}
