// A turn of a conversation: a message and its answers. Regenerated answers replace each other; the
// answers of an edited plan and of the best single worker stand beside. See `version.js`.

import { ApiError, post } from '../lib/api.js';
import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';
import { shorten } from '../lib/format.js';
import { bestWorker, whyBest } from './alone.js';
import { ask, isGone, watch } from './asking.js';
import { fileChip } from './attachments.js';
import { essence } from './plan.js';
import { scoped } from './scoped.js';
import { Version } from './version.js';
import { button, lostNotice, refusedNotice, retryButton, runLink, stoppedNotice } from './ways.js';

/**
 * `after` is the version that the message follows, null for the first message.
 * @typedef {{id: string, after: string | null, question: string,
 *   files: import('./attachments.js').Attachment[], model: string, system: string,
 *   podium: Record<string, unknown>}} Asked
 * @typedef {Asked & {shown: string | null,
 *   versions: import('./version.js').SavedVersion[]}} SavedTurn
 * @typedef {{words: string, act: () => void, wait?: number}} Again How to try once more, and how
 *   many seconds later.
 * @typedef {{workers: string[], signal: AbortSignal, isReadOnly: boolean,
 *   input: (turn: Turn) => unknown[], onChange: () => void,
 *   onBusy: (letGo: AbortController, isBusy: boolean) => void, onEdit: (turn: Turn) => void,
 *   onBranch: (turn: Turn, step: number) => void}} Context
 */

export { newId } from './version.js';

const LONGEST_LABEL = 160;
const EDIT = 'Edit the plan and run it again';
const COMPARE = 'Run beside the best single worker';

export class Turn {
  #context;
  /** @type {Version[]} */
  #versions = [];
  /** @type {Version | null} */
  #shown = null;
  /** @type {WeakMap<Version, Node | null>} The button to try once more, of those that need one. */
  #retries = new WeakMap();
  #side = h('div', { class: 'versions' });
  #siblings = h('span', { class: 'pager' });

  /**
   * @param {Asked} asked
   * @param {Context} context
   */
  constructor(asked, context) {
    this.asked = asked;
    this.#context = context;
    const { question, files } = asked;
    this.element = h(
      'section',
      { class: 'turn', 'aria-label': shorten(question, LONGEST_LABEL) },
      h(
        'div',
        { class: 'message' },
        h(
          'div',
          { class: 'message-words' },
          files.length ? h('ul', { class: 'files' }, files.map((file) => fileChip(file))) : null,
          question && h('p', { class: 'plain', tabindex: question.length > 2000 ? '0' : null }, question),
        ),
        h(
          'div',
          { class: 'message-actions' },
          this.#siblings,
          copyButton('Copy', () => question),
          !context.isReadOnly && button('Edit', () => context.onEdit(this), 'small'),
        ),
      ),
      this.#side,
    );
  }

  /** The version that the conversation goes on from. */
  get shown() {
    return this.#shown;
  }

  /** @param {string} id */
  has(id) {
    return this.#versions.some((version) => version.id === id);
  }

