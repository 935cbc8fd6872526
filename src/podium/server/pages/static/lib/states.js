// What is shown where there is nothing to show yet, nothing at all, or something went wrong.

import { h } from './dom.js';
import { signIn } from './session.js';

/**
 * Something is on its way.
 * @param {string} words
 * @returns {HTMLElement}
 */
export function loading(words) {
  return h(
    'div',
    { class: 'state state-loading', role: 'status' },
    h('span', { class: 'spinner', 'aria-hidden': 'true' }),
    h('p', { class: 'state-words' }, words),
  );
}

/**
 * There is nothing, and that is no fault.
 * @param {string} words
 * @param {string | Node} [hint] How to go on.
 * @returns {HTMLElement}
 */
export function empty(words, hint) {
  return h(
    'div',
    { class: 'state state-empty' },
    h('p', { class: 'state-words' }, words),
    hint ? h('p', { class: 'state-hint' }, hint) : null,
  );
}

/**
 * Something went wrong: what happened, and how to go on. A missing sign-in is not an error.
 * @param {unknown} error
 * @param {(() => void) | null} [retry]
 * @returns {HTMLElement}
 */
export function failure(error, retry) {
  const { message, hint, status } = /** @type {Failed} */ (error ?? {});
  if (status === 401 && retry) return signedOut(`${message}`, hint, retry);
  return h(
    'div',
    { class: 'state state-failure', role: 'alert' },
    h('p', { class: 'state-words' }, message || String(error)),
    hint ? h('p', { class: 'state-hint' }, hint) : null,
    h(
      'div',
      { class: 'buttons' },
      status === 404 && h('a', { class: 'button', href: '/' }, 'Go to the start page'),
      retry && status !== 404 && h('button', { type: 'button', onclick: () => retry() }, 'Try again'),
    ),
  );
}

/** @typedef {{message?: string, hint?: string, status?: number}} Failed */

/**
 * @param {string} words
 * @param {string | undefined} hint
 * @param {() => void} retry
 */
function signedOut(words, hint, retry) {
  const state = empty(words, hint);
  const onclick = async () => {
    if (await signIn()) retry();
  };
  state.append(h('button', { type: 'button', class: 'primary', onclick }, 'Sign in'));
  return state;
}
