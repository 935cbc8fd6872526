// One run: what was asked, what was done, by whom, who saw what, and what it took. A run that goes
// on is followed to its end; what cannot be shown says why, and how to go on.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { loading } from '../lib/states.js';
import { follow } from '../parts/follow.js';
import { runHead } from '../parts/run-head.js';
import { runView } from '../parts/run-view.js';
import { goesOn, statusNotice } from '../parts/status.js';
import { beforeEvents, fromRecord, lastKnown, take } from '../parts/trace.js';

export const title = 'Run';

const TICK_MILLISECONDS = 250;

/**
 * @param {HTMLElement} root
 * @param {{params: Record<string, string>, query: URLSearchParams, signal: AbortSignal,
 *   navigate: (address: string, options?: {replace?: boolean, quiet?: boolean}) => void}} context
 */
export async function show(root, { params, query, signal, navigate }) {
  const head = h('div');
  const state = h('div', { class: 'run-state' });
  const body = h('div', { class: 'run-body' });
  replace(root, loading('Loading the run…'));

  /** @type {import('../parts/trace.js').Trace} */
  let trace;
  /** @type {ReturnType<typeof runView>} */
  let view;
  let wanted = placeIn(query);
  let beganAt = 0;

  /** @param {string} name @param {string | number} value */
  function keepInAddress(name, value) {
    const address = new URL(location.href);
    address.search = `?${name}=${value}`;
    navigate(address.pathname + address.search, { replace: true, quiet: true });
  }

  function draw() {
    view = runView(trace, {
      round: wanted.round,
      isOver: !goesOn(trace),
      signal,
      load: (round, index, nested) => get(stepAddress(params.id, round, index, nested), { signal }),
      onRound: (round) => {
        wanted = { round, index: null };
        keepInAddress('round', round);
      },
      onStep: (round, index) => {
        wanted = { round, index };
        keepInAddress('step', `${round}.${index}`);
      },
    });
    replace(body, view.element);
    view.setNow(elapsed());
  }

  /** How long a run that goes on has been going on, in milliseconds. */
  function elapsed() {
    return goesOn(trace) ? performance.now() - beganAt : 0;
  }

  /** What is known of the run's own clock sets ours right: it may have waited, and been resumed. */
  function setClock() {
    const known = lastKnown(trace.rounds);
    if (known > elapsed()) beganAt = performance.now() - known;
  }

  /** @param {any} document */
  function onRecord(document) {
    if (!head.isConnected) replace(root, head, state, body);
    // Events tell a run that goes on from its beginning, so nothing is shown twice.
    trace = goesOn(document) ? beforeEvents(document) : fromRecord(document);
    beganAt = performance.now() - soFar(document);
    replace(head, runHead(document, { onDeleted: () => navigate('/runs') }));
    replace(state, statusNotice(document));
    draw();
    if (!goesOn(document) && wanted.index !== null) view.open(wanted.round, wanted.index);
  }

  /** @param {string} name @param {any} data */
  function onEvent(name, data) {
    const { kind, round = 0, index = 0 } = take(trace, name, data);
    if (kind === 'step') setClock();
    if (kind === 'plan') {
      wanted = { round, index: null };
      draw();
    } else if (kind === 'step') view.step(round, index);
    else if (kind === 'words') view.words();
  }

  const tick = setInterval(() => {
    if (view && goesOn(trace)) view.setNow(elapsed());
  }, TICK_MILLISECONDS);
  signal.addEventListener('abort', () => clearInterval(tick));
  try {
    await follow(params.id, signal, {
      onRecord,
      onEvent,
      onLost: (lost) => replace(state, connectionLost(lost)),
      onUnkept: () => {
        replace(state, h('p', { class: 'notice', role: 'status' }, 'This run has ended, and nothing of it was kept, as whoever asked wished. What is shown here is gone when the page is left.'));
        draw();
      },
    });
  } catch (error) {
    if (signal.aborted) return;
    clearInterval(tick);
    replace(root, cannotBeShown(params.id, error, () => show(root, { params, query, signal, navigate })));
  }
}

/**
 * Which round and step an address wants to see: `?step=0.3`, or `?round=1`.
 * @param {URLSearchParams} query
 * @returns {{round: number, index: number | null}}
 */
function placeIn(query) {
  const step = /^(\d{1,4})\.(\d{1,5})$/.exec(query.get('step') ?? '');
  if (step) return { round: Number(step[1]), index: Number(step[2]) };
  const round = Number(query.get('round') ?? NaN);
  return { round: Number.isInteger(round) && round >= 0 ? round : Infinity, index: null };
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

/** @param {{error: unknown, seconds: number, tryNow: () => void}} lost */
function connectionLost({ error, seconds, tryNow }) {
  return h(
    'div',
    { class: 'notice bad', role: 'alert' },
    h('p', {}, h('strong', {}, 'The server went away while this run was being followed. '), /** @type {Error} */ (error).message),
    h('p', {}, `What is shown is how things stood then. It is tried again in ${Math.round(seconds)} s; is podium serve still running?`),
    h('button', { type: 'button', class: 'small', onclick: tryNow }, 'Try now'),
  );
}

/**
 * @param {string} id
 * @param {unknown} error
 * @param {() => void} retry
 */
function cannotBeShown(id, error, retry) {
  const { status = -1, message, hint } = /** @type {{status?: number, message: string, hint?: string}} */ (error);
  const isOtherVersion = /\bhas version\b/.test(message);
  const words =
    status === 404
      ? `There is no run ${id} here.`
      : isOtherVersion
        ? 'This run was written by another version of Podium.'
        : 'This run cannot be shown.';
  const onwards =
    status === 404
      ? 'It was deleted, nothing of it was kept, or it belongs to another key. Look for it among the runs, or sign in with the key that asked.'
      : isOtherVersion
        ? 'Upgrade Podium where the server runs, start it again, and try again.'
        : (hint ?? '');
  return h(
    'div',
    { class: 'state state-failure', role: 'alert' },
    h('h1', { class: 'state-words' }, words),
    status === 404 ? null : h('p', {}, message),
    h('p', { class: 'state-hint' }, onwards),
    h(
      'div',
      { class: 'buttons' },
      h('a', { class: 'button', href: '/runs' }, 'All runs'),
      h('button', { type: 'button', onclick: retry }, 'Try again'),
    ),
  );
}
