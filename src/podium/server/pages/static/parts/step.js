// One step: who did it, and when it is opened exactly what the worker was sent, what it replied,
// and every call that was made for it. What it was sent is fetched only then; while the step goes
// on, only the process of the server that performs it can tell.

import { copyButton } from '../lib/copy.js';
import { h, nodes, replace } from '../lib/dom.js';
import { count, duration, shorten, snippet, usd } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { failure, loading } from '../lib/states.js';
import { readsInWords } from './matrix.js';
import { conversation, longText } from './messages.js';
import { fromRecord } from './trace.js';

const LONGEST_SUBTASK = 160;

/** @typedef {import('./trace.js').StepTrace} StepTrace */
/** @typedef {(round: number, index: number, nested?: string) => Promise<any>} Load */

const WORDS = Object.freeze({
  planned: ['planned', ''],
  waiting: ['waiting', ''],
  running: ['running', 'accent'],
  done: ['done', 'good'],
  failed: ['failed', 'bad'],
  skipped: ['skipped', 'warn'],
  cancelled: ['cut off', 'warn'],
  held: ['waits for tools', 'warn'],
});

/**
 * A step's state as a badge.
 * @param {import('./trace.js').State} state
 * @returns {HTMLElement}
 */
export function stateBadge(state) {
  const [words, kind] = WORDS[state] ?? [state, ''];
  return h('span', { class: `badge ${kind}` }, words);
}

/**
 * @param {StepTrace} step
 * @param {{load?: Load, nested?: string, retry?: () => HTMLElement | null}} [options] `load` fetches
 *   all of a step that has ended; `nested` is the id of the nested run that it belongs to; `retry`
 *   makes the button that runs the step again.
 * @returns {{element: HTMLDetailsElement, update: () => void, open: () => void}} `update` when the
 *   step has changed.
 */
export function stepPart(step, { load, nested, retry } = {}) {
  const id = nested ? null : `step-${step.round}-${step.index}`;
  const head = h('summary', { class: 'step-head' });
  const body = h('div', { class: 'step-body' });
  const element = /** @type {HTMLDetailsElement} */ (
    h('details', { class: 'step', id }, head, body)
  );
  let shownFor = '';

  function fill() {
    const now = `${step.state} ${step.retries.length}`;
    if (!element.open || shownFor === now) return;
    shownFor = now;
    const hasEnded = !['waiting', 'running'].includes(step.state);
    replace(body, hasEnded && load ? loading('Loading the prompt…') : unfinished(step));
    if (hasEnded && load) show(load);
    else if (step.state === 'running' && load) showSent(load, now);
  }

  /** @param {Load} fetching @param {string} since */
  async function showSent(fetching, since) {
    const details = await fetching(step.round, step.index, nested).catch(() => null);
    if (!details?.request || shownFor !== since) return; // it goes on elsewhere, or has gone on
    replace(body, task(step), retries(step), section('What the worker received', received(details)));
  }

  /** @param {Load} fetching */
  async function show(fetching) {
    const state = step.state;
    try {
      const details = await fetching(step.round, step.index, nested);
      if (state === step.state) replace(body, whole(step, details, fetching), retry?.());
    } catch (error) {
      if (/** @type {Error} */ (error).name === 'AbortError') return;
      replace(body, failure(error, () => show(fetching)));
    }
  }

  function update() {
    element.dataset.state = step.state;
    replace(head, ...headOf(step));
    fill();
  }

  element.addEventListener('toggle', fill);
  update();
  return {
    element,
    update,
    open() {
      element.open = true;
      fill();
    },
  };
}

/** @param {StepTrace} step */
function headOf(step) {
  const other = step.answered_by && step.answered_by !== step.worker ? step.answered_by : '';
  const took =
    step.finished_ms !== null && step.started_ms !== null
      ? (step.finished_ms - step.started_ms) / 1000
      : null;
  return [
    h('span', { class: 'step-number' }, String(step.index)),
    h(
      'span',
      { class: 'step-title' },
      h('strong', {}, step.worker),
      other ? h('span', { class: 'quiet-text' }, ` → ${other} took over`) : null,
      h('span', { class: 'step-subtask' }, shorten(step.subtask, LONGEST_SUBTASK)),
      step.reply && h('span', { class: 'step-said' }, snippet(step.reply)),
    ),
    h(
      'span',
      { class: 'step-figures' },
      step.finished_ms === null
        ? null
        : [count(step.tokens), ' tokens · ', usd(step.cost_usd), ' · ', duration(took)],
    ),
    stateBadge(step.state),
  ];
}

