// Follow a run to its end: its record, and its events while it runs. A run that waits for tool
// results is polled until they arrive. If the server is unreachable, retry with growing intervals.

import { ApiError, get, stream } from '../lib/api.js';
import { pause } from './pause.js';
import { isRunning } from './status.js';

const FIRST_WAIT_SECONDS = 1;
const LONGEST_WAIT_SECONDS = 20;
const LOOK_AGAIN_SECONDS = 3;
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
  const following = new Following(id, signal, follower);
  let document = await following.recorded(false);
  follower.onRecord(document);
  while (isRunning(document) || document.status === 'waiting') {
    try {
      document = isRunning(document) ? await following.ended() : await following.takenUp(document);
    } catch (error) {
      signal.throwIfAborted();
      if (!isPassing(error)) throw error;
      document = await following.foundAgain(error);
    }
    if (document === null) return follower.onUnkept();
    follower.onRecord(document);
  }
}

class Following {
  /**
   * @param {string} id
   * @param {AbortSignal} signal
   * @param {Follower} follower
   */
  constructor(id, signal, follower) {
    this.id = id;
    this.address = `/v1/runs/${encodeURIComponent(id)}`;
    this.signal = signal;
    this.follower = follower;
    this.wait = FIRST_WAIT_SECONDS;
  }

  /** @returns {Promise<any>} The run as it is on record. */
  recorded(inBackground = true) {
    return get(this.address, { signal: this.signal, inBackground });
  }

  /** @returns {Promise<any>} The record when the run is over; null where nothing was kept. */
  async ended() {
    const events = stream(`${this.address}/events`, { signal: this.signal, inBackground: true });
    for await (const { event, data } of events) {
      this.wait = FIRST_WAIT_SECONDS;
      const payload = JSON.parse(data);
      this.follower.onEvent(event, payload);
      if (payload.run_id !== this.id) continue;
      if (event === 'run_done') return this.settled();
      if (event === 'run_abandoned') return this.recorded();
    }
    throw new ApiError(0, 'The server ended the stream before the run was over.', '');
  }

  /**
   * The end of a run is streamed before it is stored, so its record may come a moment later.
   * @returns {Promise<any>}
   */
  async settled() {
    for (let tries = 0; tries < RECORD_TRIES; tries += 1) {
      if (tries > 0) await pause(RECORD_WAIT_SECONDS, this.signal);
      try {
        const document = await this.recorded();
        if (document.status !== 'running') return document;
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 404) throw error;
      }
    }
    return null;
  }

  /**
   * @param {any} before
   * @returns {Promise<any>} The record once the run waits no more, or for something else.
   */
  async takenUp(before) {
    const calls = JSON.stringify(before.waiting_for);
    for (;;) {
      await pause(LOOK_AGAIN_SECONDS, this.signal);
      const document = await this.recorded();
      if (document.status !== 'waiting' || JSON.stringify(document.waiting_for) !== calls) {
        return document;
      }
    }
  }

  /**
   * @param {unknown} error What the server last said, or did not.
   * @returns {Promise<any>} The record again, once the server answers.
   */
  async foundAgain(error) {
    for (;;) {
      const seconds = this.wait;
      await pause(seconds, this.signal, (tryNow) => {
        this.follower.onLost({ error, seconds, tryNow });
      });
      this.wait = Math.min(seconds * 2, LONGEST_WAIT_SECONDS);
      try {
        return await this.recorded();
      } catch (again) {
        this.signal.throwIfAborted();
        if (!isPassing(again)) throw again;
        error = again;
      }
    }
  }
}

/**
 * True if a retry may succeed: the server was unreachable or failed.
 * @param {unknown} error
 */
function isPassing(error) {
  return error instanceof ApiError && (error.status === 0 || error.status >= 500);
}
