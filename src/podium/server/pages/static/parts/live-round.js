// One round of a run as it happens: the plan drawn, and below it each step with its reply. It is
// updated by events, which `asking.js` receives.

import { h, replace } from '../lib/dom.js';
import { durationText, shorten, snippet, usdText } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { graph } from './graph.js';
import { readsInWords } from './matrix.js';
import { stateBadge } from './step.js';

/** With more steps than this, a step is listed only once it is selected in the drawing. */
const MOST_LISTED = 12;

const LONGEST_SUBTASK = 90;

/** What a step that waits for tools of the client is called where others wait for their inputs. */
const HELD = 'held';

/**
 * A step with what is known of it by now; `ended` is the event of its end. The last
 * one's reply is the answer, and shown as that.
 * @typedef {import('./plan.js').Step & {index: number, isLast: boolean, state: string,
 *   retries: {worker: string, error: string}[], ended: any}} Progress
 */

export class LiveRound {
  #graph;
  /** @type {Progress[]} */
  #progress;
  /** @type {Map<number, StepLine>} Those that are, or were, in the list. */
  #lines = new Map();
  #list = h('ol', { class: 'version-steps' });

  /**
   * @param {{steps: import('./plan.js').Step[]}} workflow
   * @param {{label: string, heading?: string | null, warnings?: string[], state?: string,
   *   routing?: {explanation: string} | null}} how
   *   `state` is that of every step in the beginning.
   */
  constructor(workflow, { label, heading = null, warnings = [], state = 'waiting', routing = null }) {
    this.steps = workflow.steps;
    this.#progress = this.steps.map((step, index) => ({
      ...step,
      index,
      isLast: index === this.steps.length - 1,
      state,
      retries: [],
      ended: null,
    }));
    this.#graph = graph(this.#progress, { label, onSelect: (index) => this.#open(index) });
    const isListed = this.steps.length <= MOST_LISTED;
    if (isListed) this.#show(...this.steps.keys());
    const hint = [this.#graph.hint, isListed ? '' : 'Select a step to read it.'];
    this.element = h(
      'section',
      { class: 'version-round' },
      heading && h('h4', {}, heading),
      this.#graph.element,
      h('p', { class: 'quiet-text version-hint' }, hint.filter(Boolean).join(' ')),
      routing ? h('p', { class: 'quiet-text' }, routing.explanation) : null,
      warnings.map((warning) => h('p', { class: 'notice' }, warning)),
      this.#list,
    );
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  happened(event, data) {
    const step = this.#progress[data.index];
    if (step === undefined) return;
    if (event === 'step_started') this.#change(step, 'running', null);
    else if (event === 'step_retried') {
      step.retries.push(data);
      this.#lines.get(step.index)?.update();
    } else if (event === 'step_done') {
      step.ended = data;
      const { input_tokens: read, output_tokens: written } = data.usage;
      const tokens = read === null || written === null ? null : read + written;
      this.#change(step, data.status === 'waiting' ? HELD : data.status, tokens);
    }
  }

  /** Nothing more will happen: what was at work is not any more. */
  close() {
    for (const step of this.#progress) {
      if (step.state === 'running') this.#change(step, 'cancelled', null);
    }
  }

  /**
   * @param {Progress} step
   * @param {string} state
   * @param {number | null} tokens
   */
  #change(step, state, tokens) {
    step.state = state;
    this.#graph.update(step.index, { state, tokens });
    this.#lines.get(step.index)?.update();
  }

  /** @param {number} index */
  #open(index) {
    if (!this.#lines.get(index)?.element.isConnected) this.#show(index);
    this.#lines.get(index)?.open();
  }

  /** @param {...number} indices */
  #show(...indices) {
    for (const index of indices) {
      if (!this.#lines.has(index)) this.#lines.set(index, new StepLine(this.#progress[index]));
    }
    replace(this.#list, indices.map((index) => h('li', {}, this.#lines.get(index)?.element)));
  }
}

/** One step in the list: what it was to do, what it read, and what came of it. */
class StepLine {
  #step;
  #head = h('summary', {});
  #body = h('div', { class: 'version-step-body' });

  /** @param {Progress} step */
  constructor(step) {
    this.#step = step;
    this.element = /** @type {HTMLDetailsElement} */ (
      h('details', { class: 'version-step', ontoggle: () => this.#fill() }, this.#head, this.#body)
    );
    this.update();
  }

  open() {
    this.element.open = true;
    this.#fill();
    this.element.scrollIntoView({ block: 'nearest' });
  }

  /** The step has changed. */
  update() {
    const { index, worker, subtask, state, ended, isLast } = this.#step;
    replace(
      this.#head,
      h('span', { class: 'version-step-name' }, `Step ${index}`),
      h('span', { class: 'version-step-worker' }, worker),
      stateBadge(/** @type {any} */ (state)),
      h('span', { class: 'version-step-figures figure' }, ended && tookInWords(ended)),
      h('span', { class: 'version-step-task' }, shorten(subtask, LONGEST_SUBTASK)),
      ended && !isLast && h('span', { class: 'version-step-said' }, snippet(ended.reply)),
    );
    this.#fill();
  }

  /** The body is rendered when it is opened: there may be many, and long ones. */
  #fill() {
    if (!this.element.open) return;
    const { subtask, retries, ended } = this.#step;
    replace(
      this.#body,
      h('p', { class: 'plain' }, subtask),
      h('p', { class: 'quiet-text' }, `It ${readsInWords(this.#step)}.`),
      retries.map(({ worker, error }) =>
        h('p', { class: 'notice' }, `A call failed, and ${worker} is asked again: ${error}`),
      ),
      ended?.error && h('p', { class: 'notice bad' }, ended.error),
      ended?.reply && h('div', { class: 'version-step-reply prose' }, markdown(ended.reply)),
    );
  }
}

/** @param {{started_ms: number, finished_ms: number, cost_usd: number | null}} ended */
function tookInWords({ started_ms: began, finished_ms: finished, cost_usd: cost }) {
  return `${durationText((finished - began) / 1000)}, ${usdText(cost)}`;
}
