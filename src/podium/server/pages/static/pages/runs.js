// The runs on record: looked for, looked through, and watched while they go on. What is looked for
// is in the address; older runs are on pages of their own, so that thousands cost no more than one
// page.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { download } from '../lib/download.js';
import { session } from '../lib/session.js';
import { empty, failure, loading } from '../lib/states.js';
import { pause } from '../parts/pause.js';
import { connection } from '../parts/polling.js';
import { addressOf, filterForm, filtersIn, meant, requestOf } from '../parts/run-filters.js';
import { runRows } from '../parts/run-rows.js';
import { isLikelyRunning } from '../parts/status.js';

export const title = 'Runs';

const PAGE = 50;
const TYPING_MILLISECONDS = 250;
const WATCH_SECONDS = 2;
const LOOK_SECONDS = 10;

/**
 * @typedef {{query: URLSearchParams, signal: AbortSignal,
 *   navigate: (address: string, options?: {replace?: boolean, quiet?: boolean}) => void}} Context
 * @typedef {{data: any[], has_more: boolean}} Found
 */

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function show(root, context) {
  const list = new RunList(context);
  replace(root, list.elements);
  document.addEventListener('keydown', searchBySlash, { signal: context.signal });
  const learned = list.learnKeys();
  if (list.filters.owner) await learned; // it may be a name
  await list.load();
  list.watch();
}

class RunList {
  /** @param {Context} context */
  constructor({ query, signal, navigate }) {
    this.signal = signal;
    this.navigate = navigate;
    this.filters = filtersIn(query);
    this.before = query.get('before');
    this.wasTyping = false;
    this.typing = 0;
    this.loading = new AbortController();
    /** @type {Set<string>} */
    this.workers = new Set();
    /** @type {Map<string, string>} The names of keys by their ids. */
    this.owners = new Map();
    this.rows = runRows((selected) => this.offer(selected));
    this.selection = h('div', { class: 'run-selection', role: 'group', 'aria-label': 'Selected runs' });
    this.selection.hidden = true;
    this.connection = connection();
    this.news = h('div', { class: 'run-news', role: 'status' });
    this.place = h('div', { class: 'run-place' }, loading('Loading runs…'));
    this.pages = h('nav', { class: 'run-pages', 'aria-label': 'Pages of runs' });
    this.formPlace = h('div');
    this.form = this.newForm();
  }

  get elements() {
    const head = h('div', { class: 'page-head' }, h('h1', {}, title));
    const { connection: trouble, news, place, pages, selection } = this;
    return [head, this.formPlace, trouble.element, news, place, pages, selection];
  }

  /** Load the names of the keys whose runs are visible; without them, the user may type an id. */
  async learnKeys() {
    const options = { signal: this.signal, inBackground: true };
    const { data } = await get('/v1/keys', options).catch(() => ({ data: [] }));
    for (const { id, name } of data) this.owners.set(id, name);
    this.suggest();
  }

  newForm() {
    const form = filterForm(this.filters, {
      onChange: (filters, { isTyping }) => this.change(filters, isTyping),
      onClear: () => this.clear(),
    });
    replace(this.formPlace, form.element);
    return form;
  }

  /**
   * Somebody wants to see other runs.
   * @param {Record<string, string>} filters
   * @param {boolean} isTyping
   */
  change(filters, isTyping) {
    clearTimeout(this.typing);
    const apply = () => {
      this.filters = filters;
      this.before = null;
      // All that is typed in one go is one step back in the history.
      const isSameGo = isTyping && this.wasTyping;
      this.navigate(addressOf(filters), { quiet: true, replace: isSameGo });
      this.wasTyping = isTyping;
      this.load();
    };
    if (isTyping) this.typing = window.setTimeout(apply, TYPING_MILLISECONDS);
    else apply();
  }

  clear() {
    this.change({}, false);
    this.form = this.newForm();
  }

  /** Ends when the page is left, or others are looked for. */
  get signalOfThese() {
    return AbortSignal.any([this.signal, this.loading.signal]);
  }

  /**
   * @param {AbortSignal} signal
   * @param {boolean} [inBackground]
   * @returns {Promise<Found>}
   */
  found(signal, inBackground) {
    const filters = meant(this.filters, this);
    return get(requestOf(filters, { limit: PAGE, before: this.before }), { signal, inBackground });
  }

  async load() {
    this.loading.abort();
    this.loading = new AbortController();
    const signal = this.signalOfThese;
    try {
      await this.showFound(await this.found(signal), signal);
    } catch (error) {
      if (signal.aborted) return;
      replace(this.place, failure(error, () => this.load()), this.clearing());
      replace(this.pages);
    }
  }

  /** @param {Found} found @param {AbortSignal} signal */
  async showFound({ data, has_more: hasMore }, signal) {
    const nothing = data.length ? null : await this.nothing();
    signal.throwIfAborted();
    replace(this.news);
    this.rows.show(data);
    if (nothing) replace(this.place, nothing);
    else if (!this.rows.element.isConnected) replace(this.place, this.rows.element);
    const older = addressOf(this.filters, data.at(-1)?.run_id);
    replace(
      this.pages,
      this.before ? h('a', { class: 'button', href: addressOf(this.filters) }, '← Newest') : null,
      hasMore ? h('a', { class: 'button', href: older, rel: 'next' }, 'Older runs →') : null,
    );
    this.suggest();
  }

