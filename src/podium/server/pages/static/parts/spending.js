// What was spent, as GET /v1/spend tells it: totals, bars by day, and a table that adds up.

import { h } from '../lib/dom.js';
import { count, countText, percent, usd, usdText } from '../lib/format.js';
import { empty } from '../lib/states.js';
import { bars } from './chart.js';
import { daysBetween, shortDay } from './days.js';

/** The ways to look at it, and what they are called. */
export const WAYS = { key: 'Key', tier: 'Tier', worker: 'Worker', day: 'Day' };

const TIERS = /** @type {Record<string, string>} */ ({
  mini: 'podium-mini',
  podium: 'podium',
  ultra: 'podium-ultra',
  gateway: 'workers by name',
});
const MOST_PARTS = 7;

/**
 * @param {any} page
 * @returns {Generator<HTMLElement>}
 */
export function* spending(page) {
  const { total } = page;
  yield h(
    'dl',
    { class: 'facts' },
    fact('Spent', usd(total.cost_usd)),
    fact('Requests', count(total.requests)),
    fact('Tokens', count(total.tokens)),
    total.unknown_cost_count > 0 && fact('Requests of unknown cost', count(total.unknown_cost_count)),
  );
  if (total.unknown_cost_count > 0) yield unknownCost(total);
  if (page.groups.length === 0) {
    yield empty(
      'Nothing was spent on these days.',
      'Ask something, or choose other days. A worker that is asked by its own name without a key ' +
        'leaves no record.',
    );
    return;
  }
  yield total.cost_usd > 0 ? chart(page) : free(total);
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
function unknownCost({ unknown_cost_count: unknown, assumed_usd: assumed }) {
  return h(
    'p',
    { class: 'notice' },
    `The cost of ${countText(unknown)} ${unknown === 1 ? 'request' : 'requests'} is not fully known: `,
    'a price is missing, or a provider did not report usage. The sums leave it out.',
    assumed > 0 && [' Budgets of keys were charged ', usd(assumed), ' for them, as estimated.'],
  );
}

/** @param {any} total */
function free({ unknown_cost_count: unknown }) {
  const words = unknown > 0 ? 'Nothing is known to have been spent.' : 'Nothing was spent: all was free.';
  return h('p', { class: 'quiet-text' }, words);
}

/** @typedef {{name: string, days: {day: string, cost_usd: number}[], [more: string]: any}} Group */

/** @param {any} page */
function chart(page) {
  const days = daysBetween(page.from, page.to);
  const all = page.groups.flatMap((/** @type {Group} */ each) => each.days);
  const whole = { name: 'spent', days: all };
  /** @type {Group[]} */
  const groups = page.by === 'day' ? [whole] : page.groups;
  const parts = groups
    .slice(0, MOST_PARTS)
    .map((group) => ({ label: nameOf(group, page.by), of: [group] }));
  const rest = groups.slice(MOST_PARTS);
  if (rest.length > 0) parts.push({ label: `${rest.length} others`, of: rest });
  const spent = parts.map(({ of }) => {
    /** @type {Map<string, number>} */
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
  const head = [WAYS[/** @type {keyof typeof WAYS} */ (page.by)], 'Spent', 'Share', asked, 'Tokens', 'Of unknown cost'];
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
        page.groups.map((/** @type {Group} */ group) => row(nameOf(group, page.by), group.total, page, group.name)),
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
    h('td', { class: 'number' }, usd(spent.cost_usd)),
    h('td', { class: 'number' }, percent(shareOf(spent.cost_usd, page))),
    h('td', { class: 'number' }, count(spent.calls + spent.requests)),
    h('td', { class: 'number' }, count(spent.tokens)),
    h('td', { class: 'number' }, count(spent.unknown_cost_count)),
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
    groups.reduce((/** @type {number} */ whole, /** @type {Group} */ group) => {
      return whole + group.total[name];
    }, 0);
  return {
    calls: sum('calls'),
    requests: sum('requests'),
    tokens: sum('tokens'),
    unknown_cost_count: sum('unknown_cost_count'),
    cost_usd: total.cost_usd,
  };
}

/** @param {any} page */
function elsewhere(page) {
  if (Math.abs(page.unattributed_usd) < 1e-9) return null;
  return h(
    'tr',
    { class: 'elsewhere' },
    h('th', { scope: 'row' }, 'not in runs on record'),
    h('td', { class: 'number' }, usd(page.unattributed_usd)),
    h('td', { class: 'number' }, percent(shareOf(page.unattributed_usd, page))),
    [0, 1, 2].map(() => h('td', { class: 'number' }, count(null))),
  );
}

/** @param {any} page */
function* notes(page) {
  const words = ['Days are those of UTC.'];
  words.push(
    page.key === null
      ? 'Requests with a key are counted as podium keys usage counts them; those without one are ' +
          'the runs on record.'
      : `This is what was spent with the key ${page.key}.`,
  );
  if (page.by === 'worker') {
    const { counted, is_complete: whole, unreadable_runs: broken } = page.runs;
    words.push(
      'Only runs name their workers: spending of runs that were not stored, or were deleted, has ' +
        'its own line.',
    );
    if (!whole) words.push(`Only the newest ${countText(counted)} runs were looked through.`);
    if (broken) words.push(`${countText(broken)} runs could not be read.`);
  }
  yield h('p', { class: 'quiet-text' }, words.join(' '));
}
