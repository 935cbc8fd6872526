// A run as it is looked at: answer, rounds, workflow, timeline, access and steps. It is built from
// a trace, and updated when one of its steps changes.

import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';
import { markdown } from '../lib/markdown.js';
import { thumbs } from './feedback.js';
import { graph } from './graph.js';
import { guardrails } from './guardrails.js';
import { matrix } from './matrix.js';
import { canRetry, retryRunButton } from './retry.js';
import { planning, rounds } from './rounds.js';
import { stepPart } from './step.js';
import { timeline } from './timeline.js';

/** What the drawing knows of a step's state. */
const DRAWN = Object.freeze({ skipped: 'failed', cancelled: 'failed', held: 'waiting' });

/** From so many steps on, those out of sight are not laid out. */
const MANY = 40;

/**
 * @typedef {import('./trace.js').Trace} Trace
 * @typedef {import('./trace.js').RoundTrace} RoundTrace
 * @typedef {{round: number, load: import('./step.js').Load, signal: AbortSignal, isOver: boolean,
 *   onRound: (round: number) => void, onStep: (round: number, index: number) => void,
 *   onRetried?: (id: string) => void}} Options
 *   `round` is the one to look at; `onRound` and `onStep` get the selection, `onRetried` the new
 *   run where a step is retried.
 */

export class RunView {
  /**
   * @param {Trace} trace
   * @param {Options} options
   */
  constructor(trace, options) {
    this.trace = trace;
    this.options = options;
    this.answer = h('div', { class: 'prose run-answer' });
    this.workflow = h('div', { class: 'run-round' });
    this.inside = h('div', { class: 'run-round' });
    this.timeline = timeline(trace.rounds, { onSelect: (round, index) => this.open(round, index) });
    this.isDrawing = false;
    /** @type {ShownRound | null} */
    this.shown = null;
    this.drawAnswer();
    const wanted = trace.rounds[options.round]?.steps.length ? options.round : lastPlanned(trace);
    this.showRound(wanted);
  }

  /** Everything, from top to bottom. */
  get elements() {
    const { trace, options } = this;
    const copy = copyButton('Copy the answer', () => trace.answer ?? '');
    const isPlanned = trace.rounds.some((round) => round.steps.length);
    return [
      trace.answer || !options.isOver
        ? section('Answer', this.answer, options.isOver ? copy : null, judging(trace.document))
        : null,
      trace.document.guardrail_checks?.length ? section('Guardrails', guardrails(trace.document)) : null,
      trace.rounds.length > 1 ? section('Rounds', rounds(trace)) : null,
      isPlanned
        ? [this.workflow, section('Timeline', this.timeline.element), this.inside]
        : noPlan(options.isOver),
    ];
  }

  /**
   * How far a run that goes on has got.
   * @param {number} milliseconds
   */
  setNow(milliseconds) {
    this.timeline.setNow(milliseconds);
  }

