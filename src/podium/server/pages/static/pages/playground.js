// Ask a question and watch how it is answered. What was asked stays with the address: a reload, or
// the way back from a run's page, shows it again, until the user signs out.

import { get } from '../lib/api.js';
import { h } from '../lib/dom.js';
import { empty, failure } from '../lib/states.js';
import { tabSession } from '../lib/tab-session.js';
import { Composer } from '../parts/composer.js';
import { smallness } from '../parts/embedded.js';
import { Exchange } from '../parts/exchange.js';

export const title = 'Playground';

const MOST_KEPT = 8;

/** In characters: a browser keeps little with an address, and may refuse to keep more. */
const LONGEST_KEPT = 100_000;
const SAVE_AFTER_MILLISECONDS = 250;
const TIERS = ['podium-mini', 'podium', 'podium-ultra'];
const LOCAL = 'llamacpp';
const PINNED = /^podium(-mini|-ultra)?@/;

/**
 * @param {HTMLElement} root
 * @param {{signal: AbortSignal}} context
 */
export async function show(root, { signal }) {
  const last = history.state?.playground;
  const kept = last?.tabSession === tabSession ? last : {};
  const page = new Playground(root, signal);
  page.restore(kept);
  await page.load();
}

class Playground {
  #signal;
  /** @type {string[]} */
  #workers = [];
  /** @type {Exchange[]} The newest first. */
  #exchanges = [];
  #list = h('div', { class: 'exchanges' });
  #composer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #saving;

  /**
   * @param {HTMLElement} root
   * @param {AbortSignal} signal
   */
  constructor(root, signal) {
    this.#signal = signal;
    this.#composer = new Composer({
      onAsk: () => this.#begin((exchange) => exchange.ask()),
      onPlan: () => this.#begin((exchange) => exchange.plan()),
      onChange: () => this.#saveSoon(),
    });
    this.#composer.element.addEventListener('focusout', () => this.#save());
    root.append(
      h('div', { class: 'page-head' }, h('h1', {}, title)),
      this.#composer.element,
      this.#list,
    );
    signal.addEventListener('abort', () => clearTimeout(this.#saving));
    document.addEventListener('signed-in', () => this.#composer.allow(), { signal });
    // Another place in this page is an address of its own, that has to keep the same.
    addEventListener('hashchange', () => this.#save(), { signal });
  }

  /** @param {{draft?: any, exchanges?: import('../parts/exchange.js').SavedExchange[]}} kept */
  restore({ draft, exchanges = [] }) {
    if (draft) this.#composer.draft = draft;
    for (const { asked, versions } of exchanges.toReversed()) {
      this.#add(asked).restore(versions);
    }
    if (!exchanges.length) this.#list.append(invitation());
    if (!exchanges.length) this.#composer.focus();
  }

  /** Ask the server what there is to choose from. */
  async load() {
    try {
      const { data } = await get('/v1/models', { signal: this.#signal });
      /** @type {string[]} */
      const names = data.map((/** @type {{id: string}} */ { id }) => id);
      this.#composer.offer(names);
      const workers = names.filter((name) => !TIERS.includes(name) && !PINNED.test(name));
      this.#workers.push(...workers);
      const areLocal = data.every(isLocalOrTier);
      if (workers.length && areLocal) await this.#tellOfSmallness();
    } catch (error) {
      if (this.#signal.aborted) return;
      const retry = () => {
        problem.remove();
        this.load();
      };
      const problem = failure(error, retry);
      this.#composer.element.after(problem);
    }
  }

  /** Every key may know that workers run here, but not which models they are. */
  async #tellOfSmallness() {
    const pool = await get('/v1/pool?days=1', { signal: this.#signal }).catch(() => null);
    const words = pool && smallness(pool.workers);
    if (words) this.#composer.element.after(words);
  }

  /** @param {(exchange: Exchange) => void} how */
  #begin(how) {
    const asked = this.#composer.read();
    if (asked === null) return;
    how(this.#add(asked));
    this.#save();
  }

  /** @param {import('../parts/exchange.js').Asked} asked */
  #add(asked) {
    const exchange = new Exchange(asked, {
      workers: this.#workers,
      signal: this.#signal,
      onChange: () => this.#save(),
    });
    if (!this.#exchanges.length) this.#list.replaceChildren();
    this.#exchanges.unshift(exchange);
    this.#list.prepend(exchange.element);
    return exchange;
  }

  #saveSoon() {
    clearTimeout(this.#saving);
    this.#saving = setTimeout(() => this.#save(), SAVE_AFTER_MILLISECONDS);
  }

  #save() {
    clearTimeout(this.#saving);
    if (this.#signal.aborted) return; // the address is another page's by now
    const { draft } = this.#composer;
    const exchanges = this.#exchanges.map((exchange) => exchange.saved).filter(isShort);
    const playground = {
      tabSession,
      draft: draft.question.length > LONGEST_KEPT ? { ...draft, question: '' } : draft,
      exchanges: exchanges.slice(0, MOST_KEPT),
    };
    history.replaceState({ ...history.state, playground }, '');
  }
}

/** @param {import('../parts/exchange.js').SavedExchange} exchange */
function isShort({ asked }) {
  return asked.question.length <= LONGEST_KEPT;
}

/** @param {{id: string, owned_by: string}} model */
function isLocalOrTier({ id, owned_by: owner }) {
  return TIERS.includes(id) || PINNED.test(id) || owner === LOCAL;
}

function invitation() {
  return empty(
    'Ask something, and watch who does what.',
    'The conductor writes a workflow, workers carry it out, and you see what each of them read.',
  );
}
