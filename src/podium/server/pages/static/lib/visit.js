// A visit: what one reader does in one tab until they sign out. What pages keep with an address is
// marked with it, so that the way back shows nobody what somebody else was told.

const KEPT = 'visit';

/** The visit of this document, whatever happens to what is kept: whoever signs out meanwhile leaves
 * nothing behind that the next reader could come upon. */
export const visit = kept();

/** @returns {string} */
function kept() {
  const fresh = crypto.getRandomValues(new Uint32Array(4)).join('-');
  try {
    const known = sessionStorage.getItem(KEPT) ?? fresh;
    sessionStorage.setItem(KEPT, known);
    return known;
  } catch {
    return fresh; // Storage is closed to us: a visit lasts as long as this document.
  }
}

/** The next document begins another visit. */
export function endVisit() {
  try {
    sessionStorage.removeItem(KEPT);
  } catch {
    // Storage is closed to us: nothing was kept.
  }
  // A browser may bring back the document itself, as it was left.
  addEventListener('pageshow', () => location.reload());
}
