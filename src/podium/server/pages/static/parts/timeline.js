// What ran beside what: a row for each step and for each time the conductor planned, a bar for each
// call. What a step waited for is seen as well: for the steps that it reads, for its worker's turn,
// and after a call that failed. Arrow keys go from row to row, Enter selects a step.

import { h, replace } from '../lib/dom.js';
import { durationText, shorten } from '../lib/format.js';
import { lastKnown, reads } from './trace.js';

const MOST_TICKS = 5;
const LONGEST_SPOKEN = 80;
const MANY = 40;

/** @typedef {import('./trace.js').RoundTrace} RoundTrace */
/** @typedef {import('./trace.js').StepTrace} StepTrace */

/**
 * @param {RoundTrace[]} rounds
 * @param {{now?: number, onSelect?: (round: number, index: number) => void}} [options]
 *   `now`: how far a run that goes on has got, in milliseconds.
 * @returns {{element: HTMLElement, setNow: (now: number) => void,
 *   update: (round: number, index: number) => void}}
 */
export function timeline(rounds, { now = 0, onSelect } = {}) {
  const axis = h('div', { class: 'timeline-axis', 'aria-hidden': 'true' });
  const length = rounds.reduce((sum, round) => sum + round.steps.length, 0);
  const rows = h('ol', { class: length > MANY ? 'timeline-rows many' : 'timeline-rows' });
  const element = h(
    'div',
    { class: 'timeline' },
    legend(),
    h(
      'div',
      { class: 'timeline-box', tabindex: '0', role: 'group', 'aria-label': 'Timeline' },
      axis,
      rows,
    ),
  );
  /** @type {Map<string, HTMLElement>} */
  const rowOf = new Map();
  let total = -1;

  /** @param {number} moment */
  function setNow(moment) {
    const end = Math.max(moment, lastKnown(rounds), 1);
    if (end === total) return;
    total = end;
    // Bars are placed in milliseconds: a longer run changes this one number, and none of them.
    element.style.setProperty('--total', String(total));
    element.style.setProperty('--now', String(Math.max(moment, 0)));
    replace(axis, ticks(total));
  }

  /**
   * @param {number} round
   * @param {number} index
   */
  function update(round, index) {
    const old = rowOf.get(`${round}.${index}`);
    const step = rounds[round]?.steps[index];
    if (!old || !step) return;
    const fresh = stepRow(step, beginningOf(rounds, round), rounds.length > 1);
    const button = /** @type {HTMLElement} */ (old.firstElementChild);
    const hadFocus = document.activeElement === button;
    const made = /** @type {HTMLElement} */ (fresh.firstElementChild);
    made.tabIndex = button.tabIndex;
    old.replaceWith(fresh);
    rowOf.set(`${round}.${index}`, fresh);
    if (hadFocus) made.focus();
    setNow(total);
  }

  for (const round of rounds) {
    if (round.planning.length) rows.append(planningRow(round, rounds.length > 1));
    for (const step of round.steps) {
      const row = stepRow(step, beginningOf(rounds, round.index), rounds.length > 1);
      rowOf.set(`${round.index}.${step.index}`, row);
      rows.append(row);
    }
  }
  const first = /** @type {HTMLElement | null} */ (rows.querySelector('button'));
  if (first) first.tabIndex = 0;
  rows.addEventListener('keydown', moveByArrows);
  rows.addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('li')?.querySelector('button') : null;
    if (!button) return;
    const [round, index] = (button.dataset.step ?? '').split('.').map(Number);
    onSelect?.(round, index);
  });
  setNow(now);
  return { element, setNow, update };
}

function legend() {
  const words = { call: 'call', 'call failed': 'failed call', queue: 'waits for its turn', blocked: 'waits for other steps' };
  return h(
    'ul',
    { class: 'timeline-legend' },
    Object.entries(words).map(([kind, said]) =>
      h('li', {}, h('span', { class: `bar ${kind}`, 'aria-hidden': 'true' }), said),
    ),
  );
}

/** @param {KeyboardEvent} event */
function moveByArrows(event) {
  const row = event.target instanceof Element ? event.target.closest('li') : null;
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const goTo = {
    ArrowDown: row.nextElementSibling,
    ArrowUp: row.previousElementSibling,
    Home: row.parentElement?.firstElementChild,
    End: row.parentElement?.lastElementChild,
  }[event.key];
  let target = goTo;
  while (target && !target.querySelector('button')) {
    target = event.key === 'ArrowUp' || event.key === 'End' ? target.previousElementSibling : target.nextElementSibling;
  }
  const button = target?.querySelector('button');
  if (goTo === undefined) return;
  event.preventDefault();
  if (!button) return;
  const old = row.querySelector('button');
  if (old) old.tabIndex = -1;
  button.tabIndex = 0;
  button.focus();
}

/**
 * @param {RoundTrace} round
 * @param {boolean} withRound
 */
function planningRow(round, withRound) {
  const which = withRound ? ` round ${round.index + 1}` : '';
  return h(
    'li',
    { class: 'timeline-row planning' },
    h('span', { class: 'timeline-label' }, h('em', {}, `Planning${which}`)),
    track(callsIn(round.planning), `The conductor planned${which}`),
  );
}

/**
 * @param {StepTrace} step
 * @param {number} beginning When its round began.
 * @param {boolean} withRound
 */
