// Signing in with a key. The key is sent once, to be exchanged for a cookie that scripts cannot
// read; it is in no address, in no storage, and gone from here when the dialog closes.

import { h, replace } from './dom.js';
import { endTabSession } from './tab-session.js';

const SESSION = '/session';

/** @type {Promise<boolean> | null} */
let asking = null;

/**
 * `name` is that of the key, null while signed out; `scopes` is what the key may do.
 * @typedef {{keys: boolean, name: string | null, scopes: string[]}} Session
 */

/** @type {Session} As last received from the server. */
let known = { keys: false, name: null, scopes: [] };

/** True after "Not now": do not ask again until the user signs in. */
let isDeclined = false;

/**
 * Ask for a key in a dialog. Concurrent requests share one dialog.
 * @returns {Promise<boolean>} True if signed in now.
 */
export async function signIn() {
  asking ??= askedForKey().finally(() => {
    asking = null;
  });
  const signedIn = await asking;
  isDeclined = !signedIn;
  return signedIn;
}

/**
 * Ask for a key on behalf of something that takes one.
 * @param {AbortSignal | null} [signal]
 * @returns {Promise<boolean>} True if signed in now.
 */
export async function needKey(signal) {
  const signedIn = !isDeclined && (await signIn());
  signal?.throwIfAborted();
  return signedIn;
}

/** Sign out, and begin anew. */
export async function signOut() {
  await fetch(SESSION, { method: 'DELETE', credentials: 'same-origin' });
  endTabSession();
  location.assign('/');
}

/**
 * Return whether this server requires keys, and which key is signed in. If the server does not say,
 * assume that it requires none; otherwise requests fail with 401.
 * @returns {Promise<Session>}
 */
export async function session() {
  const response = await fetch(SESSION, { credentials: 'same-origin' }).catch(() => null);
  known = response?.ok ? await response.json() : { keys: false, name: null, scopes: [] };
  return known;
}

/**
 * True if the signed-in key has the scope, as last received; true while signed out.
 * @param {string} scope
 * @returns {boolean}
 */
export function may(scope) {
  const { keys, name, scopes } = known;
  return !keys || name === null || scopes.includes('admin') || scopes.includes(scope);
}

/** @returns {Promise<boolean>} */
function askedForKey() {
  return new Promise((resolve) => {
    const problem = h('p', { class: 'field-error', role: 'alert', id: 'key-problem' });
    const field = /** @type {HTMLInputElement} */ (
      h('input', {
        type: 'password',
        id: 'key',
        name: 'key',
        autocomplete: 'off',
        spellcheck: 'false',
        required: true,
        placeholder: 'pk_…',
        'aria-describedby': 'key-problem',
      })
    );
    let signedIn = false;
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      replace(problem);
      const refused = await exchanged(field.value.trim());
      if (refused === null) {
        signedIn = true;
        dialog.close();
      } else {
        replace(problem, refused);
        field.select();
      }
    };
    const dialog = /** @type {HTMLDialogElement} */ (
      h(
        'dialog',
        { class: 'sign-in', 'aria-labelledby': 'sign-in-title' },
        h(
          'form',
          { onsubmit: submit },
          h('h2', { id: 'sign-in-title' }, 'Sign in'),
          h(
            'p',
            { class: 'quiet-text' },
            known.name ? 'Your session has expired. Sign in again with your API key.' : 'API key required. An administrator creates one with: podium keys create NAME',
          ),
          h('label', { for: 'key' }, 'API key'),
          field,
          problem,
          h(
            'div',
            { class: 'buttons' },
            h('button', { type: 'submit', class: 'primary' }, 'Sign in'),
            h('button', { type: 'button', onclick: () => dialog.close() }, 'Not now'),
          ),
        ),
      )
    );
    dialog.addEventListener('close', () => {
      field.value = '';
      dialog.remove();
      if (signedIn) document.dispatchEvent(new Event('signed-in'));
      resolve(signedIn);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Exchange the key for the cookie.
 * @param {string} key
 * @returns {Promise<string | null>} Why it was refused, or null.
 */
async function exchanged(key) {
  try {
    const response = await fetch(SESSION, {
      method: 'POST',
      credentials: 'same-origin',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ key }),
    });
    if (response.ok) {
      known = await response.json();
      return null;
    }
    const document = await response.json().catch(() => null);
    return document?.error?.message ?? `The server answered ${response.status}.`;
  } catch {
    return 'The server cannot be reached. Is podium serve still running?';
  }
}
