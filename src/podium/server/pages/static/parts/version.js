// One answer of a turn, as a card: the answer on top, what it took in one line, and the workflow
// folded under it. A card only shows; `asking.js` tells it what happens.

import { h, replace } from '../lib/dom.js';
import { count, duration, durationText, usd } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { LiveRound } from './live-round.js';
import { statusBadge } from './status.js';
import { facts } from './table.js';
import { unseenNotice } from './ways.js';

/**
 * @typedef {'answer' | 'plan' | 'alone'} Kind By the model that was asked, by a plan of the
 *   reader's own, or by the best single worker.
 * @typedef {{cost: number | null, seconds: number | null, input: number | null,
 *   output: number | null, calls: number | null}} Took
 * @typedef {{id: string, kind: Kind, title: string, status: string, text: string,
 *   run: string | null, took: Took | null, why?: string}} SavedVersion
 */

/** How often an answer that comes is rendered, at most. */
const RENDER_MILLISECONDS = 120;

export class Version {
  /** @type {LiveRound[]} */
  #rounds = [];
  #done = 0;
  #speaker = '';
  #words = '';
  #isFromEvents = false;
  #status = '';
  /** @type {Took | null} */
  #took = null;
  #heading = h('h2', { tabindex: '-1' });
  #answer = h('div', { class: 'answer prose', hidden: true });
  #badge = h('span', { role: 'status' });
  #clock = h('span', { class: 'figure quiet-text clock' });
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #rendering;
  #plan = h('div', { class: 'version-plan' });
  #foldWords = h('summary', {}, 'Workflow');
  #fold = /** @type {HTMLDetailsElement} */ (
    h('details', { class: 'version-fold', hidden: true }, this.#foldWords, this.#plan)
  );
  #notices = h('div', { class: 'version-notices' });
  #figures = h('div', { class: 'version-figures' });
  #actions = h('div', { class: 'buttons version-actions' });
  #pager = h('span', { class: 'pager' });

