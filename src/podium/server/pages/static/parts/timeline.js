// What ran beside what: a row for each step and for each time the conductor planned, a bar for each
// call. What a step waited for is seen as well: for the steps that it reads, for its worker's turn,
// and after a call that failed. Arrow keys go from row to row, Enter selects a step.

import { h, replace } from '../lib/dom.js';
import { durationText, shorten } from '../lib/format.js';
import { MEANINGS, barsOf, beginningOf, callsIn, niceSize } from './bars.js';
import { lastKnown } from './trace.js';

const MOST_TICKS = { wide: 5, narrow: 3 };
const LONGEST_SPOKEN = 80;
/** From so many rows on, those out of sight are not laid out. */
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
  const list = rowsOf(rounds, onSelect);
  const label = { role: 'group', 'aria-label': 'Timeline' };
  const box = h('div', { class: 'timeline-box', tabindex: '0', ...label }, axis, list);
  const element = h('div', { class: 'timeline' }, legend(), box);
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
    const button = /** @type {HTMLElement | null} */ (
      list.querySelector(`[data-step="${round}.${index}"]`)
    );
    const step = rounds[round]?.steps[index];
    if (!button || !step) return;
    const hadFocus = document.activeElement === button;
    const fresh = stepRow(step, beginningOf(rounds, round), rounds.length > 1);
    const made = /** @type {HTMLElement} */ (fresh.firstElementChild);
    made.tabIndex = button.tabIndex;
    button.closest('li')?.replaceWith(fresh);
    if (hadFocus) made.focus();
    setNow(total);
  }

  setNow(now);
  return { element, setNow, update };
}

/**
 * @param {RoundTrace[]} rounds
 * @param {((round: number, index: number) => void) | undefined} onSelect
 */
function rowsOf(rounds, onSelect) {
  const withRound = rounds.length > 1;
  const rows = rounds.flatMap((round) => {
    const beginning = beginningOf(rounds, round.index);
    return [
      ...(round.planning_attempts.length ? [planningRow(round, withRound)] : []),
      ...round.steps.map((step) => stepRow(step, beginning, withRound)),
    ];
  });
  const list = h('ol', { class: rows.length > MANY ? 'timeline-rows many' : 'timeline-rows' });
  list.append(...rows);
  list.querySelector('button')?.setAttribute('tabindex', '0');
  list.addEventListener('keydown', moveByArrows);
  list.addEventListener('click', ({ target }) => {
    const row = target instanceof Element ? target.closest('li') : null;
    const place = row?.querySelector('button')?.dataset.step;
    if (!place) return;
    const [round, index] = place.split('.').map(Number);
    onSelect?.(round, index);
  });
  return list;
}

function legend() {
  return h(
    'ul',
    { class: 'timeline-legend' },
    Object.entries(MEANINGS).map(([kind, said]) =>
      h('li', {}, h('span', { class: `bar ${kind}`, 'aria-hidden': 'true' }), said),
    ),
  );
}

/** @param {KeyboardEvent} event */
function moveByArrows(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const list = /** @type {HTMLElement} */ (event.currentTarget);
  const buttons = [...list.querySelectorAll('button')];
  const at = buttons.findIndex((button) => button === document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (at < 0 || next === undefined) return;
  event.preventDefault();
  if (!buttons[next]) return;
  buttons[at].tabIndex = -1;
  buttons[next].tabIndex = 0;
  buttons[next].focus();
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
    track(callsIn(round.planning_attempts)),
  );
}

/**
 * @param {StepTrace} step
 * @param {number} beginning When its round began.
 * @param {boolean} withRound
 */
function stepRow(step, beginning, withRound) {
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
    track(barsOf(step, beginning)),
  );
}

/**
 * The bars of a row. What they show is said by the row's label.
 * @param {import('./bars.js').Bar[]} bars
 */
function track(bars) {
  const drawn = bars.map(({ kind, from, until, title }) => {
    const element = h('span', { class: `bar ${kind}`, title });
    element.style.setProperty('--from', String(from));
    if (until !== null) element.style.setProperty('--until', String(until));
    return element;
  });
  return h('span', { class: 'timeline-track', 'aria-hidden': 'true' }, drawn);
}

/**
 * @param {StepTrace} step
 * @param {boolean} withRound
 */
function spoken(step, withRound) {
  const { started_ms: started, finished_ms: finished, answered_by: other } = step;
  const failed = step.attempts.filter((call) => call.error !== null).length || step.retries.length;
  const isOver = started !== null && finished !== null;
  const words = [
    `Step ${step.index}${withRound ? ` of round ${step.round + 1}` : ''}`,
    step.worker,
    step.state,
    isOver ? `from ${durationText(started / 1000)} to ${durationText(finished / 1000)}` : '',
    failed ? `${failed} failed ${failed === 1 ? 'call' : 'calls'}` : '',
    other && other !== step.worker ? `answered by ${other}` : '',
    shorten(step.subtask, LONGEST_SPOKEN),
  ];
  return words.filter(Boolean).join(', ');
}

/** @param {number} total */
function ticks(total) {
  const isNarrow = matchMedia('(max-width: 40rem)').matches;
  const size = niceSize(total / (isNarrow ? MOST_TICKS.narrow : MOST_TICKS.wide));
  const marks = [];
  for (let at = 0; at <= total; at += size) {
    const isLate = at > 0.8 * total; // its words stand before it, or the edge would cut them off
    const mark = h('span', { class: `timeline-tick ${isLate ? 'late' : ''}` }, at === 0 ? '0' : durationText(at / 1000));
    mark.style.setProperty('--from', String(at));
    marks.push(mark);
  }
  return marks;
}
