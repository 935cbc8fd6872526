// An evaluation: its table with intervals, or how far it has come.

import { h } from '../lib/dom.js';
import { count, countText, duration, percent, percentText, usd, when } from '../lib/format.js';
import { empty } from '../lib/states.js';
import { intervalBar } from './interval.js';

const COLUMNS = [
  'Strategy',
  'Accuracy',
  '95 % interval',
  'Lead over best single',
  'USD a task',
  'Calls',
  'p50',
  'Errors',
];

/**
 * @param {any} page
 * @returns {(Node | null)[]}
 */
export function evaluation(page) {
  const found = page.rows.length ? table(page) : progress(page);
  return [facts(page), stopped(page), found, problems(page)];
}

/** @param {any} page */
function facts(page) {
  const shown = [
    ['Suite', page.suite ?? 'unknown'],
    typeof page.n === 'number' && ['Tasks', count(page.n)],
    page.repeats > 1 && ['Times each', count(page.repeats)],
    page.seed !== null && ['Seed', String(page.seed)],
    [
      'State',
      h(
        'span',
        { class: `badge ${page.is_finished ? 'good' : ''}` },
        page.is_finished ? 'finished' : 'not finished',
      ),
    ],
    ['Last written', when(page.updated_at)],
  ];
  const pairs = shown
    .filter((pair) => pair !== false)
    .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)));
  return h('dl', { class: 'facts' }, pairs);
}

/** @param {any} page */
function stopped({ stopped: why }) {
  if (!why) return null;
  return h(
    'p',
    { class: 'notice' },
    'It stopped at its cap of ',
    usd(why.cap_usd),
    ', of which ',
    usd(why.spent_usd),
    ' are spent; the same command with a higher cap goes on from there.',
  );
}

/** @param {any} page */
function table(page) {
  const rows = [...page.rows].sort((one, other) => (other.accuracy ?? -1) - (one.accuracy ?? -1));
  return h(
    'div',
    { class: 'table-box', tabindex: 0, role: 'region', 'aria-label': 'Strategies' },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          COLUMNS.map((name, place) => {
            return h('th', { scope: 'col', class: place > 0 && 'number' }, name);
          }),
        ),
      ),
      h('tbody', {}, rows.map(row)),
    ),
  );
}

/** @param {any} figures */
function row(figures) {
  const { accuracy, interval } = figures;
  return h(
    'tr',
    {},
    h(
      'th',
      { scope: 'row' },
      figures.strategy ?? 'unnamed',
      figures.note && h('p', { class: 'quiet-text small' }, figures.note),
    ),
    h('td', { class: 'number' }, percent(accuracy)),
    h('td', { class: 'number' }, isInterval(interval) ? within(accuracy, interval) : count(null)),
    h('td', { class: 'number' }, figures.strategy === 'best-single' ? 'reference' : lead(figures.against_best_single)),
    h('td', { class: 'number' }, usd(figures.cost_usd)),
    h('td', { class: 'number' }, number(figures.calls)),
    h('td', { class: 'number' }, duration(figures.seconds?.p50)),
    h('td', { class: 'number' }, count(figures.errors)),
  );
}

/**
 * @param {number} value
 * @param {[number, number]} ends
 */
function within(value, ends) {
  const words = `${percentText(ends[0])} to ${percentText(ends[1])}`;
  return [intervalBar(value, ends), h('span', { class: 'interval-words' }, words)];
}

/** @param {unknown} value */
function number(value) {
  return typeof value === 'number' ? h('span', { class: 'figure' }, value.toFixed(2)) : count(null);
}

/** @param {unknown} interval */
function isInterval(interval) {
  return (
    Array.isArray(interval) &&
    interval.length === 2 &&
    interval.every((end) => typeof end === 'number')
  );
}

/** @param {any} difference */
function lead(difference) {
  if (!difference || typeof difference.value !== 'number') return count(null);
  const sign = difference.value > 0 ? '+' : '';
  const looks = difference.p_value < 0.05 ? (difference.value > 0 ? 'good' : 'bad') : '';
  const points = (/** @type {number} */ value) => String(Number((100 * value).toFixed(1)));
  const range = `${points(difference.low)} to ${points(difference.high)} percentage points`;
  const title = `${range}, p = ${Number(difference.p_value).toPrecision(2)}`;
  return h('span', { class: `badge ${looks}`, title }, `${sign}${points(difference.value)} points`);
}

/** @param {any} page */
function progress({ samples, n, repeats, is_finished: isFinished }) {
  const entries = Object.entries(samples);
  const all = typeof n === 'number' ? n * (repeats ?? 1) : null;
  if (entries.length === 0) {
    return empty(
      'No sample is written down yet.',
      'The table appears when podium eval run is done.',
    );
  }
  return h(
    'div',
    {},
    !isFinished && h('p', {}, 'The table appears when podium eval run is done. Samples so far:'),
    h(
      'ul',
      { class: 'samples-so-far' },
      entries.map(([name, many]) =>
        h(
          'li',
          {},
          h('strong', {}, name),
          ' ',
          h('span', {}, `${countText(many)}${all ? ` of ${countText(all)}` : ''}`),
          all && h('progress', { max: all, value: many, 'aria-label': `${name}: ${many} of ${all}` }),
        ),
      ),
    ),
  );
}

/** @param {any} page */
function problems({ problems: found }) {
  if (found.length === 0) return null;
  return h(
    'section',
    {},
    h('h2', {}, 'What went wrong'),
    h(
      'ul',
      { class: 'progress' },
      found.map((/** @type {any} */ { strategy, count: many, at_fault: whose, first }) =>
        h('li', {}, `${strategy}: ${countText(many)} by ${whose}: `, h('code', {}, first)),
      ),
    ),
  );
}
