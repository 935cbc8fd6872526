// How to go on: the buttons and notices below a version that has ended, or could not.

import { h, replace } from '../lib/dom.js';
import { isGone } from './asking.js';

/**
 * @param {string} words
 * @param {() => void} onclick
 * @param {string} [kind]
 * @returns {HTMLElement}
 */
export function button(words, onclick, kind) {
  return h('button', { type: 'button', class: kind, onclick: () => onclick() }, words);
}

/**
 * A button that can be used once so many seconds are over, and says how many are left.
 * @param {string} words
 * @param {number} seconds
 * @param {() => void} onclick
 * @param {AbortSignal} signal
 * @returns {HTMLElement}
 */
export function retryButton(words, seconds, onclick, signal) {
  const made = /** @type {HTMLButtonElement} */ (button(words, onclick));
  if (!(seconds > 0)) return made;
  const until = performance.now() + seconds * 1000;
  const count = () => {
    const left = Math.ceil((until - performance.now()) / 1000);
    made.disabled = left > 0;
    replace(made, left > 0 ? `${words} in ${left} s` : words);
    if (left <= 0) clearInterval(counting);
  };
  const counting = setInterval(count, 250);
  signal.addEventListener('abort', () => clearInterval(counting));
  count();
  return made;
}

/**
 * @param {string} runId
 * @returns {HTMLElement}
 */
export function runLink(runId) {
  const address = `/runs/${encodeURIComponent(runId)}`;
  return h('a', { class: 'button small', href: address }, 'Open the run');
}

/**
 * The server went away.
 * @param {string | null} runId
 * @returns {HTMLElement}
 */
export function lostNotice(runId) {
  const kept = runId
    ? ` What was done until then is kept as ${runId}: watch it once the server is back.`
    : ' Is podium serve still running? Then ask again.';
  return h(
    'div',
    { class: 'notice bad', role: 'alert' },
    h('p', {}, 'The connection to the server was lost before there was an answer.', kept),
  );
}

/**
 * It was stopped before the server had said which run it is.
 * @returns {HTMLElement}
 */
export function stoppedNotice() {
  const runs = h('a', { href: '/runs' }, 'the runs');
  return h('p', { class: 'notice' }, 'What was begun until then, if anything, is among ', runs, '.');
}

/**
 * The answer comes, and what is done for it cannot be seen.
 * @param {Error} error
 * @returns {HTMLElement}
 */
export function unseenNotice(error) {
  const words = isGone(error)
    ? 'The connection to the server was lost before the run ended: the rest of the plan, the steps ' +
      'and the cost are stored with the run.'
    : `What is done meanwhile cannot be shown: ${error.message}`;
  return h('p', { class: 'notice' }, words);
}

/**
 * The server, or a worker, said no.
 * @param {unknown} error
 * @returns {HTMLElement}
 */
export function refusedNotice(error) {
  const { message, hint } = /** @type {{message?: string, hint?: string}} */ (error);
  return h(
    'div',
    { class: 'notice bad', role: 'alert' },
    h('p', {}, message ?? String(error)),
    hint && h('p', { class: 'quiet-text' }, hint),
  );
}