function stepRow(step, beginning, withRound) {
  const bars = barsOf(step, beginning);
  const number = withRound ? `${step.round + 1}·${step.index}` : String(step.index);
  const other = step.answered_by && step.answered_by !== step.worker ? step.answered_by : '';
  return h(
    'li',
    { class: 'timeline-row', 'data-state': step.state },
    h(
      'button',
      {
        type: 'button',
        class: 'timeline-label',
        tabindex: '-1',
        'data-step': `${step.round}.${step.index}`,
        'aria-label': spoken(step, withRound),
        title: shorten(step.subtask, 300),
      },
      h('span', { class: 'timeline-number' }, number),
      h('span', { class: 'timeline-worker' }, other ? `${step.worker} → ${other}` : step.worker),
    ),
    track(bars, null),
  );
}

/**
 * @typedef {{kind: string, from: number, until: number | null, title: string}} Bar
 * `until` is null for what still goes on.
 * @param {StepTrace} step
 * @param {number} beginning
 * @returns {Bar[]}
 */
export function barsOf(step, beginning) {
  const { started_ms: started, finished_ms: finished, state } = step;
  if (started === null || started === undefined) return [];
  /** @type {Bar[]} */
  const bars = [];
  if (reads(step).length && started > beginning) {
    bars.push(bar('blocked', beginning, started, 'waited for the steps that it reads'));
  }
  if (state === 'running') {
    const tries = step.retries.length ? ` after ${step.retries.length} failed` : '';
    return [...bars, bar('call running', started, null, `${step.worker} is at work${tries}`)];
  }
  if (!step.attempts.length) {
    if (finished === null || finished <= started) return bars;
    const kind = step.nested.length ? 'call nested' : state === 'failed' ? 'call failed' : 'call';
    const words = step.nested.length ? 'a run of its own' : `${step.worker}: ${state}`;
    return [...bars, bar(kind, started, finished, words)];
  }
  const first = step.attempts[0].started_ms;
  if (first > started) bars.push(bar('queue', started, first, 'waited for its turn'));
  return [...bars, ...callsIn(step.attempts)];
}

/**
 * A bar for each call, and one for each wait between two.
 * @param {import('./trace.js').Attempt[]} attempts
 * @returns {Bar[]}
 */
function callsIn(attempts) {
  return attempts.flatMap((call, index) => {
    const before = attempts[index - 1];
    const pause = before && call.started_ms > before.finished_ms;
    const made = bar(
      call.error === null ? 'call' : 'call failed',
      call.started_ms,
      call.finished_ms,
      call.error === null ? call.worker : `${call.worker} failed: ${shorten(call.error, 200)}`,
    );
    if (!pause) return [made];
    return [bar('queue', before.finished_ms, call.started_ms, 'waited before the next call'), made];
  });
}

/**
 * @param {string} kind
 * @param {number} from
 * @param {number | null} until
 * @param {string} title
 * @returns {Bar}
 */
function bar(kind, from, until, title) {
  const length = until === null ? '' : `, ${durationText((until - from) / 1000)}`;
  return { kind, from, until, title: title + length };
}

/**
 * @param {Bar[]} bars
 * @param {string | null} label
 */
function track(bars, label) {
  const drawn = bars.map(({ kind, from, until, title }) => {
    const element = h('span', { class: `bar ${kind}`, title });
    element.style.setProperty('--from', String(from));
    if (until !== null) element.style.setProperty('--until', String(until));
    return element;
  });
  const words = label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' };
  return h('span', { class: 'timeline-track', ...words }, drawn);
}

/**
 * @param {StepTrace} step
 * @param {boolean} withRound
 */
function spoken(step, withRound) {
  const failed = step.attempts.filter((call) => call.error !== null).length || step.retries.length;
  const words = [
    `Step ${step.index}${withRound ? ` of round ${step.round + 1}` : ''}`,
    step.worker,
    step.state,
    step.finished_ms !== null && step.started_ms !== null
      ? `from ${durationText(step.started_ms / 1000)} to ${durationText(step.finished_ms / 1000)}`
      : '',
    failed ? `${failed} failed calls` : '',
    step.answered_by && step.answered_by !== step.worker ? `answered by ${step.answered_by}` : '',
    shorten(step.subtask, LONGEST_SPOKEN),
  ];
  return words.filter(Boolean).join(', ');
}

/** @param {number} total */
function ticks(total) {
  const size = niceSize(total / MOST_TICKS);
  const marks = [];
  for (let at = 0; at <= total; at += size) {
    const mark = h('span', { class: 'timeline-tick' }, at === 0 ? '0' : durationText(at / 1000));
    mark.style.setProperty('--from', String(at));
    marks.push(mark);
  }
  return marks;
}

/**
 * The next larger one of 1, 2 and 5 times a power of ten.
 * @param {number} least
 */
export function niceSize(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least) ?? power;
}

/**
 * When a round's steps could begin: when it was planned.
 * @param {RoundTrace[]} rounds
 * @param {number} index
 */
function beginningOf(rounds, index) {
  const planned = rounds[index].planning.map((call) => call.finished_ms);
  const before = (rounds[index - 1]?.steps ?? []).map((step) => step.finished_ms ?? 0);
  const starts = rounds[index].steps.map((step) => step.started_ms ?? Infinity);
  const known = Math.max(0, ...planned, ...before);
  return Math.min(known, ...starts);
}
