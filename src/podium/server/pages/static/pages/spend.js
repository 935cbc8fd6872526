// What was spent: by key, tier, worker or day, over a range of days that stands in the address.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { count, countText, percent, usd, usdText } from '../lib/format.js';
import { empty, failure, loading } from '../lib/states.js';
import { bars } from '../parts/chart.js';
import { daysBetween, presets, shortDay, today } from '../parts/days.js';

export const title = 'Spend';

const WAYS = { key: 'Key', tier: 'Tier', worker: 'Worker', day: 'Day' };
const TIERS = /** @type {Record<string, string>} */ ({
  mini: 'podium-mini',
  podium: 'podium',
  ultra: 'podium-ultra',
  gateway: 'workers by name',
});
const MOST_PARTS = 7;

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
export async function show(root, { query, signal, navigate }) {
  const by = query.get('by') ?? '';
  const wanted = {
    by: by in WAYS ? by : 'tier',
    from: query.get('from') ?? presets()[1].range.from,
    to: query.get('to') ?? today(),
  };
  const content = h('div', { class: 'spend' });
  const ways = h('nav', { class: 'ways', 'aria-label': 'Spend by' });
  const from = dayField('spend-from', wanted.from);
  const to = dayField('spend-to', wanted.to);

  async function load() {
    replace(ways, Object.entries(WAYS).map(([name, words]) => way(name, words, wanted)));
    replace(content, loading('Adding up…'));
    const asked = addressOf(wanted);
    try {
      const page = await get(`/v1${asked}`, { signal });
      if (asked === addressOf(wanted)) replace(content, ...shown(page));
    } catch (error) {
      if (signal.aborted || asked !== addressOf(wanted)) return;
      replace(content, failure(error, load));
    }
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
      h('button', { type: 'submit' }, 'Show'),
      h(
        'div',
        { class: 'buttons' },
        presets().map(({ words, range }) =>
          h('button', { type: 'button', class: 'quiet', onclick: () => choose(range) }, words),
        ),
      ),
    ),
    content,
  );
  await load();
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

/** @param {any} page */
function* shown(page) {
  const { total } = page;
  yield h(
    'dl',
    { class: 'facts' },
    fact('Spent', usd(total.cost_usd)),
    fact('Requests', count(total.requests)),
    fact('Tokens', count(total.tokens)),
    total.unknown_cost > 0 && fact('Requests of unknown cost', count(total.unknown_cost)),
  );
  if (total.unknown_cost > 0) yield unknownCost(total);
  if (page.groups.length === 0) {
    yield empty(
      'Nothing was spent on these days.',
      'Ask something, or choose other days. A worker that is asked by its own name without a key ' +
        'leaves no record.',
    );
    return;
  }
  yield chart(page);
  yield table(page);
  yield* notes(page);
}

/**
 * @param {string} name
 * @param {Node} value
 */
function fact(name, value) {
  return h('div', {}, h('dt', {}, name), h('dd', {}, value));
}

/** @param {any} total */
function unknownCost({ unknown_cost: unknown, assumed_usd: assumed }) {
  return h(
    'p',
    { class: 'notice' },
    `Of ${countText(unknown)} ${unknown === 1 ? 'request' : 'requests'} nobody knows the whole `,
    'cost: a price is missing, or a provider did not tell what it used. The sums are without them.',
    assumed > 0 && [' Budgets of keys were charged ', usd(assumed), ' for them, as estimated.'],
  );
}

/** @param {any} page */
function chart(page) {
  const days = daysBetween(page.from, page.to);
  const whole = { name: 'spent', days: page.groups.flatMap((each) => each.days) };
  const groups = page.by === 'day' ? [whole] : page.groups;
  const parts = groups
    .slice(0, MOST_PARTS)
    .map((group) => ({ label: nameOf(group, page.by), of: [group] }));
  const rest = groups.slice(MOST_PARTS);
  if (rest.length > 0) parts.push({ label: `${rest.length} others`, of: rest });
  const spent = parts.map(({ of }) => {
    const sums = new Map();
    for (const { day, cost_usd: cost } of of.flatMap((group) => group.days)) {
      sums.set(day, (sums.get(day) ?? 0) + cost);
    }
    return sums;
  });
  return bars(
    days.map((day) => ({
      label: shortDay(day),
      title: day,
      values: spent.map((sums) => sums.get(day) ?? 0),
    })),
    { title: 'Dollars by day (UTC)', across: 'day', format: usdText, height: 220, parts },
  ).element;
}

