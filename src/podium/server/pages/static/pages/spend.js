// What was spent: by key, tier, worker or day, over a range of days that stands in the address.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { download } from '../lib/download.js';
import { failure, loading } from '../lib/states.js';
import { presets, today } from '../parts/days.js';
import { poll, connection, refresh } from '../parts/polling.js';
import { csv, extras } from '../parts/spend-extras.js';
import { WAYS, spending } from '../parts/spending.js';

export const title = 'Spend';

const EVERY_SECONDS = 10;

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
export async function show(root, { query, signal, navigate }) {
  const by = query.get('by') ?? '';
  const wanted = {
    by: Object.hasOwn(WAYS, by) ? by : 'tier',
    from: query.get('from') ?? presets()[1].range.from,
    to: query.get('to') ?? today(),
  };
  const trouble = connection();
  const content = h('div', { class: 'spend' });
  /** @type {any} */
  let shown = null;
  const save = h(
    'button',
    {
      type: 'button',
      disabled: true,
      onclick: () => download(`spend-${wanted.from}-${wanted.to}-by-${wanted.by}.csv`, csv(shown), 'text/csv'),
    },
    'Download CSV',
  );
  let before = '';
  const ways = h('nav', { class: 'ways', 'aria-label': 'Spend by' });
  const from = dayField('spend-from', wanted.from);
  const to = dayField('spend-to', wanted.to);

  async function load() {
    replace(ways, Object.entries(WAYS).map(([name, words]) => way(name, words, wanted)));
    replace(content, loading('Adding up…'));
    before = '';
    const asked = addressOf(wanted);
    try {
      await look();
    } catch (error) {
      if (signal.aborted || asked !== addressOf(wanted)) return;
      replace(content, failure(error, load));
    }
  }

  async function look(inBackground = false) {
    const asked = addressOf(wanted);
    const page = await get(`/v1${asked}`, { signal, inBackground });
    const now = JSON.stringify(page);
    if (asked !== addressOf(wanted) || now === before) return; // other days were chosen meanwhile
    const cards = await extras({ from: wanted.from, to: wanted.to }, today(), signal);
    if (asked !== addressOf(wanted)) return;
    const isOpen = before !== '' && content.querySelector('details')?.open;
    before = now;
    shown = page;
    save.toggleAttribute('disabled', page.groups.length === 0);
    refresh(content, cards, ...spending(page));
    if (isOpen) content.querySelector('details')?.setAttribute('open', '');
  }

  /** What could not be shown is asked for again when the reader says so, and not before. */
  async function lookAgain() {
    if (before !== '') await look(true);
  }

  /** @param {{from: string, to: string}} range */
  function choose(range) {
    Object.assign(wanted, range);
    [from.value, to.value] = [wanted.from, wanted.to];
    navigate(addressOf(wanted), { quiet: true });
    load();
  }

  replace(
    root,
    h('div', { class: 'page-head' }, h('h1', {}, title), ways),
    h(
      'form',
      {
        class: 'field-row',
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          choose({ from: from.value || wanted.from, to: to.value || wanted.to });
        },
      },
      h('div', { class: 'field' }, h('label', { for: 'spend-from' }, 'From'), from),
      h('div', { class: 'field' }, h('label', { for: 'spend-to' }, 'To'), to),
      h(
        'div',
        { class: 'buttons' },
        h('button', { type: 'submit' }, 'Show'),
        presets().map(({ words, range }) =>
          h('button', { type: 'button', class: 'quiet', onclick: () => choose(range) }, words),
        ),
        save,
      ),
    ),
    trouble.element,
    content,
  );
  await load();
  poll(lookAgain, EVERY_SECONDS, signal, trouble.tell);
}

/** @param {{by: string, from: string, to: string}} wanted */
function addressOf(wanted) {
  return `/spend?${new URLSearchParams(wanted)}`;
}

/**
 * @param {string} id
 * @param {string} value
 */
function dayField(id, value) {
  const field = /** @type {HTMLInputElement} */ (h('input', { id, type: 'date', required: true }));
  field.value = value;
  return field;
}

/**
 * @param {string} name
 * @param {string} words
 * @param {{by: string, from: string, to: string}} wanted
 */
function way(name, words, wanted) {
  const href = addressOf({ ...wanted, by: name });
  return h('a', { href, 'aria-current': name === wanted.by ? 'true' : null }, words);
}
