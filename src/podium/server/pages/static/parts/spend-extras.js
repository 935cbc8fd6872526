// Beside what was spent: the month and its forecast, what the best worker alone would have cost,
// the caps of keys; and the table as CSV.

import { get } from '../lib/api.js';
import { h } from '../lib/dom.js';
import { countText, percentText, usd, usdText } from '../lib/format.js';
import { forecast, startOf } from './forecast.js';
import { facts, usedBar } from './table.js';

const PERIODS = /** @type {const} */ ([
  ['per_day', 'day', 'today'],
  ['per_month', 'month', 'this month'],
  ['in_total', 'total', 'in total'],
]);

/**
 * @param {{from: string, to: string}} range
 * @param {string} day
 * @param {AbortSignal} signal
 * @returns {Promise<HTMLElement>}
 */
export async function extras(range, day, signal) {
  const options = { signal, inBackground: true };
  const start = startOf(day) < `${day.slice(0, 7)}-01` ? startOf(day) : `${day.slice(0, 7)}-01`;
  const days = new URLSearchParams({ by: 'day', from: start, to: day });
  const dates = new URLSearchParams(range);
  const [month, saved, keys] = await Promise.all([
    get(`/v1/spend?${days}`, options).catch(() => null),
    get(`/v1/spend/single-worker?${dates}`, options).catch(() => null),
    get('/v1/keys', options).catch(() => ({ data: [] })),
  ]);
  return h(
    'div',
    { class: 'spend-extras' },
    month && monthCard(day, month),
    saved?.runs > 0 && savedCard(saved),
    capsCard(keys.data),
  );
}

/**
 * @param {string} day
 * @param {any} page
 */
function monthCard(day, page) {
  const spent = page.groups.map((/** @type {any} */ { name, total }) => ({ day: name, cost_usd: total.cost_usd }));
  const { sofar, total, daily, left, days } = forecast(day, spent);
  const basis = days > 1 ? `the average of the last ${days} days` : days ? 'what the day before cost' : 'what today cost';
  return card(
    'This month',
    facts(['So far', usd(sofar)], ['Forecast', usd(total)]),
    `So far, and ${usdText(daily)} (${basis}) for each of the ${left} days left.`,
  );
}

/** @param {any} saved */
function savedCard({ worker, runs, cost_usd: cost, single_worker_usd: alone, skipped_runs: missing, is_complete: whole }) {
  const difference = alone - cost;
  const share = alone > 0 ? ` (${percentText(Math.abs(difference) / alone)})` : '';
  const words =
    `Estimated for ${countText(runs)} runs: ${usdText(alone)} if ${worker} had read each question once and ` +
    `written as many tokens as the answer has, ${usdText(cost)} as they ran. ` +
    `Whether its answers would have been as good is not in it.` +
    (missing ? ` ${countText(missing)} left out: no answer, or a cost is not known.` : '') +
    (whole ? '' : ' Only the newest runs of these days were looked through.');
  const saved = difference >= 0;
  return card(
    `Against always ${worker}`,
    facts([saved ? 'Saved' : 'Spent more', h('span', { class: saved ? 'good-text' : 'warn-text' }, usd(Math.abs(difference)), share)]),
    words,
  );
}

/** @param {any[]} keys */
function capsCard(keys) {
  const bars = keys
    .filter(({ state }) => state === 'active')
    .flatMap((key) =>
      PERIODS.flatMap(([rule, period, words]) => {
        const cap = key[rule]?.usd ?? null;
        if (cap === null) return [];
        const used = key.usage[period].used.usd;
        const told = `${key.name}: ${usdText(used)} of ${usdText(cap)} ${words}`;
        return [usedBar(told, used, cap, told)];
      }),
    );
  const link = h('a', { href: '/keys' }, 'Keys');
  return card(
    'Caps',
    bars.length ? h('div', { class: 'caps-list' }, bars) : null,
    bars.length ? ['Changed under ', link, '.'] : ['No API key has a cap in dollars; set one under ', link, '.'],
  );
}

/**
 * @param {string} title
 * @param {import('../lib/dom.js').Child} content
 * @param {import('../lib/dom.js').Child} words
 */
function card(title, content, words) {
  return h('section', { class: 'card' }, h('h2', {}, title), content, h('p', { class: 'small quiet-text' }, words));
}

const COLUMNS = ['day', 'cost_usd', 'requests', 'calls', 'tokens', 'unknown_cost_count'];

/**
 * What was spent, a line for each group and day.
 * @param {any} page
 * @returns {string}
 */
export function csv(page) {
  const lines = page.groups.flatMap((/** @type {any} */ group) =>
    group.days.map((/** @type {any} */ day) => [group.key_name ?? group.name, ...COLUMNS.map((name) => day[name])]),
  );
  return [[page.by === 'day' ? 'group' : page.by, ...COLUMNS], ...lines]
    .map((line) => line.map(cell).join(','))
    .join('\r\n');
}

/** A text that a spreadsheet would take for a formula is marked as text. @param {unknown} value */
function cell(value) {
  if (typeof value === 'number') return String(value);
  const text = String(value ?? '').replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