  /** @returns {SavedTurn} */
  get saved() {
    const versions = this.#versions.flatMap((version) => version.saved ?? []);
    return { ...this.asked, shown: this.#shown?.id ?? null, versions };
  }

  /**
   * Show what was kept.
   * @param {SavedTurn} turn
   */
  restore({ versions, shown }) {
    for (const saved of versions) {
      const version = this.#add(saved.title, saved.kind, saved.id);
      if (saved.text || this.#context.isReadOnly) this.#restore(version, saved);
      else if (saved.run) this.#follow(version, saved.run);
    }
    if (!this.#paged().length && !this.#context.isReadOnly) {
      const version = this.#add(this.asked.model); // the page was left before anything was known
      this.#stopped(version, { words: 'Ask again', act: () => this.#perform(version, null) });
    }
    this.#show(this.#paged().find(({ id }) => id === shown) ?? this.#paged().at(-1) ?? null);
  }

  /**
   * @param {Version} version
   * @param {import('./version.js').SavedVersion} saved
   */
  #restore(version, saved) {
    const { isReadOnly, signal } = this.#context;
    version.restore(isReadOnly ? { ...saved, run: null } : saved);
    if (isReadOnly) return;
    version.onUnfold = () => {
      if (!saved.run) return;
      watch(saved.run, version, { signal }).then(
        () => this.#settled(version, null),
        (error) => signal.aborted || version.notices(refusedNotice(error)),
      );
    };
    this.#settled(version, null);
  }

  /** Ask the model. */
  ask() {
    return this.#perform(this.#add(this.asked.model), null);
  }

  /** Only plan. */
  plan() {
    return this.#preview(this.#add(`The plan of ${this.asked.model}`));
  }

  /**
   * How many other messages were written in this place.
   * @param {number} place
   * @param {number} all
   */
  branches(place, all) {
    const go = (/** @type {number} */ step) => this.#context.onBranch(this, step);
    replace(this.#siblings, pager('version of the message', place, all, go));
  }

  /** @param {Version} version */
  async #preview(version) {
    const letGo = this.#begun(version);
    const { question, model, podium } = this.asked;
    try {
      const signal = AbortSignal.any([this.#context.signal, letGo.signal]);
      const preview = await post('/v1/plan', { question, model, podium }, { signal });
      version.end();
      version.preview(preview);
      const steps = preview.workflow.steps.map(essence);
      version.actions(
        scoped(button('Run this plan', () => this.#perform(version, steps), 'primary'), 'workflow'),
        scoped(button('Edit the plan', () => this.#edit(steps)), 'workflow'),
      );
    } catch (error) {
      if (this.#context.signal.aborted) return;
      const again = { words: 'Plan again', act: () => this.#preview(version) };
      if (letGo.signal.aborted) this.#stopped(version, again);
      else this.#failed(version, error, again);
    }
    this.#ended(letGo);
  }

  /**
   * @param {string} title
   * @param {import('./version.js').Kind} [kind]
   * @param {string} [id]
   */
  #add(title, kind = 'answer', id) {
    const version = new Version(title, this.#context.signal, kind, id);
    this.#versions.push(version);
    if (kind === 'answer') this.#show(version);
    else this.#side.append(version.element);
    return version;
  }

  /** Those of which one is shown. */
  #paged() {
    return this.#versions.filter(({ kind }) => kind === 'answer');
  }

  /** @param {Version | null} version */
  #show(version) {
    this.#shown = version;
    const paged = this.#paged();
    for (const each of paged) {
      const go = (/** @type {number} */ step) => {
        this.#show(paged[paged.indexOf(each) + step]);
        this.#shown?.focus();
        this.#context.onChange();
      };
      each.pager(pager('answer', paged.indexOf(each), paged.length, go));
      if (each !== version) each.element.remove();
    }
    if (version && !version.element.isConnected) this.#side.prepend(version.element);
  }

  /**
   * Begin, with a way to stop.
   * @param {Version} version
   */
  #begun(version) {
    const letGo = new AbortController();
    version.begin();
    version.actions();
    this.#context.onBusy(letGo, true);
    return letGo;
  }

  /** @param {AbortController} letGo */
  #ended(letGo) {
    this.#context.onBusy(letGo, false);
    this.#context.onChange();
  }

  /**
   * Have the message answered: by a workflow of the reader's own, where there is one.
   * @param {Version} version
   * @param {import('./plan.js').Step[] | null} steps
   * @param {{model?: string, onInvalid?: ((message: string) => void) | null}} [how] `onInvalid`:
   *   what to do where the plan is refused.
   */
  async #perform(version, steps, { model = this.asked.model, onInvalid = null } = {}) {
    const letGo = this.#begun(version);
    const { signal, workers } = this.#context;
    const { podium, system } = this.asked;
    const own = steps ? { workflow: { steps }, rounds: 1 } : {};
    const body = {
      model,
      input: this.#context.input(this),
      ...(system ? { instructions: system } : {}),
      podium: { ...podium, ...own },
    };
    /** @type {Again} */
    const again = {
      words: 'Ask again',
      act: () => this.#perform(version, steps, { model, onInvalid }),
    };
    try {
      await ask(body, version, {
        signal,
        cancelled: letGo.signal,
        isRun: !workers.includes(model),
        onHeaders: (headers) => {
          again.wait = Number(headers.get('Retry-After') ?? 0);
          const run = headers.get('X-Podium-Run');
          if (run) version.opened(run);
          this.#context.onChange();
        },
      });
      if (letGo.signal.aborted && !version.run) {
        version.stop();
        if (!version.runId) version.notices(stoppedNotice());
      }
      if (!letGo.signal.aborted && !version.run) version.endWithWords();
      this.#settled(version, version.isAnswered ? null : this.#retry(again));
    } catch (error) {
      if (signal.aborted) return;
      const isInvalid = error instanceof ApiError && error.status === 400;
      if (isInvalid && onInvalid) onInvalid(error.message);
      else this.#failed(version, error, again);
    }
    this.#ended(letGo);
  }

  /**
   * Follow a run that is there already.
   * @param {Version} version
   * @param {string} runId
   * @param {Again | null} [again]
   */
  async #follow(version, runId, again = null) {
    const { signal } = this.#context;
    version.begin('running');
    version.opened(runId);
    version.actions();
    try {
      await watch(runId, version, { signal });
      this.#settled(version, again && this.#retry(again));
    } catch (error) {
      if (!signal.aborted) this.#failed(version, error, again);
    }
    this.#context.onChange();
  }

  /**
   * What can be done once a version has ended.
   * @param {Version} version
   * @param {Node | null} retry for one that was not answered
   */
  #settled(version, retry) {
    this.#retries.set(version, retry);
    const { steps, text } = version;
    const isPaged = version.kind === 'answer';
    const canCompare = isPaged && text && !this.#versions.some(({ kind }) => kind === 'alone');
    version.actions(
      version.isAnswered ? null : retry,
      text ? copyButton('Copy', () => version.text) : null,
      isPaged && text && button('Regenerate', () => this.ask(), 'small'),
      canCompare ? scoped(button(COMPARE, () => this.#compare(), 'small'), 'gateway') : null,
      steps && version.kind !== 'alone' && scoped(button(EDIT, () => this.#edit(steps), 'small'), 'workflow'),
      version.runId && runLink(version.runId),
      version.kind === 'alone' && h('p', { class: 'quiet-text small' }, version.why),
    );
  }

  /** @param {Again} again */
  #retry({ words, act, wait = 0 }) {
    return retryButton(words, wait, act, this.#context.signal);
  }

  /**
   * @param {Version} version
   * @param {Again} again
   */
  #stopped(version, again) {
    version.stop();
    this.#settled(version, this.#retry(again));
  }

  /**
   * @param {Version} version
   * @param {unknown} error
   * @param {Again | null} again
   */
  #failed(version, error, again) {
    version.end();
    if (!version.run) version.status('failed');
    const retry = again && this.#retry(again);
    const { runId } = version;
    if (!isGone(error)) {
      version.notices(refusedNotice(error));
      this.#settled(version, retry);
      return;
    }
    version.notices(lostNotice(runId));
    version.actions(
      runId && button('Watch the run', () => this.#follow(version, runId, again)),
      retry,
      runId && runLink(runId),
    );
  }

  /** @param {import('./plan.js').Step[]} steps */
  async #edit(steps) {
    const { draft } = await import('./draft.js');
    const yours = this.#versions.filter(({ kind }) => kind === 'plan');
    const title = yours.length ? `Your plan ${yours.length + 1}` : 'Your plan';
    const version = this.#add(title, 'plan');
    draft(version, steps, this.#context.workers, {
      onRun: (edited, reopen) => this.#perform(version, edited, { onInvalid: reopen }),
      onDiscard: () => this.#discard(version),
    });
  }

  /** @param {Version} version */
  #discard(version) {
    this.#versions = this.#versions.filter((each) => each !== version);
    version.element.remove();
    this.#shown?.focus();
    this.#context.onChange();
  }

  /** Ask the worker that the pool calls its best, by its name and with nothing planned. */
  async #compare() {
    const version = this.#add('The best single worker', 'alone');
    for (const each of this.#versions) {
      if (each.run || each.text) this.#settled(each, this.#retries.get(each) ?? null);
    }
    await this.#askBest(version);
  }

  /** @param {Version} version */
  async #askBest(version) {
    version.begin();
    try {
      const best = await bestWorker(this.#context.signal);
      version.rename(`${best.worker} alone`);
      version.why = whyBest(best);
      await this.#perform(version, null, { model: best.worker });
    } catch (error) {
      if (this.#context.signal.aborted) return;
      this.#failed(version, error, { words: 'Ask again', act: () => this.#askBest(version) });
    }
  }
}

/**
 * Which of several is shown, and the way to the others; null where there is one.
 * @param {string} what
 * @param {number} place
 * @param {number} all
 * @param {(step: number) => void} onStep
 */
function pager(what, place, all, onStep) {
  if (all < 2) return null;
  const way = (/** @type {string} */ sign, /** @type {string} */ words, /** @type {number} */ step) =>
    h(
      'button',
      {
        type: 'button',
        class: 'small quiet',
        'aria-label': `${words} ${what}`,
        disabled: place + step < 0 || place + step >= all,
        onclick: () => onStep(step),
      },
      sign,
    );
  return [
    way('‹', 'Previous', -1),
    h('span', { class: 'figure small quiet-text' }, `${place + 1} / ${all}`),
    way('›', 'Next', 1),
  ];
}