/** @param {StepTrace} step */
function unfinished(step) {
  const words = {
    waiting: 'It begins when the steps that it reads have ended.',
    running: 'Its worker has been asked.',
  }[/** @type {string} */ (step.state)];
  return [task(step), retries(step), h('p', { class: 'quiet-text' }, words ?? '')];
}

/** @param {StepTrace} step */
function retries(step) {
  return step.retries.map(({ worker, error }) =>
    h('p', { class: 'notice' }, `A call failed and is made again by ${worker}: ${error}`),
  );
}

/** @param {StepTrace} step */
function task(step) {
  return section(
    'Subtask',
    h('div', { class: 'prose' }, h('p', { class: 'plain' }, step.subtask)),
    h('p', { class: 'quiet-text' }, `It ${readsInWords(step)}.`),
  );
}

/**
 * @param {StepTrace} step
 * @param {any} details
 * @param {Load} load
 */
function whole(step, details, load) {
  const kind = step.state === 'failed' ? 'notice bad' : 'notice';
  /** @type {string[]} */
  const thoughts = details.thinking;
  /** @type {any[]} */
  const runs = details.nested;
  return nodes([
    step.error ? h('p', { class: kind }, step.error) : null,
    task(step),
    section('What the worker received', received(details)),
    thoughts.length ? section('Thinking', thoughts.map(longText)) : null,
    details.reply
      ? section(
          details.status === 'done' ? 'Its reply' : 'Its reply, incomplete',
          h('div', { class: 'prose' }, markdown(details.reply)),
          copyButton('Copy the reply', () => details.reply),
        )
      : null,
    details.attempts.length ? section('Calls', calls(details.attempts)) : null,
    runs.length ? section('Nested run', runs.map((run) => nestedRun(run, load))) : null,
  ]);
}

/** @param {any} details */
function received(details) {
  if (details.request !== null) return conversation(details.request);
  const words = details.nested.length
    ? 'A conductor took this step: the subtask was the question of a run of its own.'
    : 'Nothing on record: no worker was asked.';
  return h('p', { class: 'quiet-text' }, words);
}

/** @param {import('./trace.js').Attempt[]} attempts */
function calls(attempts) {
  const figures = ['Began', 'Took', 'Read', 'Wrote', 'Cost'];
  return h(
    'div',
    { class: 'table-box', tabindex: '0', role: 'group', 'aria-label': 'Calls of this step' },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', { scope: 'col' }, 'Worker'),
          figures.map((name) => h('th', { scope: 'col', class: 'number' }, name)),
          h('th', { scope: 'col' }, 'Outcome'),
        ),
      ),
      h(
        'tbody',
        {},
        attempts.map((call) =>
          h(
            'tr',
            {},
            h('td', {}, call.worker),
            h('td', { class: 'number' }, duration(call.started_ms / 1000)),
            h('td', { class: 'number' }, duration((call.finished_ms - call.started_ms) / 1000)),
            h('td', { class: 'number' }, count(call.input_tokens)),
            h('td', { class: 'number' }, count(call.output_tokens)),
            h('td', { class: 'number' }, usd(call.cost_usd)),
            h('td', { class: call.error ? 'call-error' : '' }, call.error ?? 'answered'),
          ),
        ),
      ),
    ),
  );
}

/**
 * @param {any} run
 * @param {Load} load
 */
function nestedRun(run, load) {
  const trace = fromRecord(run);
  return h(
    'div',
    { class: 'nested-run' },
    h('p', { class: 'quiet-text' }, `${run.run_id}, ${run.status}, planned by ${run.conductor}`),
    run.error ? h('p', { class: 'notice' }, run.error) : null,
    trace.rounds.map((round) =>
      round.steps.map((step) => stepPart(step, { load, nested: run.run_id }).element),
    ),
  );
}

/**
 * @param {string} title
 * @param {...import('../lib/dom.js').Child} children
 */
function section(title, ...children) {
  return h('section', { class: 'step-section' }, h('h3', {}, title), children);
}
