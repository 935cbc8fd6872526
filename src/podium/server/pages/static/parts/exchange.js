// A question and every way in which it was answered, side by side: as planned, by plans that the
// reader has edited, and by the best single worker. What one of them shows is `version.js`.

import { ApiError, post } from '../lib/api.js';
import { h } from '../lib/dom.js';
import { shorten } from '../lib/format.js';
import { answeredBy, bestWorker, showAlone } from './alone.js';
import { Editor } from './editor.js';
import { ask, isGone, watch } from './asking.js';
import { essence, isSame } from './plan.js';
import { Version } from './version.js';
import { button, lostNotice, refusedNotice, retryButton, runLink } from './ways.js';

/**
 * @typedef {{question: string, model: string, podium: Record<string, unknown>}} Asked
 * @typedef {{title: string, run?: string, alone?: import('./alone.js').Alone}} SavedVersion
 * @typedef {{asked: Asked, versions: SavedVersion[]}} SavedExchange
 */

const LONGEST_HEADING = 160;

/** A browser keeps little with an address: of a longer answer, nothing is kept there. */
const LONGEST_KEPT = 50_000;

export class Exchange {
  #asked;
  #workers;
  #signal;
  #onChange;
  /** @type {Version[]} */
  #versions = [];
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

  /** What is kept of it for whoever comes back. @returns {SavedExchange} */
  get saved() {
    const versions = this.#versions.flatMap(({ title, runId, alone }) => {
      if (alone) return alone.text.length > LONGEST_KEPT ? [] : [{ title, alone }];
      return runId ? [{ title, run: runId }] : [];
    });
    return { asked: this.#asked, versions };
  }

  /** Show what was kept. @param {SavedVersion[]} versions */
  restore(versions) {
    for (const { title, run, alone } of versions) {
      const version = this.#add(title);
      if (alone) showAlone(version, alone);
      else if (run) this.#follow(version, run);
    }
  }

  /** Ask, as the tier plans it. */
  async ask() {
    await this.#perform(this.#add('As planned'), null);
  }

  /** Only plan. */
  async plan() {
    const version = this.#add('The plan');
    const letGo = this.#begun(version);
    const { question, model, podium } = this.#asked;
    try {
      const signal = AbortSignal.any([this.#signal, letGo.signal]);
      const preview = await post('/v1/plan', { question, model, podium }, { signal });
      version.end();
      version.preview(preview);
      const steps = preview.workflow.steps.map(essence);
      version.actions(
        button('Run this plan', () => this.#perform(version, steps), 'primary'),
        button('Edit the plan', () => this.#edit(steps)),
      );
    } catch (error) {
      if (this.#signal.aborted) return;
      if (letGo.signal.aborted) version.stop();
      else this.#failed(version, error, () => this.plan(), 0);
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
    let wait = 0;
    try {
      await ask(body, version, {
        signal: this.#signal,
        cancelled: letGo.signal,
        onHeaders: (headers) => {
          version.opened(headers.get('X-Podium-Run'));
          wait = Number(headers.get('Retry-After') ?? 0);
          this.#onChange();
        },
      });
      if (version.run) version.end();
      else if (letGo.signal.aborted) version.stop();
      else version.endWithWords();
      this.#settled(version, [button('Ask again', () => this.#perform(version, steps))]);
    } catch (error) {
      if (this.#signal.aborted) return;
      const isInvalid = error instanceof ApiError && error.status === 400;
      if (isInvalid && onInvalid) onInvalid(error.message);
      else this.#failed(version, error, () => this.#perform(version, steps), wait);
    }
    this.#onChange();
  }

  /**
   * Follow a run that is there already.
   * @param {Version} version
   * @param {string} runId
   * @param {(() => void) | null} [again] how to ask anew
   */
  async #follow(version, runId, again = null) {
    version.begin('running');
    version.opened(runId);
    version.actions();
    try {
      await watch(runId, version, { signal: this.#signal });
      this.#settled(version, []);
    } catch (error) {
      if (!this.#signal.aborted) this.#failed(version, error, again, 0);
    }
  }

  /**
   * What can be done once a version has ended.
   * @param {Version} version
   * @param {Node[]} more for one that was not answered
   */
  #settled(version, more) {
    const { steps, run } = version;
    version.actions(
      ...(run?.status === 'answered' ? [] : more),
      steps && button('Edit the plan and run it again', () => this.#edit(steps)),
      run?.answer && !this.#versions.some(({ isAlone }) => isAlone)
        ? button('What would the best single worker have said?', () => this.#compare())
        : null,
      version.runId && runLink(version.runId),
    );
  }

  /**
   * @param {Version} version
   * @param {unknown} error
   * @param {(() => void) | null} again
   * @param {number} wait seconds after which it may be asked again
   */
  #failed(version, error, again, wait) {
    version.end();
    if (!version.run) version.status('failed');
    const { runId } = version;
    if (isGone(error)) {
      version.notices(lostNotice(runId));
      version.actions(
        runId && button('Watch the run', () => this.#follow(version, runId, again)),
        again && button('Ask again', again),
        runId && runLink(runId),
      );
      return;
    }
    version.notices(refusedNotice(error));
    const retry = again && retryButton('Ask again', wait, again, this.#signal);
    this.#settled(version, retry ? [retry] : []);
  }

  /** @param {import('./plan.js').Step[]} steps */
  #edit(steps) {
    const yours = this.#versions.filter(({ title }) => title.startsWith('Your plan'));
    const version = this.#add(yours.length ? `Your plan ${yours.length + 1}` : 'Your plan');
    const editor = new Editor(steps, this.#workers);
    const run = () => {
      if (editor.check()) this.#perform(version, editor.steps, reopen);
    };
    const tell = () =>
      version.status(isSame(steps, editor.steps) ? 'not changed yet' : 'edited, not run');
    const show = () => {
      tell();
      version.plan(editor.element);
      version.actions(
        button('Run this plan', run, 'primary'),
        button('Discard', () => this.#discard(version)),
      );
    };
    const reopen = (/** @type {string} */ message) => {
      version.end();
      show();
      editor.refused(message);
    };
    editor.onChange = tell;
    editor.element.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run();
    });
    show();
    editor.focus();
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
    for (const each of this.#versions) if (each.run) this.#settled(each, []);
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
      const worker = await bestWorker(signal);
      version.rename(`${worker} alone`);
      showAlone(version, await answeredBy(worker, this.#asked, signal));
    } catch (error) {
      if (this.#signal.aborted) return;
      const again = () => this.#askAlone(version);
      if (letGo.signal.aborted) {
        version.stop();
        version.actions(button('Ask again', again));
      } else this.#failed(version, error, again, 0);
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
