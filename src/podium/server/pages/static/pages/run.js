// One run: what was asked, what was done, by whom, who saw what, and what it took. A run that goes
// on is followed to its end; what cannot be shown says why, and how to go on.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { shorten } from '../lib/format.js';
import { session } from '../lib/session.js';
import { loading } from '../lib/states.js';
import { follow } from '../parts/follow.js';
import { canRetry, retryRunButton } from '../parts/retry.js';
import { runHead } from '../parts/run-head.js';
import { cannotBeShown, connectionLost, notKept } from '../parts/run-states.js';
import { RunView } from '../parts/run-view.js';
import { isRunning, statusNotice } from '../parts/status.js';
import { beforeEvents, fromRecord, lastKnown, take } from '../parts/trace.js';

export const title = 'Run';

const TICK_MILLISECONDS = 250;
const LONGEST_TITLE = 60;

/**
 * @typedef {{params: Record<string, string>, query: URLSearchParams, signal: AbortSignal,
 *   navigate: (address: string, options?: {replace?: boolean, quiet?: boolean}) => void}} Context
 */

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function show(root, context) {
  const { params, signal } = context;
  replace(root, loading('Loading the run…'));
  const page = new RunPage(root, context);
  const tick = setInterval(() => page.tick(), TICK_MILLISECONDS);
  signal.addEventListener('abort', () => clearInterval(tick));
  try {
    await follow(params.id, signal, page);
  } catch (error) {
    if (signal.aborted) return;
    const { keys } = await session();
    if (signal.aborted) return;
    replace(root, cannotBeShown(params.id, error, { keys, retry: () => show(root, context) }));
  } finally {
    clearInterval(tick);
  }
}

/** The page as it follows its run; see `follow`. */
class RunPage {
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   */
  constructor(root, { params, query, signal, navigate }) {
    this.root = root;
    this.id = params.id;
    this.signal = signal;
    this.navigate = navigate;
    this.wanted = placeIn(query);
    this.beganAt = 0;
    this.head = h('div');
    this.state = h('div', { class: 'run-state' });
    this.body = h('div', { class: 'run-body' });
    /** @type {import('../parts/trace.js').Trace | null} */
    this.trace = null;
    /** @type {RunView | null} */
    this.view = null;
  }

  /**
   * The run as it is on record.
   * @param {any} document
   */
  onRecord(document) {
    if (!this.head.isConnected) replace(this.root, this.head, this.state, this.body);
    // Events tell a run that goes on from its beginning, so nothing is shown twice.
    this.trace = isRunning(document) ? beforeEvents(document) : fromRecord(document);
    this.beganAt = performance.now() - soFar(document);
    globalThis.document.title = `${shorten(document.question, LONGEST_TITLE)} · Podium`;
    replace(this.head, runHead(document, { onDeleted: () => this.navigate('/runs') }));
    const onRetried = (/** @type {string} */ id) => this.navigate(`/runs/${id}`);
    const again = { onRetried, words: 'Retry', kind: 'primary small' };
    replace(this.state, statusNotice(document, canRetry(document) ? retryRunButton(document, again) : null));
    this.draw();
    const { round, index } = this.wanted;
    if (!isRunning(document) && index !== null) this.view?.open(round, index);
  }

  /**
   * @param {string} name
   * @param {any} data
   */
  onEvent(name, data) {
    if (this.trace === null) return;
    const { kind, round = 0, index = 0 } = take(this.trace, name, data);
    if (kind === 'plan') {
      this.wanted = { round, index: null };
      this.draw();
    } else if (kind === 'step') {
      this.setClock();
      this.view?.step(round, index);
    } else if (kind === 'words') this.view?.words();
  }

  /** @param {{error: unknown, seconds: number, tryNow: () => void}} lost */
  onLost(lost) {
    replace(this.state, connectionLost(lost));
  }

  onUnkept() {
    replace(this.state, notKept());
    this.draw();
  }

  tick() {
    if (this.trace !== null && isRunning(this.trace)) this.view?.setNow(this.elapsed());
  }

  draw() {
    if (this.trace === null) return;
    this.view = new RunView(this.trace, {
      round: this.wanted.round,
      isOver: !isRunning(this.trace),
      signal: this.signal,
      load: (round, index, nested) =>
        get(stepAddress(this.id, round, index, nested), { signal: this.signal }),
      onRetried: (id) => this.navigate(`/runs/${id}`),
      onRound: (round) => this.look(`?round=${round}`, { round, index: null }),
      onStep: (round, index) => this.look(`?step=${round}.${index}`, { round, index }),
    });
    replace(this.body, this.view.elements);
    this.tick();
  }

  /**
   * Keep in the address what is looked at, so that a link shows it.
   * @param {string} search
   * @param {{round: number, index: number | null}} wanted
   */
  look(search, wanted) {
    this.wanted = wanted;
    this.navigate(location.pathname + search, { replace: true, quiet: true });
  }

  /** How long a run that goes on has been going on, in milliseconds. */
  elapsed() {
    return performance.now() - this.beganAt;
  }

  /** What is known of the run's own clock sets ours right: it may have waited and been resumed. */
  setClock() {
    const known = this.trace === null ? 0 : lastKnown(this.trace.rounds);
    if (known > this.elapsed()) this.beganAt = performance.now() - known;
  }
}

/**
 * Which round and step an address wants to see: `?step=0.3`, or `?round=1`; else the last round.
 * @param {URLSearchParams} query
 * @returns {{round: number, index: number | null}}
 */
function placeIn(query) {
  const step = /^(\d{1,4})\.(\d{1,5})$/.exec(query.get('step') ?? '');
  if (step) return { round: Number(step[1]), index: Number(step[2]) };
  const round = /^\d{1,4}$/.exec(query.get('round') ?? '');
  return { round: round ? Number(round[0]) : Infinity, index: null };
}

/**
 * @param {string} id
 * @param {number} round
 * @param {number} index
 * @param {string} [nested]
 */
function stepAddress(id, round, index, nested) {
  const of = nested ? `?nested=${encodeURIComponent(nested)}` : '';
  return `/v1/runs/${encodeURIComponent(id)}/steps/${round}/${index}${of}`;
}

/**
 * How far a run has come by its record, in milliseconds; one that was resumed has spent something.
 * @param {any} document
 */
function soFar(document) {
  const spent = document.budget.spent.seconds * 1000;
  if (spent > 0) return spent;
  return Math.max(0, Date.now() - Date.parse(document.created_at));
}
