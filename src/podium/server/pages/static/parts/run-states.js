// What a run's page says where it cannot show the run, or not any longer, and how to go on.

import { h } from '../lib/dom.js';
import { failure } from '../lib/states.js';

/**
 * The server went away in the middle of a run.
 * @param {{error: unknown, seconds: number, tryNow: () => void}} lost
 * @returns {HTMLElement}
 */
export function connectionLost({ error, seconds, tryNow }) {
  const { message } = /** @type {Error} */ (error);
  const again = `It is tried again in ${Math.round(seconds)} s; is podium serve still running?`;
  return h(
    'div',
    { class: 'notice bad run-notice', role: 'alert' },
    h('p', {}, h('strong', {}, 'The connection to the server was lost during this run. '), message),
    h('p', {}, `What is shown is how things stood then. ${again}`),
    h('p', {}, h('button', { type: 'button', class: 'small', onclick: tryNow }, 'Try now')),
  );
}

/**
 * The run has ended, and is not on record.
 * @returns {HTMLElement}
 */
export function notKept() {
  return h(
    'div',
    { class: 'notice run-notice', role: 'status' },
    h('p', {}, 'This run has ended and was not stored, as its client requested.'),
    h('p', {}, 'Leave this page, and it is gone.'),
  );
}

/**
 * There is no run to show.
 * @param {string} id
 * @param {unknown} error
 * @param {{keys: boolean, retry: () => void}} how `keys`: whether this server asks for any.
 * @returns {HTMLElement}
 */
export function cannotBeShown(id, error, { keys, retry }) {
  const reason = /** @type {Reason} */ (error);
  if (reason.status === 401) return failure(error, retry);
  const { words, detail, onwards } = reasons(id, reason, keys);
  return h(
    'div',
    { class: 'state state-failure', role: 'alert' },
    h('h1', { class: 'state-words' }, words),
    detail ? h('p', {}, detail) : null,
    h('p', { class: 'state-hint' }, onwards),
    h(
      'div',
      { class: 'buttons' },
      h('a', { class: 'button', href: '/runs' }, 'All runs'),
      reason.status !== 404 && h('button', { type: 'button', onclick: retry }, 'Try again'),
    ),
  );
}

/** @typedef {{status?: number, message: string, hint?: string}} Reason */

/**
 * @param {string} id
 * @param {Reason} reason
 * @param {boolean} keys
 */
function reasons(id, { status, message, hint }, keys) {
  if (status === 404 && !keys) {
    return {
      words: `Run not found: ${id}`,
      detail: 'It was deleted, not stored, or the address is incomplete.',
      onwards: 'Look for it among the runs.',
    };
  }
  if (status === 404) {
    return {
      words: `Run not found: ${id}`,
      detail: 'It was deleted, not stored, or belongs to another key.',
      onwards: 'Look for it among the runs, or sign in with the key that asked.',
    };
  }
  if (/\bthis run has version\b/.test(message)) {
    return {
      words: 'This run was written by another version of Podium.',
      detail: message,
      onwards: 'Upgrade Podium where the server runs, start it again, and try again.',
    };
  }
  return { words: 'This run cannot be shown.', detail: message, onwards: hint ?? '' };
}