  async nothing() {
    if (Object.keys(this.filters).length || this.before) {
      const { worker, owner } = this.filters;
      const whole = worker || owner ? 'Give the whole name of a worker, and the id of a key. ' : '';
      const hint = `${whole}Search for other words, remove a filter, or show all runs:`;
      return [empty('No run matches.', hint), this.clearing()];
    }
    const chat = h('a', { href: '/' }, 'chat');
    const hint = h('span', {}, 'Ask something in the ', chat, ', and it is kept here.');
    const { keys, name, scopes } = await session();
    const isOwnAlone = keys && !scopes.includes('admin');
    return empty(isOwnAlone ? `None was asked with the key ${name}.` : 'There are no runs yet.', hint);
  }

  /**
   * What can be done with the runs that are selected.
   * @param {string[]} selected
   */
  offer(selected) {
    this.selection.hidden = selected.length === 0;
    const [first, second] = selected;
    const isPair = selected.length === 2;
    const address = `/runs/compare?run=${first}&run=${second}`;
    const problem = h('p', { class: 'field-error', role: 'alert' });
    const save = async () => {
      replace(problem);
      try {
        const address = (/** @type {string} */ id) => `/v1/runs/${encodeURIComponent(id)}/export`;
        const runs = await Promise.all(selected.map((id) => get(address(id), { signal: this.signal })));
        download('runs.json', JSON.stringify(runs, null, 1), 'application/json');
      } catch (error) {
        replace(problem, /** @type {Error} */ (error).message);
      }
    };
    const compare = h(
      'button',
      {
        type: 'button',
        class: 'primary small',
        disabled: !isPair,
        title: isPair ? null : 'Select two runs to compare them',
        onclick: () => this.navigate(address),
      },
      'Compare',
    );
    replace(
      this.selection,
      h('span', { role: 'status' }, `${selected.length} selected`),
      compare,
      h('button', { type: 'button', class: 'small', onclick: save }, 'Export as JSON'),
      h('button', { type: 'button', class: 'small', onclick: () => this.rows.unselect() }, 'Clear selection'),
      problem,
    );
  }

  clearing() {
    const button = h('button', { type: 'button', onclick: () => this.clear() }, 'Show all runs');
    return h('div', { class: 'buttons run-clear' }, button);
  }

  /** Offer what is known of workers and keys to who fills in the fields. */
  suggest() {
    const shown = this.rows.runs();
    for (const run of shown) for (const name of run.workers) this.workers.add(name);
    for (const run of shown) if (run.owner) this.owners.set(run.owner, run.owner_name ?? '');
    this.form.suggest({ workers: [...this.workers].sort(), owners: this.owners });
  }

  /** Look again and again, more often while something goes on. */
  async watch() {
    for (;;) {
      const hasRunning = this.rows.runs().some(isLikelyRunning);
      await pause(hasRunning ? WATCH_SECONDS : LOOK_SECONDS, this.signal);
      if (this.signal.aborted) return;
      const signal = this.signalOfThese;
      try {
        await this.lookAgain(signal);
        this.connection.tell(null);
      } catch (error) {
        if (!signal.aborted) this.connection.tell(error);
      }
    }
  }

  /**
   * Rows that go on are updated in place, and what is new is announced.
   * @param {AbortSignal} signal
   */
  async lookAgain(signal) {
    if (document.hidden || !this.rows.element.isConnected) return;
    const { data } = await this.found(signal, true);
    const shown = this.rows.runs();
    for (const run of data) this.rows.update(run);
    const listed = new Set(data.map((run) => run.run_id));
    for (const run of shown) {
      if (isLikelyRunning(run) && !listed.has(run.run_id)) await this.updateAlone(run, signal);
    }
    const known = new Set(shown.map((run) => run.run_id));
    if (this.before || this.news.childElementCount) return;
    if (data.every((run) => known.has(run.run_id))) return;
    const onclick = () => this.load();
    const words = 'There are new runs: show them';
    replace(this.news, h('button', { type: 'button', class: 'small', onclick }, words));
  }

  /**
   * Update a run that is no longer among those looked for, or no longer on this page.
   * @param {any} run
   * @param {AbortSignal} signal
   */
  async updateAlone(run, signal) {
    const address = `/v1/runs/${encodeURIComponent(run.run_id)}`;
    const now = await get(address, { signal, inBackground: true });
    this.rows.update({
      ...run,
      status: now.status,
      answer: now.answer,
      cost_usd: now.cost_usd,
      total_tokens: now.usage.total_tokens,
      seconds: now.budget.spent.seconds,
    });
  }
}

/** @param {KeyboardEvent} event */
function searchBySlash(event) {
  const { target } = event;
  const isTyping = target instanceof Element && target.closest('input, select, textarea');
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.getElementById('filter-text')?.focus();
}
