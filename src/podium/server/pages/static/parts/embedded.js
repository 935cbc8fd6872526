// The pool that Podium brings along, for who has named no worker: what to expect of it.

import { h } from '../lib/dom.js';

/** The one model behind all of its workers. */
const MODEL = 'smollm2-135m-instruct';

/** @typedef {{model: string, is_worker: boolean}} Worker What `GET /v1/pool` says of one. */

/**
 * A line about these workers, or null where there is nothing to say.
 * @param {Worker[]} workers
 * @returns {HTMLElement | null}
 */
export function smallness(workers) {
  const asked = workers.filter((worker) => worker.is_worker);
  if (!asked.length || asked.some(({ model }) => model !== MODEL)) return null;
  const words =
    'All workers of this pool are one tiny model that comes with Podium, and they are often ' +
    'wrong. Name models of your own, or give a vendor’s key, for answers to rely on.';
  return h('p', { class: 'quiet-text small-pool' }, words);
}
