// A run as it is looked at: answer, rounds, workflow, timeline, access and steps. It is built from a
// trace, and told which of its steps has changed.

import { h, replace } from '../lib/dom.js';
import { markdown } from '../lib/markdown.js';
import { copyButton } from './copy.js';
import { graph } from './graph.js';
import { matrix } from './matrix.js';
import { planning, rounds } from './rounds.js';
import { stepPart } from './step.js';
import { timeline } from './timeline.js';

/** What the drawing knows of a step's state. */
const DRAWN = Object.freeze({ skipped: 'failed', cancelled: 'failed', held: 'waiting' });

/** From so many steps on, those out of sight are not laid out. */
const MANY = 40;

/** @typedef {import('./trace.js').Trace} Trace */

/**
 * @param {Trace} trace
 * @param {{round: number, load: import('./step.js').Load, signal: AbortSignal, isOver: boolean,
 *   onRound: (round: number) => void, onStep: (round: number, index: number) => void}} options
 *   `round` is the one to look at.
 */
export function runView(trace, { round, load, signal, isOver, onRound, onStep }) {
  const answer = h('div', { class: 'prose run-answer' });
  const workflow = h('div', { class: 'run-round' });
  const inside = h('div', { class: 'run-round' });
  const line = timeline(trace.rounds, { onSelect: open });
  /** @type {{index: number, graph: ReturnType<typeof graph>, matrix: ReturnType<typeof matrix>, steps: ReturnType<typeof stepPart>[]} | null} */
  let shown = null;
  let isDrawing = false;

  function drawAnswer() {
    isDrawing = false;
    if (isOver) replace(answer, markdown(trace.answer ?? ''));
    else replace(answer, h('p', { class: 'plain' }, trace.answer ?? ''));
  }

  /** @param {number} index */
  function showRound(index) {
    const wanted = trace.rounds[index];
    if (!wanted) return;
    const drawn = graph(
      wanted.steps.map((step) => ({ ...step, state: drawnState(step.state) })),
      { onSelect: (at) => open(index, at), label: `The workflow of round ${index + 1}` },
    );
    wanted.steps.forEach((step, at) => {
      if (step.tokens !== undefined) drawn.update(at, { tokens: step.tokens });
    });
    const access = matrix(wanted, { onSelect: open, signal });
    const steps = wanted.steps.map((step) => stepPart(step, { load }));
    for (const part of steps) part.element.addEventListener('toggle', () => noteOpened(index, steps.indexOf(part)));
    shown = { index, graph: drawn, matrix: access, steps };
    replace(
      workflow,
      section(
        'Workflow',
        tabs(index),
        h('div', { class: 'graph-box', tabindex: '-1' }, drawn.element),
        planning(wanted, trace.document.rounds[index]),
      ),
    );
    replace(
      inside,
      section('Access', access.element),
      section(
        `Steps (${steps.length})`,
        h('div', { class: steps.length > MANY ? 'steps many' : 'steps' }, steps.map((part) => part.element)),
      ),
    );
  }

  /** @param {number} current */
  function tabs(current) {
    const planned = trace.rounds.filter((each) => each.steps.length);
    if (planned.length < 2) return null;
    return h(
      'div',
      { class: 'buttons round-choice', role: 'group', 'aria-label': 'Which round' },
      planned.map((each) =>
        h(
          'button',
          {
            type: 'button',
            class: 'small',
            'aria-pressed': String(each.index === current),
            onclick: () => {
              showRound(each.index);
              onRound(each.index);
            },
          },
          `Round ${each.index + 1}`,
        ),
      ),
    );
  }

  /**
   * @param {number} at
   * @param {number} index
   */
  function noteOpened(at, index) {
    if (shown?.steps[index]?.element.open) onStep(at, index);
  }

  /**
   * Open a step, and bring it into view.
   * @param {number} at
   * @param {number} index
   */
  function open(at, index) {
    if (shown?.index !== at) showRound(at);
    const part = shown?.steps[index];
    if (!part) return;
    part.open();
    shown?.graph.select(index);
    part.element.scrollIntoView({ block: 'start' });
    part.element.querySelector('summary')?.focus({ preventScroll: true });
  }

  const isPlanned = trace.rounds.some((each) => each.steps.length);
  drawAnswer();
  showRound(trace.rounds[round]?.steps.length ? round : firstPlanned(trace));
  return {
    element: [
      trace.answer || !isOver
        ? section('Answer', answer, isOver ? copyButton('Copy the answer', () => trace.answer ?? '') : null)
        : null,
      trace.rounds.length > 1 ? section('Rounds', rounds(trace)) : null,
      isPlanned ? [workflow, section('Timeline', line.element), inside] : noPlan(isOver),
    ],
    open,
    setNow: line.setNow,
    /** The words of the answer have changed. They come faster than anybody reads. */
    words() {
      if (isDrawing) return;
      isDrawing = true;
      requestAnimationFrame(drawAnswer);
    },
    /**
     * A step has changed.
     * @param {number} at
     * @param {number} index
     */
    step(at, index) {
      line.update(at, index);
      const step = trace.rounds[at]?.steps[index];
      if (!step || shown?.index !== at) return;
      shown.steps[index].update();
      shown.graph.update(index, { state: drawnState(step.state), tokens: step.tokens });
      if (step.state === 'failed' || step.state === 'skipped') shown.matrix.update();
    },
  };
}

/** @param {import('./trace.js').State} state */
function drawnState(state) {
  return DRAWN[/** @type {keyof typeof DRAWN} */ (state)] ?? state;
}

/** @param {Trace} trace */
function firstPlanned(trace) {
  return Math.max(0, trace.rounds.findLastIndex((each) => each.steps.length));
}

/** @param {boolean} isOver */
function noPlan(isOver) {
  const words = isOver ? 'There is no workflow: planning did not come to an end.' : 'The conductor is planning…';
  return h('p', { class: 'quiet-text' }, words);
}

/**
 * @param {string} title
 * @param {...import('../lib/dom.js').Child} children
 */
function section(title, ...children) {
  return h('section', { class: 'run-section' }, h('h2', {}, title), children);
}