  /**
   * @param {string} title
   * @param {AbortSignal} signal Ends the card's clock.
   * @param {Kind} [kind]
   * @param {string} [id]
   */
  constructor(title, signal, kind = 'answer', id = newId()) {
    this.id = id;
    this.kind = kind;
    /** @type {string | null} */
    this.runId = null;
    /** @type {any} The run as it ended, once it has. */
    this.run = null;
    /** Whether there is a whole answer. */
    this.isAnswered = false;
    /** Why this worker is called the best. */
    this.why = '';
    /** @type {(() => void) | null} Fetches the workflow when it is unfolded for the first time. */
    this.onUnfold = null;
    this.element = h(
      'article',
      { class: `version version-${kind}` },
      h('header', { class: 'version-head' }, this.#heading, this.#badge, this.#clock, this.#pager),
      this.#answer,
      this.#notices,
      this.#figures,
      this.#fold,
      this.#actions,
    );
    this.#fold.addEventListener('toggle', () => {
      if (this.#fold.open) this.onUnfold?.();
      this.onUnfold = null;
    });
    this.title = title;
    this.rename(title);
    signal.addEventListener('abort', () => {
      clearInterval(this.#ticking);
      clearTimeout(this.#rendering);
    });
  }

  /** The answer, or what is there of it. */
  get text() {
    return this.run?.answer || this.#words;
  }

  /** @returns {SavedVersion | null} Null where there is nothing to keep. */
  get saved() {
    if (!this.runId && !this.text) return null;
    const { id, kind, title, runId: run, text, why } = this;
    const state = { id, kind, title, run, text, status: this.#status, took: this.#took };
    return why ? { ...state, why } : state;
  }

  /** @param {SavedVersion} saved */
  restore({ text, status, run, took, why = '' }) {
    this.#words = text;
    this.runId = run;
    this.why = why;
    this.isAnswered = status === 'answered';
    this.status(status);
    this.#render();
    if (took) this.#tell(took);
    this.#fold.hidden = !run;
  }

  /** @param {import('../lib/dom.js').Child} element */
  pager(element) {
    replace(this.#pager, element);
  }

  /** @param {string} title */
  rename(title) {
    this.title = title;
    replace(this.#heading, title);
    this.element.setAttribute('aria-label', title);
  }

  /** The steps of the latest plan, or null where there is none yet. */
  get steps() {
    return this.#rounds.at(-1)?.steps ?? null;
  }

  /** Something begins: what was shown before is void. */
  begin(status = 'planning') {
    this.#keepFocus(this.#plan);
    this.run = null;
    this.runId = null;
    this.isAnswered = false;
    this.#rounds = [];
    this.#speaker = this.#words = '';
    this.#isFromEvents = false;
    this.#took = null;
    this.#answer.hidden = this.#fold.hidden = true;
    replace(this.#answer);
    replace(this.#plan);
    replace(this.#notices);
    replace(this.#figures);
    this.status(status);
    const began = performance.now();
    const tick = () => replace(this.#clock, durationText((performance.now() - began) / 1000));
    clearInterval(this.#ticking);
    this.#ticking = setInterval(tick, 500);
  }

  /** Nothing more will happen. */
  end() {
    clearInterval(this.#ticking);
    replace(this.#clock);
    this.#rounds.at(-1)?.close();
    if (this.#words) this.#render();
  }

  /** It was stopped, and nothing more is known. */
  stop() {
    this.end();
    this.status('interrupted');
  }

  /** The answer has ended without events of its run: only its text is known. */
  endWithWords() {
    this.end();
    this.isAnswered = true;
    this.status('answered');
  }

  /** @param {string} status */
  status(status) {
    this.#status = status;
    replace(this.#badge, statusBadge(status));
  }

  /** @param {...import('../lib/dom.js').Child} elements */
  actions(...elements) {
    this.#keepFocus(this.#actions);
    replace(this.#actions, elements);
  }

  focus() {
    this.#heading.focus();
  }

  /**
   * What has the focus is about to go: without this, the reader would be at the page's beginning.
   * @param {Element} around
   */
  #keepFocus(around) {
    if (around.contains(document.activeElement)) this.focus();
  }

  /** @param {...(Node | null)} elements */
  notices(...elements) {
    replace(this.#notices, elements);
  }

  /**
   * What goes in the place of the plan: a plan that is being edited.
   * @param {Node} element
   */
  plan(element) {
    this.#rounds = [];
    replace(this.#plan, element);
    this.#unfold();
  }

  /**
   * A plan that was not executed.
   * @param {any} preview what `/v1/plan` answered
   */
  preview({ workflow, warnings, routing, estimate, planning }) {
    this.#round(workflow, { label: 'The plan', warnings, routing, state: 'planned' });
    this.status('planned, not run');
    this.#unfold();
    const assumed =
      'An estimate, if all goes well: each step is taken to write ' +
      `${estimate.assumed_output_tokens_per_step} tokens. Planning itself cost `;
    const tokens = estimate.input_tokens + estimate.output_tokens;
    replace(
      this.#figures,
      facts(
        ['Cost, about', usd(estimate.cost_usd)],
        ['Calls', count(estimate.calls)],
        ['Tokens, about', count(tokens)],
      ),
      h('p', { class: 'quiet-text' }, assumed, usd(planning.cost_usd), '.'),
    );
  }

  /** @param {string | null} runId null where there is no run, or none that is kept */
  opened(runId) {
    this.runId = runId;
  }

  /**
   * @param {string} event
   * @param {any} data
   */
  happened(event, data) {
    if (event === 'round_planned') this.#planned(data);
    else if (event === 'step_delta' && !data.thinking) this.#delta(data);
    else if (event === 'run_done') this.#finish(data);
    else if (event === 'run_abandoned') this.#lost(data);
    else this.#rounds[data.round]?.happened(event, data);
    if (event === 'step_done') {
      this.#done += 1;
      this.#tellSteps();
    }
  }

  /** @param {string} text */
  said(text) {
    if (this.#isFromEvents || this.run) return; // the run has told its answer
    if (!this.#words) this.status('running');
    this.#say(text);
  }

  /** @param {Error} error */
  unseen(error) {
    this.#notices.append(unseenNotice(error));
  }

  /** @param {any} data */
  #planned({ round, accepts_answer, workflow, warnings, routing }) {
    if (accepts_answer || workflow === null) {
      this.#plan.append(h('p', { class: 'quiet-text' }, 'The conductor accepted this answer.'));
      return;
    }
    const label = `Round ${round + 1}`;
    this.#round(workflow, { label, heading: round > 0 ? label : null, warnings, routing });
    this.status('running');
  }

  /**
   * @param {{steps: import('./plan.js').Step[]}} workflow
   * @param {ConstructorParameters<typeof LiveRound>[1]} how
   */
  #round(workflow, how) {
    const round = new LiveRound(workflow, how);
    this.#rounds.push(round);
    this.#plan.append(round.element);
    this.#fold.hidden = false;
    this.#done = 0;
    this.#tellSteps();
  }

  #unfold() {
    this.#fold.hidden = false;
    this.#fold.open = true;
  }

  /** How far the workflow is, in the line that unfolds it. */
  #tellSteps() {
    const steps = this.#rounds.at(-1)?.steps ?? [];
    const workers = [...new Set(steps.map(({ worker }) => worker))];
    const rounds = this.#rounds.length > 1 ? `round ${this.#rounds.length}, ` : '';
    const [most, done] = [steps.length, Math.min(this.#done, steps.length)];
    const far = this.run || !done ? `${most} ${most === 1 ? 'step' : 'steps'}` : `${done} of ${most} steps done`;
    const by = workers.length > 4 ? `${workers.length} workers` : workers.join(', ');
    replace(this.#foldWords, 'Workflow', h('span', { class: 'quiet-text' }, ` ${rounds}${far}, ${by}`));
  }

  /** @param {{round: number, index: number, text: string}} data */
  #delta({ round, index, text }) {
    const speaker = `${round} ${index}`;
    if (speaker !== this.#speaker) {
      // A later round has an answer of its own, and so have the events, which say the same words
      // as the answer's own stream but sooner.
      this.#speaker = speaker;
      this.#isFromEvents = true;
      this.#words = '';
    }
    this.#say(text);
  }

  /** @param {string} text */
  #say(text) {
    this.#words += text;
    this.#rendering ??= setTimeout(() => this.#render(), this.#answer.hidden ? 0 : RENDER_MILLISECONDS);
  }

  /** @param {any} run */
  #finish(run) {
    this.run = run;
    this.runId = run.run_id;
    this.isAnswered = run.status === 'answered';
    if (run.answer) this.#words = run.answer;
    this.end();
    this.status(run.status);
    if (run.error) this.#notices.append(h('p', { class: 'notice bad' }, run.error));
    const { input_tokens: input, output_tokens: output } = run.usage;
    const { seconds, calls } = run.budget.spent;
    this.#tell({ cost: run.cost_usd, seconds, input, output, calls });
    if (this.#rounds.length) this.#tellSteps();
  }

  /** @param {Took} took */
  #tell(took) {
    this.#took = took;
    const figure = (/** @type {string} */ name, /** @type {Node} */ value, words = '') =>
      h('span', { title: name, 'data-figure': name }, value, words);
    replace(
      this.#figures,
      h(
        'p',
        { class: 'took quiet-text' },
        figure('Cost', usd(took.cost)),
        figure('Time', duration(took.seconds)),
        figure('Tokens in', count(took.input), ' tokens in'),
        figure('Tokens out', count(took.output), ' out'),
        figure('Calls', count(took.calls), took.calls === 1 ? ' call' : ' calls'),
      ),
    );
  }

  /** @param {{error: string}} data */
  #lost({ error }) {
    this.stop();
    this.#notices.append(h('p', { class: 'notice' }, error));
  }

  #render() {
    clearTimeout(this.#rendering);
    this.#rendering = undefined;
    this.#answer.hidden = !this.#words;
    replace(this.#answer, markdown(this.#words));
  }
}

/** @returns {string} */
export function newId() {
  return crypto.getRandomValues(new Uint32Array(2)).join('-');
}