  /** The text of the answer has changed. It comes faster than it can be read. */
  words() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => this.drawAnswer());
  }

  /**
   * A step has changed.
   * @param {number} round
   * @param {number} index
   */
  step(round, index) {
    this.timeline.update(round, index);
    if (this.shown?.index === round) this.shown.update(index);
  }

  /**
   * Open a step, and bring it into view.
   * @param {number} round
   * @param {number} index
   */
  open(round, index) {
    if (this.shown?.index !== round) this.showRound(round);
    this.shown?.open(index);
  }

  drawAnswer() {
    this.isDrawing = false;
    const text = this.trace.answer ?? '';
    replace(this.answer, this.options.isOver ? markdown(text) : h('p', { class: 'plain' }, text));
  }

  /** @param {number} index */
  showRound(index) {
    const round = this.trace.rounds[index];
    if (!round) return;
    this.shown = new ShownRound(round, {
      load: this.options.load,
      signal: this.options.signal,
      onOpened: (at) => this.options.onStep(index, at),
      retry: (step) => this.retry(index, step),
    });
    const { drawing, access, steps } = this.shown;
    const planned = planning(round, this.trace.document.rounds[index]);
    const list = h('div', { class: steps.length > MANY ? 'steps many' : 'steps' });
    list.append(...steps.map((part) => part.element));
    replace(this.workflow, section('Workflow', this.choice(index), drawing.element, planned));
    replace(
      this.inside,
      steps.length > 1 || index > 0 ? section('Access', access.element) : null,
      section(`Steps (${steps.length})`, list),
    );
  }

  /**
   * A button that runs a step and all that come after it again.
   * @param {number} round
   * @param {number} step
   */
  retry(round, step) {
    const { onRetried, isOver } = this.options;
    const { document } = this.trace;
    if (!onRetried || !isOver || !canRetry(document)) return null;
    return retryRunButton(document, { onRetried, from: { round, step }, words: 'Retry from here' });
  }

  /**
   * Which round to look at, where there are several.
   * @param {number} current
   */
  choice(current) {
    const planned = this.trace.rounds.filter((round) => round.steps.length);
    if (planned.length < 2) return null;
    const choose = (/** @type {number} */ index) => {
      this.showRound(index);
      this.options.onRound(index);
    };
    return h(
      'div',
      { class: 'buttons round-choice', role: 'group', 'aria-label': 'Which round' },
      planned.map(({ index }) => {
        const pressed = { 'aria-pressed': String(index === current) };
        const chosen = { type: 'button', class: 'small', onclick: () => choose(index) };
        return h('button', { ...chosen, ...pressed }, `Round ${index + 1}`);
      }),
    );
  }
}

/** One round with everything that shows its steps. */
class ShownRound {
  /**
   * @param {RoundTrace} round
   * @param {{load: import('./step.js').Load, signal: AbortSignal,
   *   onOpened: (index: number) => void, retry: (index: number) => HTMLElement | null}} options
   */
  constructor(round, { load, signal, onOpened, retry }) {
    this.round = round;
    this.index = round.index;
    const onSelect = (/** @type {number} */ index) => this.open(index);
    this.drawing = graph(
      round.steps.map((step) => ({ ...step, state: drawn(step.state) })),
      { onSelect, label: `The workflow of round ${round.index + 1}` },
    );
    this.access = matrix(round, { onSelect: (_, index) => this.open(index), signal });
    this.steps = round.steps.map((step) => stepPart(step, { load, retry: () => retry(step.index) }));
    this.steps.forEach(({ element }, index) => {
      element.addEventListener('toggle', () => element.open && onOpened(index));
    });
    round.steps.forEach(({ tokens }, index) => {
      if (tokens !== undefined) this.drawing.update(index, { tokens });
    });
  }

  /** @param {number} index */
  update(index) {
    const { state, tokens } = this.round.steps[index];
    this.steps[index].update();
    this.drawing.update(index, { state: drawn(state), tokens });
    if (state === 'failed' || state === 'skipped') this.access.update();
  }

  /** @param {number} index */
  open(index) {
    const part = this.steps[index];
    if (!part) return;
    part.open();
    this.drawing.select(index);
    part.element.scrollIntoView({ block: 'start' });
    part.element.querySelector('summary')?.focus({ preventScroll: true });
  }
}

/** @param {import('./trace.js').State} state */
function drawn(state) {
  return DRAWN[/** @type {keyof typeof DRAWN} */ (state)] ?? state;
}

/** @param {Trace} trace */
function lastPlanned(trace) {
  return trace.rounds.findLastIndex((round) => round.steps.length);
}

/**
 * Feedback on the answer; nothing for a run without one.
 * @param {any} document
 */
function judging({ run_id: id, status, feedback }) {
  return status === 'answered' || status === 'partial' ? thumbs(id, feedback ?? null) : null;
}

/** @param {boolean} isOver */
function noPlan(isOver) {
  const planning = 'The conductor is planning…';
  const none = 'There is no workflow: planning did not finish.';
  return h('p', { class: 'quiet-text' }, isOver ? none : planning);
}

/**
 * @param {string} title
 * @param {...import('../lib/dom.js').Child} children
 */
function section(title, ...children) {
  return h('section', { class: 'run-section' }, h('h2', {}, title), children);
}
