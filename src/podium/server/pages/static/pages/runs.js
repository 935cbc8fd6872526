// The runs on record: looked for, looked through, and watched while they go on. What is looked for
// is in the address; older runs are on pages of their own, so that thousands cost no more than one
// page.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { empty, failure, loading } from '../lib/states.js';
import { connection } from '../parts/polling.js';
import { addressOf, filterForm, filtersIn, requestOf } from '../parts/run-filters.js';
import { runRows } from '../parts/run-rows.js';

export const title = 'Runs';

const PAGE = 50;
const TYPING_MILLISECONDS = 250;
const WATCH_MILLISECONDS = 2000;
const LOOK_MILLISECONDS = 10_000;

/**
 * @param {HTMLElement} root
 * @param {{query: URLSearchParams, signal: AbortSignal,
 *   navigate: (address: string, options?: {replace?: boolean, quiet?: boolean}) => void}} context
 */
export async function show(root, { query, signal, navigate }) {
  let filters = filtersIn(query);
  let before = query.get('before');
  let wasTyping = false;
  let typing = 0;
  let loadingNow = new AbortController();

  const rows = runRows();
  const line = connection();
  const news = h('div', { class: 'run-news', role: 'status' });
  const place = h('div', { class: 'run-place' }, loading('Loading runs…'));
  const pages = h('nav', { class: 'run-pages', 'aria-label': 'Pages of runs' });
  const formPlace = h('div');
  let form = filterForm(filters, { onChange: changed, onClear: clear });
  replace(formPlace, form.element);

  /** @param {Record<string, string>} wanted @param {{isTyping: boolean}} change */
  function changed(wanted, { isTyping }) {
    clearTimeout(typing);
    const apply = () => {
      filters = wanted;
      before = null;
      // All that is typed in one go is one step back in the history.
      navigate(addressOf(filters), { quiet: true, replace: isTyping && wasTyping });
      wasTyping = isTyping;
      load();
    };
    if (isTyping) typing = window.setTimeout(apply, TYPING_MILLISECONDS);
    else apply();
  }

  function clear() {
    changed({}, { isTyping: false });
    form = filterForm({}, { onChange: changed, onClear: clear });
    replace(formPlace, form.element);
  }

  async function load() {
    loadingNow.abort();
    loadingNow = new AbortController();
    const own = AbortSignal.any([signal, loadingNow.signal]);
    try {
      const found = await get(requestOf(filters, { limit: PAGE, before }), { signal: own });
      showFound(found);
    } catch (error) {
      if (own.aborted) return;
      replace(place, failure(error, load), h('div', { class: 'buttons run-clear' }, clearButton()));
      replace(pages);
    }
  }

  /** @param {{data: any[], has_more: boolean}} found */
  function showFound({ data, has_more: hasMore }) {
    replace(news);
    rows.show(data);
    if (data.length) {
      if (!rows.element.isConnected) replace(place, rows.element);
    } else replace(place, nothing());
    const oldest = data.at(-1)?.run_id;
    replace(
      pages,
      before ? h('a', { class: 'button', href: addressOf(filters) }, '← Newest') : null,
      hasMore ? h('a', { class: 'button', href: addressOf(filters, oldest), rel: 'next' }, 'Older runs →') : null,
    );
    suggest();
  }

  function nothing() {
    if (!Object.keys(filters).length && !before) {
      return empty('There are no runs yet.', h('span', {}, 'Ask something in the ', h('a', { href: '/' }, 'playground'), ', and it is kept here.'));
    }
    return [empty('No run matches.', 'Ask for less, or for all of them:'), h('div', { class: 'buttons run-clear' }, clearButton())];
  }

  function clearButton() {
    return h('button', { type: 'button', onclick: clear }, 'Show all runs');
  }

  /** @type {Set<string>} */
  const workers = new Set();
  function suggest() {
    const shown = rows.runs();
    for (const run of shown) for (const name of run.workers ?? []) workers.add(name);
    const owners = new Set(shown.map((run) => run.owner).filter(Boolean));
    form.suggest({ workers: [...workers].sort(), owners: [...owners].sort() });
  }

  /** Look again: rows that go on are updated in place, and what is new is announced. */
  async function lookAgain() {
    if (document.hidden || !rows.element.isConnected) return;
    const { data } = await get(requestOf(filters, { limit: PAGE, before }), { signal });
    const shown = new Map(rows.runs().map((run) => [run.run_id, run]));
    for (const run of data) rows.update(run);
    const listed = new Set(data.map((/** @type {any} */ run) => run.run_id));
    const slipped = [...shown.values()].filter((run) => run.status === 'running' && !listed.has(run.run_id));
    for (const run of slipped) await updateAlone(run);
    const fresh = before ? 0 : data.filter((/** @type {any} */ run) => !shown.has(run.run_id)).length;
    if (fresh && !news.childElementCount) replace(news, h('button', { type: 'button', class: 'small', onclick: load }, 'There are new runs: show them'));
  }

  /** One that no longer is among those looked for, or no longer on this page. @param {any} run */
  async function updateAlone(run) {
    const now = await get(`/v1/runs/${encodeURIComponent(run.run_id)}`, { signal });
    rows.update({
      ...run,
      status: now.status,
      answer: now.answer,
      cost_usd: now.cost_usd,
      total_tokens: now.usage.total_tokens,
      seconds: now.budget.spent.seconds,
    });
  }

  async function watch() {
    while (!signal.aborted) {
      const goesOn = rows.runs().some((run) => run.status === 'running');
      await pause(goesOn ? WATCH_MILLISECONDS : LOOK_MILLISECONDS, signal);
      if (signal.aborted) return;
      try {
        await lookAgain();
        line.tell(null);
      } catch (error) {
        if (!signal.aborted) line.tell(error);
      }
    }
  }

  replace(
    root,
    h('div', { class: 'page-head' }, h('h1', {}, title)),
    formPlace,
    line.element,
    news,
    place,
    pages,
  );
  document.addEventListener('keydown', searchBySlash, { signal });
  await load();
  watch();
}

/** @param {KeyboardEvent} event */
function searchBySlash(event) {
  const isTyping = event.target instanceof Element && event.target.closest('input, select, textarea');
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.getElementById('filter-text')?.focus();
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
