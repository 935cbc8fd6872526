// One worker of the pool: who it is, how it is, and what conductors use it for.

import { h } from '../lib/dom.js';
import { count, countText, shorten, when } from '../lib/format.js';

/**
 * The id of the card of a worker, to lead there.
 * @param {any} worker
 * @returns {string}
 */
export function anchor(worker) {
  return `worker-${encodeURIComponent(worker.name)}`;
}

/**
 * How its latest call went.
 * @param {any} worker
 * @returns {HTMLElement}
 */
export function health({ health: { state, failures_in_a_row: row } }) {
  const known = /** @type {'working' | 'failing' | 'unknown'} */ (state);
  const looks = { working: 'good', failing: 'bad', unknown: '' }[known] ?? '';
  const failing = row > 1 ? `failing, ${countText(row)} in a row` : 'last call failed';
  const words = { working: 'working', failing, unknown: 'not called' }[known];
  return h('span', { class: `badge ${looks}` }, words ?? state);
}

/**
 * @param {any} worker As GET /v1/pool has it.
 * @returns {HTMLElement}
 */
export function workerCard(worker) {
  return h(
    'section',
    { class: 'card worker', id: anchor(worker), tabindex: -1, 'aria-label': worker.name },
    h(
      'div',
      { class: 'worker-head' },
      h('h2', {}, worker.name),
      health(worker),
      worker.is_planner &&
        h('span', { class: 'badge accent' }, worker.is_worker ? 'plans, too' : 'plans'),
      h(
        'span',
        { class: 'quiet-text' },
        [worker.provider, worker.model].filter(Boolean).join(' · '),
      ),
    ),
    worker.description && h('p', {}, worker.description),
    lately(worker),
    h(
      'dl',
      { class: 'facts' },
      facts(worker).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
    ),
    uses(worker.roles),
  );
}

/** @param {any} worker */
function lately({ health: state }) {
  if (state.state === 'unknown') return null;
  return h(
    'p',
    { class: 'quiet-text' },
    'Last success ',
    when(state.last_success),
    ', last failure ',
    state.last_failure ? when(state.last_failure) : 'none',
    state.last_error && h('span', {}, ': ', h('code', {}, shorten(state.last_error, 200))),
  );
}

/** @param {any} worker */
function facts(worker) {
  const { limits, direct } = worker;
  return [
    ['Context window', tokens(limits.context_window)],
    ['Longest reply', tokens(limits.max_output_tokens)],
    ['At once', limits.concurrency === null ? 'any number' : count(limits.concurrency)],
    ['Can', worker.capabilities.join(', ').replaceAll('_', ' ') || 'text'],
    worker.fallback && ['Falls back to', worker.fallback],
    worker.planning > 0 && ['Of its calls, planning', count(worker.planning)],
    direct?.requests > 0 && [
      h('span', { title: 'since the server started; that leaves no run' }, 'Asked by its name'),
      [count(direct.requests), direct.failed > 0 && `, ${countText(direct.failed)} failed`],
    ],
  ].filter(Boolean);
}

/** @param {number | null} number */
function tokens(number) {
  return number === null ? count(null) : [count(number), ' tokens'];
}

/** @param {any[]} roles */
function uses(roles) {
  if (roles.length === 0) {
    return h('p', { class: 'quiet-text' }, 'No step of these runs was given to it.');
  }
  const total = roles.reduce((sum, each) => sum + each.steps, 0);
  return h(
    'div',
    { class: 'uses' },
    h('h3', {}, 'Used to'),
    h(
      'ul',
      {},
      roles.map((each) =>
        h(
          'li',
          {},
          h(
            'p',
            {},
            h('strong', {}, each.role),
            ` ${countText(each.steps)} of ${countText(total)} steps`,
          ),
          h('ul', { class: 'examples' }, each.examples.map(exampleLink)),
        ),
      ),
    ),
  );
}

/** @param {any} example */
function exampleLink({ run_id: run, round, step, subtask }) {
  const href = `/runs/${encodeURIComponent(run)}?step=${round}.${step}`;
  return h('li', {}, h('a', { href, id: `${run}-${round}-${step}` }, shorten(subtask, 140)));
}
