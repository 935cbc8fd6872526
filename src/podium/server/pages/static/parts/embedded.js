// The pool that Podium brings along, for who has named no worker: what to expect of it.

import { h } from '../lib/dom.js';

/** The models of the pools that come with Podium. */
const MODELS = ['qwen2.5-coder-1.5b-instruct', 'smollm2-135m-instruct'];

/** @typedef {{model: string, is_worker: boolean}} Worker What `GET /v1/pool` says of one. */

/**
 * A notice about these workers, or null where there is nothing to say.
 * @param {Worker[]} workers
 * @param {HTMLElement} [way] To better ones.
 * @returns {HTMLElement | null}
 */
export function smallness(workers, way) {
  const asked = workers.filter((worker) => worker.is_worker);
  if (!asked.length || asked.some(({ model }) => !MODELS.includes(model))) return null;
  const words = 'A small model on this machine answers here, and is often wrong. An API key or a larger model gives better answers.';
  return h('p', { class: 'notice small' }, words, way && ' ', way);
}
