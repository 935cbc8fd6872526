// A question and every way in which it was answered, side by side: by its tier, by plans that the
// reader has edited, and by the best single worker. What one of them shows is `version.js`.

import { ApiError, post } from '../lib/api.js';
import { h } from '../lib/dom.js';
import { shorten } from '../lib/format.js';
import { answeredBy, bestWorker, showAlone } from './alone.js';
import { ask, isGone, watch } from './asking.js';
import { draft } from './draft.js';
import { essence } from './plan.js';
import { scoped } from './scoped.js';
import { Version } from './version.js';
import { button, lostNotice, refusedNotice, retryButton, runLink, stoppedNotice } from './ways.js';

/**
 * @typedef {{question: string, model: string, podium: Record<string, unknown>}} Asked
 * @typedef {{title: string, run?: string, alone?: import('./alone.js').Alone}} SavedVersion
 * @typedef {{asked: Asked, versions: SavedVersion[]}} SavedExchange
 * @typedef {{words: string, act: () => void, wait?: number}} Again How to try once more, and how
 *   many seconds later.
 */

const LONGEST_HEADING = 160;
const EDIT = 'Edit the plan and run it again';
const COMPARE = 'What would the best single worker have said?';

/** A browser keeps little with an address: of a longer answer, nothing is kept there. */
const LONGEST_KEPT = 50_000;

export class Exchange {
  #asked;
  #workers;
  #signal;
  #onChange;
  /** @type {Version[]} */
  #versions = [];
  /** @type {WeakMap<Version, Node | null>} The button to try once more, of those that need one. */
  #retries = new WeakMap();
  #side = h('div', { class: 'versions' });

  /**
   * @param {Asked} asked
   * @param {{workers: string[], signal: AbortSignal, onChange: () => void}} context
   */
  constructor(asked, { workers, signal, onChange }) {
    this.#asked = asked;
    this.#workers = workers;
    this.#signal = signal;
    this.#onChange = onChange;
    const heading = shorten(asked.question, LONGEST_HEADING);
    const isWhole = heading === asked.question.trim();
    this.element = h(
      'section',
      { class: 'exchange', 'aria-label': heading },
      h('h2', {}, heading),
      !isWhole && wholeQuestion(asked.question),
      this.#side,
    );
  }

