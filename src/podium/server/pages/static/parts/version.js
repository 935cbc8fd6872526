// One way in which a question was answered, as a card: the plan and its steps, the answer as it
// comes, and what it took. Several stand side by side. A card only shows; `asking.js` tells it
// what happens.

import { h, nodes, replace } from '../lib/dom.js';
import { count, duration, durationText, usd } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { facts } from './table.js';
import { LiveRound } from './live-round.js';
import { statusBadge } from './status.js';
import { unseenNotice } from './ways.js';

export class Version {
  /** @type {LiveRound[]} */
  #rounds = [];
  #speaker = '';
  #words = '';
  #isFromEvents = false;
  #heading = h('h3', { tabindex: '-1' });
  #answer = h('div', { class: 'answer', hidden: true });
  #badge = h('span', { role: 'status' });
  #clock = h('span', { class: 'figure quiet-text clock' });
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticking;
  #plan = h('div', { class: 'version-plan' });
  #notices = h('div', { class: 'version-notices' });
  #figures = h('div', { class: 'version-figures' });
  #actions = h('div', { class: 'buttons version-actions' });

  /**
   * @param {string} title
   * @param {AbortSignal} signal Ends the card's clock.
   */
  constructor(title, signal) {
    /** @type {string | null} */
    this.runId = null;
    /** @type {any} The run as it ended, once it has. */
    this.run = null;
    /** Whether there is a whole answer. */
    this.isAnswered = false;
    /** Whether it is one worker's own reply, with nothing planned. */
    this.isAlone = false;
    /** @type {import('./alone.js').Alone | null} That reply, once it is there. */
    this.alone = null;
    this.element = h(
      'article',
      { class: 'card version' },
      h('header', { class: 'version-head' }, this.#heading, this.#badge, this.#clock),
      this.#plan,
      this.#notices,
      this.#answer,
      this.#figures,
      this.#actions,
    );
    this.title = title;
    this.rename(title);
    signal.addEventListener('abort', () => clearInterval(this.#ticking));
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

  /** It will begin once others have ended. */
  queued() {
    this.status('waits for its turn');
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
    this.#answer.hidden = true;
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
    this.#render(this.#words);
  }

  /** @param {string} status */
  status(status) {
    replace(this.#badge, statusBadge(status));
  }

  /** @param {...(Node | string | null)} elements */
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
  }

  /**
   * A plan that was not executed.
   * @param {any} preview what `/v1/plan` answered
   */
  preview({ workflow, warnings, routed, estimate, planning }) {
    this.#round(workflow, { label: 'The plan', warnings, routed, state: 'planned' });
    this.status('planned, not carried out');
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
    else if (event === 'run_done') this.#done(data);
    else if (event === 'run_abandoned') this.#lost(data);
    else this.#rounds[data.round]?.happened(event, data);
  }

  /** @param {string} text */
  said(text) {
    if (this.#isFromEvents) return;
    if (!this.#words) this.status('running');
    this.#say(text);
  }

  /** @param {Error} error */
  unseen(error) {
    this.#notices.append(unseenNotice(error));
  }

  /**
   * An answer that came whole, with what it took.
   * @param {string} text
   * @param {...[string, Node]} figures
   */
  answered(text, ...figures) {
    this.end();
    this.status('answered');
    this.#render(text);
    replace(this.#figures, facts(...figures));
  }

  /** @param {any} data */
  #planned({ round, accepted, workflow, warnings, routed }) {
    if (accepted || workflow === null) {
      this.#plan.append(h('p', { class: 'quiet-text' }, 'The conductor accepted this answer.'));
      return;
    }
    const label = `Round ${round + 1}`;
    this.#round(workflow, { label, heading: round > 0 ? label : null, warnings, routed });
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
    if (!this.#words) {
      replace(this.#answer, h('h4', {}, 'Answer'), h('div', { class: 'plain answer-words' }));
      this.#answer.hidden = false;
    }
    this.#words += text;
    this.#answer.lastElementChild?.append(...nodes([text]));
  }

  /** @param {any} run */
  #done(run) {
    this.run = run;
    this.runId = run.run_id;
    this.isAnswered = run.status === 'answered';
    this.end();
    this.status(run.status);
    if (run.answer) this.#render(run.answer);
    if (run.error) this.#notices.append(h('p', { class: 'notice bad' }, run.error));
    const { input_tokens: read, output_tokens: written } = run.usage;
    const { seconds, calls } = run.budget.spent;
    replace(
      this.#figures,
      facts(
        ['Cost', usd(run.cost_usd)],
        ['Time', duration(seconds)],
        ['Tokens in', count(read)],
        ['Tokens out', count(written)],
        ['Calls', count(calls)],
      ),
    );
  }

  /** @param {{error: string}} data */
  #lost({ error }) {
    this.stop();
    this.#notices.append(h('p', { class: 'notice' }, error));
  }

  /** @param {string} text */
  #render(text) {
    this.#answer.hidden = false;
    replace(this.#answer, h('h4', {}, 'Answer'), h('div', { class: 'prose' }, markdown(text)));
  }
}
