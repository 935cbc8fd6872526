// Following a run: its record, and while it goes on its events, to its end. Should the server go
// away meanwhile, it is tried again, at longer and longer intervals.

import { ApiError, get, stream } from '../lib/api.js';
import { goesOn } from './status.js';

const FIRST_WAIT_SECONDS = 1;
const LONGEST_WAIT_SECONDS = 20;
const RECORD_WAIT_SECONDS = 0.1;
const RECORD_TRIES = 10;

/**
 * @typedef {{
 *   onRecord: (document: any) => void,
 *   onEvent: (name: string, data: any) => void,
 *   onLost: (lost: {error: unknown, seconds: number, tryNow: () => void}) => void,
 *   onUnkept: () => void,
 * }} Follower
 * `onRecord`: the run as it is on record, at first, after every gap, and in the end; events that
 * come after it tell the run from its beginning. `onUnkept`: it ended, and nothing was kept of it.
 */

/**
 * Follow a run to its end. Throws what the server says where there is no such run.
 * @param {string} id
 * @param {AbortSignal} signal
 * @param {Follower} follower
 */
export async function follow(id, signal, follower) {
  const address = `/v1/runs/${encodeURIComponent(id)}`;
  const recorded = () => get(address, { signal });
  let document = await recorded();
  follower.onRecord(document);
  let wait = FIRST_WAIT_SECONDS;
  while (goesOn(document)) {
    try {
      for await (const { event, data } of stream(`${address}/events`, { signal })) {
        wait = FIRST_WAIT_SECONDS;
        const told = JSON.parse(data);
        follower.onEvent(event, told);
        if (told.run_id !== id) continue;
        if (event === 'run_done') return await conclude(recorded, signal, follower);
        if (event === 'run_lost') return follower.onRecord(await recorded());
      }
      throw new ApiError(0, 'The server ended the stream before the run was over.', '');
    } catch (error) {
      signal.throwIfAborted();
      if (!isPassing(error)) throw error;
      document = await foundAgain(error);
      follower.onRecord(document);
    }
  }

  /**
   * The record again, once the server answers.
   * @param {unknown} error What it last said, or did not.
   * @returns {Promise<any>}
   */
  async function foundAgain(error) {
    for (;;) {
      const lost = { error, seconds: wait };
      await pause(wait, signal, (tryNow) => follower.onLost({ ...lost, tryNow }));
      wait = Math.min(wait * 2, LONGEST_WAIT_SECONDS);
      try {
        return await recorded();
      } catch (again) {
        signal.throwIfAborted();
        if (!isPassing(again)) throw again;
        error = again;
      }
    }
  }
}

/**
 * The run as it was kept in the end. It is told that a run is over before that is written, so the
 * record may come a moment later.
 * @param {() => Promise<any>} recorded
 * @param {AbortSignal} signal
 * @param {Follower} follower
 */
async function conclude(recorded, signal, follower) {
  for (let tries = 0; tries < RECORD_TRIES; tries += 1) {
    if (tries > 0) await pause(RECORD_WAIT_SECONDS, signal, () => {});
    try {
      const document = await recorded();
      if (document.status === 'running') continue;
      follower.onRecord(document);
      return;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }
  follower.onUnkept();
}

/**
 * Whether another try may find things otherwise: nobody answered, or nobody could.
 * @param {unknown} error
 */
function isPassing(error) {
  return error instanceof ApiError && (error.status === 0 || error.status >= 500);
}

/**
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @param {(tryNow: () => void) => void} begin
 * @returns {Promise<void>}
 */
function pause(seconds, signal, begin) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
    begin(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
