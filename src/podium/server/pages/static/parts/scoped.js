// What a key may not do is not offered to it: the button is there, cannot be used, and says why.

import { may } from '../lib/session.js';

/** Why not, by what a button takes. */
const REASONS = Object.freeze({
  plan: 'This API key may not see plans.',
  workflow: 'This API key may not run its own workflow.',
  gateway: 'This API key may not call a worker by name.',
  'runs:delete': 'This API key may not delete runs.',
});

/**
 * @param {HTMLElement} button
 * @param {keyof typeof REASONS} scope
 * @returns {HTMLElement} The same button.
 */
export function scoped(button, scope) {
  const reason = deniedReason(scope);
  if (reason) {
    button.setAttribute('disabled', '');
    button.title = reason;
  }
  return button;
}

/**
 * @param {keyof typeof REASONS} scope
 * @returns {string} Why the signed-in key may not do that; empty if it may.
 */
export function deniedReason(scope) {
  return may(scope) ? '' : REASONS[scope];
}
