// The pool at work: who is in it, how everyone is, and what conductors use each for. Figures are
// those of runs on record, within a window that the reader chooses.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { count, countText, duration, percent, percentText, usd } from '../lib/format.js';
import { loading } from '../lib/states.js';
import { smallness } from '../parts/embedded.js';
import { addWorker } from '../parts/worker-form.js';
import { connection, refresh, loadAndPoll } from '../parts/polling.js';
import { anchor, health, workerCard } from '../parts/worker.js';

export const title = 'Workers';

const EVERY_SECONDS = 5;
const WINDOWS = [1, 7, 30, 90];
const USUAL = 7;
const COLUMNS = [
  'Worker',
  'Health',
  'Share of calls',
  'Calls',
  'Errors',
  'p50',
  'p95',
  'Price in / out',
  'Spent',
];

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
export async function show(root, { query, signal, navigate }) {
  let days = WINDOWS.includes(Number(query.get('days'))) ? Number(query.get('days')) : USUAL;
  const lead = h('p', { class: 'lead' });
  const small = h('div');
  const trouble = connection();
  const content = h('div', { class: 'pool' });
  let before = '';

  async function load(inBackground = false) {
    const asked = days;
    const page = await get(`/v1/pool?days=${asked}`, { signal, inBackground });
    if (asked !== days) return; // another window was chosen meanwhile
    const now = JSON.stringify({ ...page, window: { ...page.window, to: '' } });
    if (now === before) return;
    before = now;
    replace(lead, ...leadWords(page));
    replace(small, smallness(page.workers));
    refresh(content, overview(page.workers), page.workers.map((/** @type {any} */ each) => workerCard(each, () => load())), removedWorkers(page.removed_workers));
  }

  const choice = /** @type {HTMLSelectElement} */ (
    h(
      'select',
      {
        id: 'pool-days',
        onchange: async () => {
          days = Number(choice.value);
          navigate(days === USUAL ? '/pool' : `/pool?days=${days}`, { quiet: true });
          try {
            await load();
            trouble.tell(null);
          } catch (error) {
            if (!signal.aborted) trouble.tell(error);
          }
        },
      },
      WINDOWS.map((each) => h('option', { value: each, selected: each === days }, windowWords(each))),
    )
  );
  replace(root, loading('Loading the runs…'));
  await loadAndPoll(load, EVERY_SECONDS, signal, trouble.tell);
  replace(
    root,
    h(
      'div',
      { class: 'page-head' },
      h('h1', {}, title),
      h('button', { type: 'button', class: 'primary', onclick: addWorker }, 'Add worker'),
      h('div', { class: 'field' }, h('label', { for: 'pool-days' }, 'Figures of'), choice),
    ),
    lead,
    small,
    trouble.element,
    content,
  );
  if (query.has('add')) addWorker();
}

/** @param {number} days */
function windowWords(days) {
  return days === 1 ? 'Today (UTC)' : `${days} days`;
}

/** @param {any} page */
function leadWords({ window, key, workers }) {
  const many = window.runs === 1 ? '1 run' : `${countText(window.runs)} runs`;
  const whose = key === null ? '' : ` asked with the key ${key}`;
  const cut = window.is_complete ? '' : ', the newest; there are more';
  const broken = window.unreadable_runs ? ` ${window.unreadable_runs} could not be read.` : '';
  return [
    `${workers.length === 1 ? 'One model' : `${workers.length} models`}. Figures are those of `,
    `${many} on record${whose} since `,
    h('time', { datetime: window.from }, window.from),
    `${cut}.${broken} A dash means unknown. The roles of a worker are inferred from its `,
    'subtasks and can be wrong.',
  ];
}

/** @param {any[]} workers */
function overview(workers) {
  return h(
    'div',
    {
      class: 'table-box',
      id: 'pool-table',
      tabindex: 0,
      role: 'region',
      'aria-label': 'Workers beside each other',
    },
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
            return h('th', { scope: 'col', class: place > 1 && 'number' }, name);
          }),
        ),
      ),
      h('tbody', {}, workers.map(row)),
    ),
  );
}

/** @param {any} worker */
function row(worker) {
  return h(
    'tr',
    {},
    h(
      'th',
      { scope: 'row' },
      h('a', { href: `#${anchor(worker)}`, id: `to-${anchor(worker)}` }, worker.name),
    ),
    h('td', {}, health(worker)),
    h('td', { class: 'number' }, meter(worker.share), percent(worker.share)),
    h('td', { class: 'number' }, count(worker.calls)),
    h('td', { class: 'number' }, percent(worker.error_rate)),
    h('td', { class: 'number' }, duration(worker.seconds.p50)),
    h('td', { class: 'number' }, duration(worker.seconds.p95)),
    h('td', { class: 'number' }, price(worker.price)),
    h('td', { class: 'number' }, spent(worker)),
  );
}

/** @param {number | null} value */
function meter(value) {
  if (value === null) return null;
  const words = `share of calls: ${percentText(value)}`;
  return h('meter', { class: 'share', min: 0, max: 1, value, 'aria-label': words });
}

/** @param {any} prices */
function price(prices) {
  if (prices === null) return h('span', { class: 'unknown', title: 'no price is known' }, 'unknown');
  if (prices.input === 0 && prices.output === 0) return 'free';
  const title = 'US dollars for a million tokens';
  return h('span', { title }, usd(prices.input), ' / ', usd(prices.output));
}

/** @param {any} worker */
function spent({ cost_usd: cost, unknown_cost_count: unknown }) {
  if (!unknown) return usd(cost);
  const verb = unknown === 1 ? 'comes' : 'come';
  const title = `${callsInWords(unknown)} of unknown cost ${verb} on top`;
  return h('span', { title }, cost === null ? usd(null) : [usd(cost), ' +']);
}

/** @param {number} calls */
function callsInWords(calls) {
  return calls === 1 ? '1 call' : `${countText(calls)} calls`;
}

/** @param {any[]} gone */
function removedWorkers(gone) {
  if (gone.length === 0) return null;
  return h(
    'section',
    { class: 'removed-workers' },
    h('h2', {}, 'No longer in the pool'),
    h(
      'ul',
      {},
      gone.map((each) =>
        h(
          'li',
          {},
          h('strong', {}, each.name),
          h(
            'span',
            { class: 'quiet-text' },
            ` ${callsInWords(each.calls)}, ${percentText(each.error_rate)} failed`,
          ),
        ),
      ),
    ),
  );
}