  /** The state that is restored on navigation back. @returns {SavedExchange} */
  get saved() {
    /** @type {(version: Version) => SavedVersion[]} */
    const kept = ({ title, runId, alone }) => {
      if (alone) return alone.text.length > LONGEST_KEPT ? [] : [{ title, alone }];
      return runId ? [{ title, run: runId }] : [];
    };
    return { asked: this.#asked, versions: this.#versions.flatMap(kept) };
  }

  /** Show what was kept. @param {SavedVersion[]} versions */
  restore(versions) {
    for (const { title, run, alone } of versions) {
      const version = this.#add(title);
      if (alone) showAlone(version, alone);
      else if (run) this.#follow(version, run);
    }
  }

  /** Ask the tier. */
  async ask() {
    await this.#perform(this.#add(this.#asked.model), null);
  }

  /** Only plan. */
  async plan() {
    await this.#preview(this.#add(`The plan of ${this.#asked.model}`));
  }

  /** @param {Version} version */
  async #preview(version) {
    const letGo = this.#begun(version);
    const { question, model, podium } = this.#asked;
    try {
      const signal = AbortSignal.any([this.#signal, letGo.signal]);
      const preview = await post('/v1/plan', { question, model, podium }, { signal });
      version.end();
      version.preview(preview);
      const steps = preview.workflow.steps.map(essence);
      version.actions(
        scoped(button('Run this plan', () => this.#perform(version, steps), 'primary'), 'workflow'),
        scoped(button('Edit the plan', () => this.#edit(steps)), 'workflow'),
      );
    } catch (error) {
      if (this.#signal.aborted) return;
      const again = { words: 'Plan again', act: () => this.#preview(version) };
      if (letGo.signal.aborted) this.#stopped(version, again);
      else this.#failed(version, error, again);
    }
  }

  /** @param {string} title */
  #add(title) {
    const version = new Version(title, this.#signal);
    this.#versions.push(version);
    this.#side.append(version.element);
    return version;
  }

  /**
   * Begin, with a way to stop.
   * @param {Version} version
   */
  #begun(version) {
    const letGo = new AbortController();
    version.begin();
    version.actions(button('Cancel', () => letGo.abort(), 'danger'));
    return letGo;
  }

  /**
   * Have the question answered by a run: by a workflow of the reader's own, where there is one.
   * @param {Version} version
   * @param {import('./plan.js').Step[] | null} steps
   * @param {((message: string) => void) | null} [onInvalid] what to do where the plan is refused
   */
  async #perform(version, steps, onInvalid = null) {
    const letGo = this.#begun(version);
    const { question, model, podium } = this.#asked;
    const own = steps ? { workflow: { steps }, rounds: 1 } : {};
    const body = { model, input: question, podium: { ...podium, ...own } };
    /** @type {Again} */
    const again = { words: 'Ask again', act: () => this.#perform(version, steps, onInvalid) };
    try {
      await ask(body, version, {
        signal: this.#signal,
        cancelled: letGo.signal,
        onHeaders: (headers) => {
          version.opened(headers.get('X-Podium-Run'));
          again.wait = Number(headers.get('Retry-After') ?? 0);
          this.#onChange();
        },
      });
      if (letGo.signal.aborted && !version.run) {
        version.stop();
        if (!version.runId) version.notices(stoppedNotice());
      }
      if (!letGo.signal.aborted && !version.run) version.endWithWords();
      this.#settled(version, version.isAnswered ? null : this.#retry(again));
    } catch (error) {
      if (this.#signal.aborted) return;
      const isInvalid = error instanceof ApiError && error.status === 400;
      if (isInvalid && onInvalid) onInvalid(error.message);
      else this.#failed(version, error, again);
    }
    this.#onChange();
  }

  /**
   * Follow a run that is there already.
   * @param {Version} version
   * @param {string} runId
   * @param {Again | null} [again]
   */
  async #follow(version, runId, again = null) {
    version.begin('running');
    version.opened(runId);
    version.actions();
    try {
      await watch(runId, version, { signal: this.#signal });
      this.#settled(version, again && this.#retry(again));
    } catch (error) {
      if (!this.#signal.aborted) this.#failed(version, error, again);
    }
  }

  /**
   * What can be done once a version has ended.
   * @param {Version} version
   * @param {Node | null} retry for one that was not answered
   */
  #settled(version, retry) {
    this.#retries.set(version, retry);
    const { steps, run } = version;
    const isAlone = this.#versions.some((each) => each.isAlone);
    version.actions(
      version.isAnswered ? null : retry,
      steps && scoped(button(EDIT, () => this.#edit(steps)), 'workflow'),
      run?.answer && !isAlone ? scoped(button(COMPARE, () => this.#compare()), 'gateway') : null,
      version.runId && runLink(version.runId),
    );
  }

  /** @param {Again} again */
  #retry({ words, act, wait = 0 }) {
    return retryButton(words, wait, act, this.#signal);
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
  #edit(steps) {
    const yours = this.#versions.filter(({ title }) => title.startsWith('Your plan'));
    const version = this.#add(yours.length ? `Your plan ${yours.length + 1}` : 'Your plan');
    draft(version, steps, this.#workers, {
      onRun: (edited, reopen) => this.#perform(version, edited, reopen),
      onDiscard: () => this.#discard(version),
    });
  }

  /** @param {Version} version */
  #discard(version) {
    this.#versions = this.#versions.filter((each) => each !== version);
    version.element.remove();
    this.#versions.at(-1)?.focus();
    this.#onChange();
  }

  /** Put the best single worker's answer beside the others. */
  #compare() {
    const version = this.#add('The best single worker');
    version.isAlone = true;
    for (const each of this.#versions) {
      if (each.run) this.#settled(each, this.#retries.get(each) ?? null);
    }
    this.#askAlone(version);
  }

  /**
   * Ask the worker that the pool calls its best, by its own name and with nothing planned.
   * @param {Version} version
   */
  async #askAlone(version) {
    const letGo = this.#begun(version);
    version.status('running');
    try {
      const signal = AbortSignal.any([this.#signal, letGo.signal]);
      const best = await bestWorker(signal);
      version.rename(`${best.worker} alone`);
      showAlone(version, await answeredBy(best, this.#asked, signal));
    } catch (error) {
      if (this.#signal.aborted) return;
      const again = { words: 'Ask again', act: () => this.#askAlone(version) };
      if (letGo.signal.aborted) this.#stopped(version, again);
      else this.#failed(version, error, again);
    }
    this.#onChange();
  }
}

/** @param {string} question */
function wholeQuestion(question) {
  return h(
    'details',
    {},
    h('summary', { class: 'quiet-text' }, 'The question as it was asked'),
    h('p', { class: 'plain' }, question),
  );
}
