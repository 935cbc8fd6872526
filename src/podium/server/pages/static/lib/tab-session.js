// A tab session: one tab from sign-in to sign-out. State that pages keep in the history is marked
// with its id, so that "back" never shows one user what another user saw.

const STORAGE_KEY = 'tab-session';

/** The session of this document; it stays the same even if another tab signs out meanwhile. */
export const tabSession = loadOrCreate();

/** @returns {string} */
function loadOrCreate() {
  const fresh = crypto.getRandomValues(new Uint32Array(4)).join('-');
  try {
    const known = sessionStorage.getItem(STORAGE_KEY) ?? fresh;
    sessionStorage.setItem(STORAGE_KEY, known);
    return known;
  } catch {
    return fresh; // Storage is not available: the session lasts as long as this document.
  }
}

/** End the session: the next document starts another one. */
export function endTabSession() {
  try {
    sessionStorage.removeItem(STORAGE_KEY);
  } catch {
    // Storage is not available: nothing was stored.
  }
  // The browser may restore the document itself from its back/forward cache.
  addEventListener('pageshow', () => location.reload());
}
