// Asking a question and following the run that answers it.
//
// Two streams make what is seen: the answer itself, which keeps the run going and ends it when it
// is let go, and the events of the run, which say what is done meanwhile. Where the events cannot
// be had, the words of the answer still come.

import { ApiError, get, stream } from '../lib/api.js';

/**
 * Callbacks. `opened` gets the run's id, `happened` every event of the run, `said` each piece of
 * the answer, and `unseen` why the events cannot be had.
 * @typedef {{
 *   opened: (runId: string) => void,
 *   happened: (event: string, data: any) => void,
 *   said: (text: string) => void,
 *   unseen: (error: Error) => void,
 * }} Listener
 */

/** `run_abandoned`: the process that performed the run is gone. */
const LAST = new Set(['run_done', 'run_abandoned']);

const ENDINGS = new Set(['response.completed', 'response.incomplete', 'response.failed']);

/** A run that began in another process of the server may not be on record at once. */
const LOOKS = 5;
const LOOK_AGAIN_MILLISECONDS = 400;

const HINTS = /** @type {Record<string, string>} */ ({
  insufficient_quota: 'Raise the budget in the options, and ask again.',
  rate_limit_exceeded: 'Wait a moment, and ask again.',
  upstream_error: 'No worker could answer; the page Workers shows how they are.',
});

/**
 * Ask, and follow the run to its end. Rejects with what went wrong: an `ApiError` with status 0
 * where the server went away. `cancelled` lets go of the answer, which stops the run; its events
 * are followed to their end all the same. `signal` stops everything. `isRun`: a worker's own reply
 * has no events, and is on record once it is there.
 * @param {Record<string, unknown>} body
 * @param {Listener} listener
 * @param {{signal: AbortSignal, cancelled: AbortSignal, isRun: boolean,
 *   onHeaders: (headers: Headers) => void}} how
 */
export async function ask(body, listener, { signal, cancelled, isRun, onHeaders }) {
  /** @type {Promise<void> | null} */
  let watching = null;
  const begun = (/** @type {string} */ runId) => {
    listener.opened(runId);
    if (!isRun) return;
    watching = watch(runId, listener, { signal, looks: LOOKS }).catch((error) => {
      if (!signal.aborted) listener.unseen(error);
    });
  };
  try {
    const letGo = AbortSignal.any([signal, cancelled]);
    const id = await carried(body, begun, listener, { signal: letGo, onHeaders });
    if (!isRun && id) await watch(id, listener, { signal, looks: LOOKS }).catch(() => {});
  } catch (error) {
    if (signal.aborted || !cancelled.aborted) throw error;
  } finally {
    await watching;
  }
}

/**
 * Follow a run by its id, to its end: what has happened already, and what happens. `looks` is how
 * often it is looked for, should it not be there.
 * @param {string} runId
 * @param {Pick<Listener, 'happened'>} listener
 * @param {{signal: AbortSignal, looks?: number}} how
 */
export async function watch(runId, listener, { signal, looks = 1 }) {
  for (let look = 1; ; look += 1) {
    try {
      await watched(runId, listener, signal);
      return;
    } catch (error) {
      const mayCome = error instanceof ApiError && error.status === 404 && look < looks;
      if (!mayCome) throw error;
      await after(LOOK_AGAIN_MILLISECONDS, signal);
    }
  }
}

/**
 * Whether no answer came at all, or the connection broke off.
 * @param {unknown} error
 */
export function isGone(error) {
  return error instanceof ApiError && error.status === 0;
}

/**
 * @param {string} runId
 * @param {Pick<Listener, 'happened'>} listener
 * @param {AbortSignal} signal
 */
async function watched(runId, listener, signal) {
  const path = `/v1/runs/${encodeURIComponent(runId)}`;
  for await (const { event, data } of stream(`${path}/events`, { signal })) {
    const payload = JSON.parse(data);
    if (payload.run_id !== runId) continue; // of a run that is nested in a step of this one
    listener.happened(event, payload);
    if (LAST.has(event)) return;
  }
  const run = await get(path, { signal });
  if (run.status === 'running') throw brokenOff();
  listener.happened('run_done', run);
}

/**
 * @param {Record<string, unknown>} body
 * @param {(runId: string) => void} begun
 * @param {Listener} listener
 * @param {{signal: AbortSignal, onHeaders: (headers: Headers) => void}} how
 */
async function carried(body, begun, listener, { signal, onHeaders }) {
  // A summary of the reasoning is asked for because the stream then opens with the plan, and not
  // with the first word of the answer: the run's id is known as soon as there is something to see.
  const whole = { ...body, stream: true, reasoning: { summary: 'auto' } };
  let hasEnded = false;
  let id = '';
  for await (const { event, data } of stream('/v1/responses', { body: whole, signal, onHeaders })) {
    const payload = JSON.parse(data);
    if (event === 'response.created') {
      id = payload.response.id.replace(/^resp_/, 'run_');
      begun(id);
    } else if (event === 'response.output_text.delta') listener.said(payload.delta);
    else if (event === 'error') throw refusedInStream(payload);
    hasEnded ||= ENDINGS.has(event);
  }
  if (!hasEnded) throw brokenOff();
  return id;
}

/** @param {{code: string | null, message: string}} payload */
function refusedInStream({ code, message }) {
  return new ApiError(200, message, HINTS[code ?? ''] ?? 'Ask again.');
}

function brokenOff() {
  return new ApiError(0, 'The connection to the server broke off.', '');
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function after(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
