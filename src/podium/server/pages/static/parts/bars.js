// When a step worked and when it waited, as bars of a timeline. Times are milliseconds since the
// run began. Nothing here touches the document.

import { durationText, shorten } from '../lib/format.js';
import { reads } from './trace.js';

/** @typedef {import('./trace.js').RoundTrace} RoundTrace */
/** @typedef {import('./trace.js').StepTrace} StepTrace */

/**
 * @typedef {{kind: string, from: number, until: number | null, title: string}} Bar
 * `until` is null for what still goes on.
 */

/** What the kinds of bars mean. */
export const MEANINGS = Object.freeze({
  call: 'call',
  'call failed': 'failed call',
  queue: 'waits for its turn',
  blocked: 'waits for other steps',
});

/**
 * @param {StepTrace} step
 * @param {number} beginning When its round began.
 * @returns {Bar[]}
 */
export function barsOf(step, beginning) {
  const { started_ms: started, finished_ms: finished, state } = step;
  if (started === null) return [];
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
export function callsIn(attempts) {
  return attempts.flatMap((call, index) => {
    const before = attempts[index - 1];
    const made = bar(
      call.error === null ? 'call' : 'call failed',
      call.started_ms,
      call.finished_ms,
      call.error === null ? call.worker : `${call.worker} failed: ${shorten(call.error, 200)}`,
    );
    if (!before || call.started_ms <= before.finished_ms) return [made];
    return [bar('queue', before.finished_ms, call.started_ms, 'waited before the next call'), made];
  });
}

/**
 * When a round's steps could begin: when it was planned.
 * @param {RoundTrace[]} rounds
 * @param {number} index
 */
export function beginningOf(rounds, index) {
  const planned = rounds[index].planning_attempts.map((call) => call.finished_ms);
  const before = (rounds[index - 1]?.steps ?? []).map((step) => step.finished_ms ?? 0);
  const starts = rounds[index].steps.map((step) => step.started_ms ?? Infinity);
  return Math.min(Math.max(0, ...planned, ...before), ...starts);
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
