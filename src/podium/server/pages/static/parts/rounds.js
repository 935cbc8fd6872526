// The rounds of a run side by side: what each planned, what came of it, and what the conductor
// wrote.

import { h } from '../lib/dom.js';
import { shorten, usd } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { longText } from './messages.js';
import { stateBadge } from './step.js';

const MOST_STEPS = 12;
const LONGEST_SUBTASK = 90;

/** @typedef {import('./trace.js').Trace} Trace */
/** @typedef {import('./trace.js').RoundTrace} RoundTrace */

/**
 * @param {Trace} trace
 * @returns {HTMLElement}
 */
export function rounds(trace) {
  return h(
    'div',
    { class: 'rounds', tabindex: '0', role: 'group', 'aria-label': 'Rounds, side by side' },
    trace.rounds.map((round) => column(round, trace.document.rounds[round.index])),
  );
}

/**
 * @param {RoundTrace} round
 * @param {any} onRecord
 */
function column(round, onRecord) {
  return h(
    'article',
    { class: 'round card' },
    h('h3', {}, `Round ${round.index + 1}`),
    h('p', { class: 'quiet-text' }, kindOf(round)),
    round.steps.length
      ? h(
          'ol',
          { class: 'round-steps' },
          round.steps.slice(0, MOST_STEPS).map((step) =>
            h(
              'li',
              {},
              h(
                'span',
                {},
                h('strong', {}, step.worker),
                ` ${shorten(step.subtask, LONGEST_SUBTASK)}`,
              ),
              stateBadge(step.state),
            ),
          ),
          round.steps.length > MOST_STEPS
            ? h('li', { class: 'quiet-text' }, `and ${round.steps.length - MOST_STEPS} more`)
            : null,
        )
      : null,
    outcome(round),
    planning(round, onRecord),
  );
}

/** @param {RoundTrace} round */
function kindOf(round) {
  if (round.accepts_answer) return 'The conductor accepted the answer of the previous round.';
  if (round.role) return `A turn as ${round.role}.`;
  const steps = `${round.steps.length} ${round.steps.length === 1 ? 'step' : 'steps'}`;
  return round.shape ? `${steps}, ${round.shape}` : steps;
}

/** @param {RoundTrace} round */
function outcome(round) {
  const last = round.steps.at(-1);
  if (!last?.reply) return null;
  return h(
    'section',
    {},
    h('h4', {}, 'Result'),
    h('div', { class: 'prose round-reply', tabindex: '0' }, markdown(last.reply)),
  );
}

/**
 * What the conductor wrote, and what planning took.
 * @param {RoundTrace} round
 * @param {any} onRecord
 * @returns {HTMLElement | null}
 */
export function planning(round, onRecord) {
  const { plan_text: text, warnings, routing } = round;
  const calls = round.planning_attempts.length;
  const cancelled = onRecord?.cancelled_steps ?? [];
  if (!text && !warnings.length && !calls && !routing && !cancelled.length) return null;
  const failed = round.planning_attempts.filter((call) => call.error);
  return h(
    'details',
    { class: 'planning' },
    h(
      'summary',
      {},
      'How it was planned',
      calls ? [` in ${calls} ${calls === 1 ? 'call' : 'calls'}, `, usd(onRecord?.cost_usd)] : null,
    ),
    routing ? h('p', {}, routing.explanation) : null,
    warnings.map((warning) => h('p', { class: 'notice' }, warning)),
    failed.map((call) => h('p', { class: 'notice' }, `${call.worker}: ${call.error}`)),
    cancelled.map((/** @type {any} */ { worker, error, cost_usd }) =>
      h('p', { class: 'notice' }, `${worker} began early and was cancelled: ${error}. `, usd(cost_usd)),
    ),
    text ? longText(text) : null,
    text ? numbersInWords(text, round.steps) : null,
  );
}

/**
 * Whom the numbers in a plan mean: a conductor may know workers by their places in the pool alone.
 * @param {string} text
 * @param {{worker: string}[]} steps
 */
function numbersInWords(text, steps) {
  const written = [...text.matchAll(/model_id\s*=\s*\[([\d,\s]+)\]/g)].at(-1)?.[1];
  const numbers = written?.split(',').map((each) => each.trim()) ?? [];
  if (!numbers.length || numbers.length !== steps.length) return null;
  const names = new Map(numbers.map((number, index) => [number, steps[index].worker]));
  const words = [...names].map(([number, worker]) => `${number} is ${worker}`).join(', ');
  return h('p', { class: 'quiet-text' }, `Workers by their numbers: ${words}.`);
}
