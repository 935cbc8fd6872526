// The application: which address is which page, and what happens when one is left for another.

import { ApiError, get, unreachable } from './lib/api.js';
import { replace } from './lib/dom.js';
import { may, needKey, session, signIn, signOut } from './lib/session.js';
import { failure, loading } from './lib/states.js';
import { themeButton } from './lib/theme.js';

/**
 * @typedef {{title: string, show: (root: HTMLElement, context: Context) => Promise<void>}} Page
 * @typedef {{
 *   params: Record<string, string>,
 *   query: URLSearchParams,
 *   signal: AbortSignal,
 *   navigate: typeof navigate,
 * }} Context
 */

/** @type {[RegExp, () => Promise<Page>][]} */
const ROUTES = [
  [/^\/$/, () => import('./pages/chat.js')],
  [/^\/runs\/?$/, () => import('./pages/runs.js')],
  [/^\/runs\/compare\/?$/, () => import('./pages/compare.js')],
  [/^\/runs\/(?<id>[^/]+)\/?$/, () => import('./pages/run.js')],
  [/^\/pool\/?$/, () => import('./pages/pool.js')],
  [/^\/keys\/?$/, () => import('./pages/keys.js')],
  [/^\/spend\/?$/, () => import('./pages/spend.js')],
  [/^\/experiments(?:\/(?<rest>.*))?$/, () => import('./pages/experiments.js')],
  [/^\/docs\/?$/, () => import('./pages/docs.js')],
];

const main = /** @type {HTMLElement} */ (document.getElementById('page'));
const announcements = /** @type {HTMLElement} */ (document.getElementById('announcements'));

/** Stops whatever the page that is shown has going on. */
let leaving = new AbortController();

/** The current address, without its fragment. */
let shown = '';

/**
 * Go to an address of the application. `replace` leaves no trace of the address before; with
 * `quiet` only the address changes, and the page that is shown stays, for what it shows itself.
 * @param {string} address
 * @param {{replace?: boolean, quiet?: boolean}} [options]
 */
function navigate(address, { replace: instead = false, quiet = false } = {}) {
  keepPlace();
  if (instead) history.replaceState({}, '', address);
  else history.pushState({}, '', address);
  shown = address.replace(/#.*/s, '');
  if (!quiet) show({ arrived: true, top: 0 });
}

/** Save the scroll position, for navigation back to the page. */
function keepPlace() {
  history.replaceState({ ...history.state, top: scrollY }, '');
}

/** @param {string} path */
function found(path) {
  for (const [pattern, load] of ROUTES) {
    const match = pattern.exec(path);
    if (match) return { load, groups: match.groups ?? {} };
  }
  return null;
}

/**
 * Show the page of the present address.
 * @param {{arrived: boolean, top: number}} how `arrived`: from another page, so that
 *   screen readers announce this one.
 */
async function show({ arrived, top }) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const route = found(location.pathname);
  shown = location.pathname + location.search;
  markCurrent();
  const root = document.createElement('div');
  root.className = 'page';
  replace(main, loading('Loading…'));
  try {
    if (route === null) throw new ApiError(404, `Page not found: ${location.pathname}`, 'Check the address, or start from one of the pages above.');
    const page = await route.load().catch(notLoaded);
    if (signal.aborted) return;
    replace(main, root);
    document.title = `${page.title} · Podium`;
    if (arrived) {
      main.focus({ preventScroll: true });
      scrollTo(0, top);
      replace(announcements, page.title);
    }
    const params = Object.fromEntries(
      Object.entries(route.groups).map(([name, value]) => [name, decoded(value ?? '')]),
    );
    const query = new URLSearchParams(location.search);
    await page.show(root, { params, query, signal, navigate });
    if (signal.aborted) return;
    if (arrived && top > 0) scrollTo(0, top);
    else document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    if (signal.aborted) return;
    const again = error === unloaded ? loadAnew : () => show({ arrived: true, top: 0 });
    replace(main, failure(error, route === null ? null : again));
  }
}

const unloaded = unreachable('The server cannot be reached.');

/**
 * @param {unknown} error
 * @returns {never}
 */
function notLoaded(error) {
  throw error instanceof TypeError ? unloaded : error;
}

/** A browser may remember that a module could not be had; only a document loaded anew asks again,
 * and without a server there would be none. */
async function loadAnew() {
  try {
    await get('/session');
    location.reload();
  } catch (error) {
    replace(main, failure(error, loadAnew));
  }
}

/** @param {string} value */
function decoded(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

function markCurrent() {
  for (const link of document.querySelectorAll('header a[href]')) {
    const path = /** @type {HTMLAnchorElement} */ (link).pathname;
    const here = path === '/' ? location.pathname === '/' : location.pathname.startsWith(path);
    if (here && !link.classList.contains('brand')) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

document.addEventListener('click', (event) => {
  const link = event.target instanceof Element ? event.target.closest('a[href]') : null;
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
  const onlyPlace = link.hash && link.pathname + link.search === shown;
  if (onlyPlace) keepPlace();
  if (onlyPlace || !found(link.pathname)) return;
  event.preventDefault();
  navigate(link.pathname + link.search + link.hash);
});

addEventListener('popstate', () => {
  const top = history.state?.top;
  if (location.pathname + location.search !== shown) show({ arrived: true, top: top ?? 0 });
  else if (top !== undefined) scrollTo(0, top); // another fragment of the current page
});
history.scrollRestoration = 'manual';

const signOutButton = /** @type {HTMLButtonElement} */ (document.getElementById('sign-out'));
signOutButton.addEventListener('click', () => signOut());

const signInButton = /** @type {HTMLButtonElement} */ (document.getElementById('sign-in'));
signInButton.addEventListener('click', async () => {
  if (await signIn()) show({ arrived: false, top: 0 });
});

const signedIn = /** @type {HTMLElement} */ (document.getElementById('signed-in'));

/** Show the signed-in key; ask for one if the server requires it. */
async function meet() {
  const { keys, name } = await session();
  signInButton.hidden = !keys || name !== null;
  signOutButton.hidden = signedIn.hidden = !keys || name === null;
  signedIn.title = name ? `Signed in with the key ${name}` : '';
  replace(signedIn, name);
  for (const link of document.querySelectorAll('nav a[data-takes]')) {
    const { dataset } = /** @type {HTMLElement} */ (link);
    /** @type {HTMLElement} */ (link).hidden = !may(dataset.takes ?? '');
  }
  if (keys && name === null) await needKey();
}

document.addEventListener('signed-in', () => meet());
themeButton(/** @type {HTMLButtonElement} */ (document.getElementById('theme')));
await meet(); // before a page asks for anything that takes a key
show({ arrived: false, top: 0 });