/**
 * @param {any} group
 * @param {string} by
 */
function nameOf(group, by) {
  if (by === 'key') return group.key_name ?? (group.name === '' ? 'without a key' : group.name);
  return by === 'tier' ? (TIERS[group.name] ?? group.name) : group.name;
}

/** @param {any} page */
function table(page) {
  const worker = page.by === 'worker';
  const asked = worker ? 'Calls' : 'Requests';
  const head = [WAYS[page.by], asked, 'Tokens', 'Of unknown cost', 'Spent', 'Share'];
  return h(
    'div',
    { class: 'table-box', tabindex: 0, role: 'region', 'aria-label': `Spend by ${page.by}` },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          head.map((name, place) => h('th', { scope: 'col', class: place > 0 && 'number' }, name)),
        ),
      ),
      h(
        'tbody',
        {},
        page.groups.map((group) => row(nameOf(group, page.by), group.total, page, group.name)),
        worker && elsewhere(page),
      ),
      h('tfoot', {}, row('Total', worker ? ofWorkers(page) : page.total, page)),
    ),
  );
}

/**
 * @param {string} name
 * @param {any} spent
 * @param {any} page
 * @param {string} [id]
 */
function row(name, spent, page, id) {
  return h(
    'tr',
    {},
    h('th', { scope: 'row', title: page.by === 'key' ? id : null }, name),
    h('td', { class: 'number' }, count(spent.calls + spent.requests)),
    h('td', { class: 'number' }, count(spent.tokens)),
    h('td', { class: 'number' }, count(spent.unknown_cost)),
    h('td', { class: 'number' }, usd(spent.cost_usd)),
    h('td', { class: 'number' }, percent(shareOf(spent.cost_usd, page))),
  );
}

/**
 * @param {number} cost
 * @param {any} page
 */
function shareOf(cost, { total }) {
  return total.cost_usd > 0 ? cost / total.cost_usd : null;
}

/**
 * All that workers did, and what all of it cost: a request takes several calls.
 * @param {any} page
 */
function ofWorkers({ groups, total }) {
  const sum = (/** @type {string} */ name) =>
    groups.reduce((whole, group) => whole + group.total[name], 0);
  return {
    calls: sum('calls'),
    requests: sum('requests'),
    tokens: sum('tokens'),
    unknown_cost: sum('unknown_cost'),
    cost_usd: total.cost_usd,
  };
}

/** @param {any} page */
function elsewhere(page) {
  if (Math.abs(page.elsewhere_usd) < 1e-9) return null;
  return h(
    'tr',
    { class: 'elsewhere' },
    h('th', { scope: 'row' }, 'not in runs on record'),
    [0, 1, 2].map(() => h('td', { class: 'number' }, count(null))),
    h('td', { class: 'number' }, usd(page.elsewhere_usd)),
    h('td', { class: 'number' }, percent(shareOf(page.elsewhere_usd, page))),
  );
}

/** @param {any} page */
function* notes(page) {
  const words = ['Days are those of UTC.'];
  words.push(
    page.of === 'every key'
      ? 'Requests with a key are counted as podium keys usage counts them; those without one are ' +
          'the runs on record.'
      : `This is what was spent with the key ${page.of}.`,
  );
  if (page.by === 'worker') {
    const { counted, is_whole: whole, left_out: broken } = page.runs;
    words.push(
      'Only runs tell who worked: what was spent in runs that were not kept, or are deleted, has ' +
        'a line of its own.',
    );
    if (!whole) words.push(`Only the newest ${countText(counted)} runs were looked through.`);
    if (broken) words.push(`${countText(broken)} runs could not be read.`);
  }
  yield h('p', { class: 'quiet-text' }, words.join(' '));
}
