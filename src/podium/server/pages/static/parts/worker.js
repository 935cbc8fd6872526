// One worker of the pool: who it is, how it is, and what conductors use it for.

import { patch, post } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { count, countText, durationText, shorten, usdText, when } from '../lib/format.js';
import { may } from '../lib/session.js';

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
export function health({ is_enabled: isEnabled, health: { state, failures_in_a_row: row } }) {
  if (!isEnabled) return h('span', { class: 'badge warn' }, 'disabled');
  const known = /** @type {'working' | 'failing' | 'unknown'} */ (state);
  const looks = { working: 'good', failing: 'bad', unknown: '' }[known] ?? '';
  const failing = row > 1 ? `failing, ${countText(row)} in a row` : 'last call failed';
  const words = { working: 'working', failing, unknown: 'not called' }[known];
  return h('span', { class: `badge ${looks}` }, words ?? state);
}

/**
 * @param {any} worker As GET /v1/pool has it.
 * @param {() => Promise<void>} reload
 * @returns {HTMLElement}
 */
export function workerCard(worker, reload) {
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
    errors(worker),
    worker.is_worker && may('admin') && actions(worker, reload),
    h(
      'details',
      { id: `more-${anchor(worker)}` },
      h('summary', {}, 'Limits and uses'),
      h(
        'dl',
        { class: 'facts' },
        facts(worker).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
      ),
      uses(worker.roles),
      h('p', {}, h('a', { href: `/runs?worker=${encodeURIComponent(worker.name)}` }, 'Runs that used it')),
    ),
  );
}

/** What failed, by kind and day. @param {any} worker */
function errors({ name, errors: kinds }) {
  const found = Object.entries(/** @type {Record<string, Record<string, number>>} */ (kinds));
  if (found.length === 0) return null;
  const days = [...new Set(found.flatMap(([, byDay]) => Object.keys(byDay)))].sort().slice(-14);
  return h(
    'div',
    { class: 'table-box', tabindex: 0, role: 'region', 'aria-label': `Errors of ${name}` },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h('tr', {}, ['Errors', ...days].map((each, at) => h('th', { scope: 'col', class: at > 0 && 'number' }, each))),
      ),
      h(
        'tbody',
        {},
        found.map(([kind, byDay]) =>
          h(
            'tr',
            {},
            h('th', { scope: 'row' }, kind),
            days.map((day) => h('td', { class: 'number' }, count(byDay[day] ?? 0))),
          ),
        ),
      ),
    ),
  );
}

/**
 * Test now, and disable or enable for new runs.
 * @param {any} worker
 * @param {() => Promise<void>} reload
 */
function actions({ name, is_enabled: isEnabled }, reload) {
  const path = `/v1/pool/${encodeURIComponent(name)}`;
  const result = h('p', { role: 'status', class: 'small' });
  /** @param {() => Promise<void>} task */
  const doing = async (task) => {
    try {
      await task();
    } catch (error) {
      replace(result, error instanceof Error ? error.message : String(error));
    }
  };
  const test = () =>
    doing(async () => {
      replace(result, 'Testing…');
      const { error, error_kind: kind, seconds, cost_usd: cost } = await post(`${path}/check`, {});
      const told = cost === null ? '' : `, ${usdText(cost)}`;
      replace(result, error ? `Failed (${kind}): ${error}` : `Answered in ${durationText(seconds)}${told}.`);
    });
  const change = () =>
    doing(async () => {
      await patch(path, { is_enabled: !isEnabled });
      await reload();
    });
  const verb = isEnabled ? 'Disable' : 'Enable';
  return h(
    'div',
    {},
    h(
      'div',
      { class: 'buttons' },
      h('button', { type: 'button', class: 'small', onclick: test, 'aria-label': `Test ${name} now` }, 'Test now'),
      h(
        'button',
        { type: 'button', class: 'small', id: `switch-${anchor({ name })}`, onclick: change, 'aria-label': `${verb} ${name}` },
        `${verb} for new runs`,
      ),
    ),
    result,
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
  const { limits, gateway_requests: gateway } = worker;
  return [
    ['Context window', tokens(limits.context_window)],
    ['Longest reply', tokens(limits.max_output_tokens)],
    ['At once', limits.concurrency === null ? 'any number' : count(limits.concurrency)],
    ['Can', worker.capabilities.join(', ').replaceAll('_', ' ') || 'text'],
    worker.fallback && ['Falls back to', worker.fallback],
    worker.planning > 0 && ['Of its calls, planning', count(worker.planning)],
    gateway?.requests > 0 && [
      h('span', { title: 'since the server started; that leaves no run' }, 'Asked by its name'),
      [count(gateway.requests), gateway.failed > 0 && `, ${countText(gateway.failed)} failed`],
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
