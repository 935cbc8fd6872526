// Conversations with the pool: written here, kept on the server for the key. Messages form a tree:
// an edited message and a regenerated answer begin a branch, and the page shows one path.

import { get, put, unreachable } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { shorten } from '../lib/format.js';
import { failure } from '../lib/states.js';
import { tabSession } from '../lib/tab-session.js';
import { messageItem } from '../parts/attachments.js';
import { ChatList, deleteChat, exportChat, shareChat } from '../parts/chat-list.js';
import { Composer, isTier } from '../parts/composer.js';
import { smallness } from '../parts/embedded.js';
import { button } from '../parts/ways.js';

export const title = 'Chat';

const SAVE_AFTER_MILLISECONDS = 250;
const LONGEST_TITLE = 80;
const LONGEST_DRAFT = 100_000;
const NEAR_END = 160;
const ENDING_MILLISECONDS = 1000;
const LOCAL = 'llamacpp';
const NEW = 'New chat';

const EXAMPLES = [
  ['Compare', 'Compare tea and coffee on taste, caffeine and cost, then recommend one for a long evening.'],
  ['Compute', 'A train leaves at 14:35 and arrives at 17:10. How long is the journey, and at 120 km/h how far?'],
  ['Code', 'Write a Python function that checks whether a text is a palindrome, ignoring case and spaces.'],
  ['Explain', 'Explain Euclid’s proof that there are infinitely many primes, with the formula.'],
];

/** Turns are loaded with the first one: most of the code is for them. */
const loadTurns = async () => {
  const { Turn, newId } = await import('../parts/turn.js');
  return { Turn, newId };
};

/**
 * @typedef {import('../parts/turn.js').Turn} Turn
 * @typedef {{query: URLSearchParams, signal: AbortSignal,
 *   navigate: (address: string, options?: {replace?: boolean, quiet?: boolean}) => void}} Context
 */

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function show(root, context) {
  const chat = context.query.get('chat') ?? '';
  const shared = context.query.get('shared') ?? '';
  const run = context.query.get('run') ?? '';
  const page = new Chat(root, context, { id: chat, isReadOnly: shared !== '' });
  const path = shared ? `shared/${encodeURIComponent(shared)}` : encodeURIComponent(chat);
  if (shared || chat) {
    await page.restore(await get(`/v1/chats/${path}`, { signal: context.signal }));
  } else if (run) {
    const kept = await get(`/v1/runs/${encodeURIComponent(run)}/export`, { signal: context.signal });
    const { asChat } = await import('../parts/from-run.js');
    await page.restore(asChat(kept));
  } else page.invite();
  await page.load();
}

class Chat {
  #context;
  #signal;
  #id;
  #isReadOnly;
  /** @type {Awaited<ReturnType<typeof loadTurns>> | null} */
  #parts = null;
  #title = '';
  /** @type {string[]} */
  #workers = [];
  /** @type {Turn[]} Of all branches. */
  #turns = [];
  /** @type {Map<string | null, Turn>} The message that is shown after a version, of several. */
  #chosen = new Map();
  /** @type {Turn[]} The turns that are shown. */
  #path = [];
  /** @type {Set<AbortController>} What is going on. */
  #busy = new Set();
  #endedAt = -Infinity;
  #isAtEnd = true;
  #heading = h('h1', {}, NEW);
  #ways = h('div', { class: 'buttons chat-ways' });
  #notice = h('div', { class: 'chat-notice' });
  #list = h('div', { class: 'turns' });
  #chats;
  #composer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #saving;

  /**
   * @param {HTMLElement} root
   * @param {Context} context
   * @param {{id: string, isReadOnly: boolean}} which
   */
  constructor(root, context, { id, isReadOnly }) {
    this.#context = context;
    const { signal } = context;
    this.#signal = signal;
    this.#id = id;
    this.#isReadOnly = isReadOnly;
    this.#chats = new ChatList(signal);
    this.#chats.current = id;
    this.#composer = new Composer({
      onSend: () => this.#begin((turn) => turn.ask()),
      onPlan: () => this.#begin((turn) => turn.plan()),
      onStop: () => this.#busy.forEach((letGo) => letGo.abort()),
      onChange: () => {
        loadTurns().catch(() => {}); // they are wanted soon
        this.#keepDraft();
      },
    });
    this.#composer.element.hidden = isReadOnly;
    root.classList.add('chat');
    root.append(
      this.#chats.element,
      h(
        'div',
        { class: 'chat-main' },
        h('div', { class: 'chat-head' }, this.#heading, this.#ways),
        this.#list,
        this.#notice,
        this.#composer.element,
      ),
    );
    const sized = new ResizeObserver(() => {
      // What ends an answer, its figures and buttons, is drawn when it is no longer busy.
      const isEnding = performance.now() - this.#endedAt < ENDING_MILLISECONDS;
      if (this.#isAtEnd && (this.#busy.size || isEnding)) this.#scrollToEnd();
    });
    sized.observe(this.#list);
    let before = 0;
    const place = () => {
      const isNear = document.documentElement.scrollHeight - innerHeight - scrollY < NEAR_END;
      // What grows below the window leaves the end, too; only the reader scrolls up.
      if (isNear || scrollY < before) this.#isAtEnd = isNear;
      before = scrollY;
    };
    addEventListener('scroll', place, { signal, passive: true });
    signal.addEventListener('abort', () => {
      this.#flush();
      sized.disconnect();
    });
    addEventListener('pagehide', () => this.#flush(), { signal });
    document.addEventListener('signed-in', () => this.#composer.allow(), { signal });
  }

  /** A new conversation: what could be asked. */
  invite() {
    const example = (/** @type {string[]} */ [name, words]) =>
      h(
        'button',
        {
          type: 'button',
          class: 'chat-example',
          onclick: () => {
            this.#composer.question = words;
            this.#composer.focus();
          },
        },
        h('strong', {}, name),
        h('span', {}, words),
      );
    replace(
      this.#list,
      h(
        'div',
        { class: 'invitation' },
        h('p', { class: 'lead' }, 'The conductor plans, workers answer, and you see what each of them did.'),
        h('div', { class: 'chat-examples' }, EXAMPLES.map(example)),
      ),
    );
    const kept = history.state?.draft;
    if (kept?.tabSession === tabSession) this.#composer.question = kept.question;
    if (kept?.tabSession === tabSession) this.#composer.settings = kept.settings;
    this.#composer.focus();
  }

  /** @param {{id: string | null, title: string, turns: any[], settings: any}} kept */
  async restore({ title: words, turns, settings }) {
    this.#parts = await loadTurns();
    this.#title = words;
    for (const turn of turns) this.#add(turn).restore(turn);
    for (const [after, id] of settings.chosen ?? []) {
      const turn = this.#turns.find(({ asked }) => asked.id === id);
      if (turn) this.#chosen.set(after, turn);
    }
    const kept = history.state?.draft;
    if (kept?.tabSession === tabSession) this.#composer.question = kept.question;
    this.#composer.settings = settings;
    this.#draw();
  }

  /** Ask the server what there is to choose from. */
  async load() {
    this.#chats.load();
    try {
      const { data } = await get('/v1/models', { signal: this.#signal });
      /** @type {string[]} */
      const names = data.map((/** @type {{id: string}} */ { id }) => id);
      this.#composer.offer(names);
      this.#workers.push(...names.filter((name) => !isTier(name)));
      const areLocal = data.every(
        (/** @type {any} */ { id, owned_by: owner }) => isTier(id) || owner === LOCAL,
      );
      if (this.#workers.length && areLocal) await this.#tellOfSmallness();
    } catch (error) {
      if (this.#signal.aborted) return;
      replace(this.#notice, failure(error, () => this.load()));
    }
  }

  /** Every key may know that workers run here, but not which models they are. */
  async #tellOfSmallness() {
    const pool = await get('/v1/pool?days=1', { signal: this.#signal }).catch(() => null);
    const way = h('a', { href: '/pool?add' }, 'Add a worker');
    const words = pool && smallness(pool.workers, way);
    if (words) replace(this.#notice, words);
  }

  /** @param {(turn: Turn) => void} how */
  async #begin(how) {
    const after = this.#path.at(-1)?.shown?.id ?? null;
    const isOpen = this.#path.length > 0 && after === null;
    const message = this.#busy.size || isOpen ? null : this.#composer.read();
    if (message === null) return;
    try {
      this.#parts = await loadTurns();
    } catch {
      this.#composer.question = message.question;
      this.#composer.files = message.files;
      replace(this.#notice, failure(unreachable('The server cannot be reached.')));
      return;
    }
    this.#keepDraft();
    this.#send({ ...message, id: this.#parts.newId(), after }, how);
  }

  /**
   * @param {import('../parts/turn.js').Asked} asked
   * @param {(turn: Turn) => void} how
   */
  #send(asked, how) {
    const turn = this.#add(asked);
    this.#chosen.set(asked.after, turn);
    this.#title ||= shorten(asked.question || asked.files[0].name, LONGEST_TITLE);
    this.#isAtEnd = true;
    how(turn);
    this.#draw();
    this.#scrollToEnd();
    this.#save();
  }

  /** @param {import('../parts/turn.js').Asked} asked */
  #add({ id, after, question, files, model, system, podium }) {
    const asked = { id, after, question, files, model, system, podium };
    if (!this.#parts) throw new Error('turns are not loaded');
    const turn = new this.#parts.Turn(asked, {
      workers: this.#workers,
      signal: this.#signal,
      isReadOnly: this.#isReadOnly,
      input: (which) => this.#input(which),
      onChange: () => {
        this.#draw();
        this.#saveSoon();
      },
      onBusy: (letGo, isBusy) => {
        if (isBusy) this.#busy.add(letGo);
        else this.#busy.delete(letGo);
        this.#composer.isBusy = this.#busy.size > 0;
        if (isBusy) return;
        this.#save();
        this.#endedAt = performance.now();
      },
      onEdit: (which) => this.#edit(which),
      onBranch: (which, step) => this.#branch(which, step),
    });
    this.#turns.push(turn);
    return turn;
  }

  /**
   * The conversation up to a turn, as the input of the Responses API.
   * @param {Turn} turn
   */
  #input(turn) {
    /** @type {unknown[]} */
    const items = [messageItem(turn.asked.question, turn.asked.files)];
    for (let { after } = turn.asked; after !== null; ) {
      const before = this.#turns.find((each) => each.has(String(after)));
      if (!before) break;
      const text = before.saved.versions.find(({ id }) => id === after)?.text;
      if (text) items.unshift({ role: 'assistant', content: text });
      items.unshift(messageItem(before.asked.question, before.asked.files));
      after = before.asked.after;
    }
    return items;
  }

  /** @param {string | null} after */
  #following(after) {
    return this.#turns.filter(({ asked }) => asked.after === after);
  }

  #draw() {
    /** @type {Turn[]} */
    const path = [];
    for (let after = /** @type {string | null} */ (null), isFirst = true; isFirst || after; isFirst = false) {
      const turns = this.#following(after);
      const turn = this.#chosen.get(after) ?? turns.at(-1);
      if (!turn) break;
      turn.branches(turns.indexOf(turn), turns.length);
      path.push(turn);
      after = turn.shown?.id ?? null;
    }
    replace(this.#heading, this.#title || NEW);
    if (path.length && !this.#ways.hasChildNodes()) replace(this.#ways, this.#offered());
    if (path.length === this.#path.length && path.every((turn, at) => turn === this.#path[at])) return;
    this.#path = path;
    this.#list.replaceChildren(...path.map(({ element }) => element));
  }

  #offered() {
    const doExport = () => {
      const path = this.#path.map(({ saved }) => saved);
      return exportChat(this.#title, path, this.#document());
    };
    if (this.#isReadOnly) {
      return [
        h('span', { class: 'badge' }, 'shared, read-only'),
        button('Continue as my own', () => this.#copy(), 'small'),
        button('Export', doExport, 'small'),
      ];
    }
    const share = async () => {
      await this.#save();
      await shareChat(this.#id).catch((error) => replace(this.#notice, failure(error)));
      this.#chats.load();
    };
    const doDelete = async () => {
      if (!this.#id || (await deleteChat(this.#id))) this.#context.navigate('/');
    };
    return [
      button('Share', share, 'small'),
      button('Export', doExport, 'small'),
      button('Delete', doDelete, 'small danger'),
    ];
  }

  /**
   * Edit a message in its place: a branch begins.
   * @param {Turn} turn
   */
  #edit(turn) {
    const { question, files } = turn.asked;
    const words = /** @type {HTMLTextAreaElement} */ (
      h('textarea', { 'aria-label': 'Edited message', rows: '3' })
    );
    words.value = question;
    const message = /** @type {HTMLElement} */ (turn.element.querySelector('.message'));
    const close = () => {
      form.remove();
      message.hidden = false;
    };
    const form = h(
      'form',
      {
        class: 'message-edit',
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          if (this.#busy.size || !(words.value.trim() || files.length)) return;
          close();
          const asked = { ...turn.asked, id: String(this.#parts?.newId()), question: words.value.trim() };
          const { model, system } = this.#composer.settings;
          this.#send({ ...asked, model, system: system.trim() }, (edited) => edited.ask());
        },
      },
      words,
      h(
        'div',
        { class: 'buttons' },
        h('button', { type: 'submit', class: 'primary small' }, 'Send as a new branch'),
        button('Cancel', close, 'small'),
      ),
    );
    message.hidden = true;
    message.before(form);
    words.focus();
  }

  /**
   * @param {Turn} turn
   * @param {number} step
   */
  #branch(turn, step) {
    const { after } = turn.asked;
    const turns = this.#following(after);
    const next = turns[turns.indexOf(turn) + step];
    this.#chosen.set(after, next);
    this.#draw();
    /** @type {HTMLElement | null} */ (next.element.querySelector('.pager button:enabled'))?.focus();
    this.#saveSoon();
  }

  /** Keep a shared conversation as one of this key's. */
  async #copy() {
    const id = newChatId();
    const document = this.#document();
    for (const turn of document.turns) {
      turn.versions = turn.versions.map((version) => ({ ...version, run: null }));
    }
    try {
      await put(`/v1/chats/${id}`, document, { signal: this.#signal });
      this.#context.navigate(`/?chat=${id}`);
    } catch (error) {
      if (!this.#signal.aborted) replace(this.#notice, failure(error, () => this.#copy()));
    }
  }

  #document() {
    const chosen = [...this.#chosen].map(([after, { asked }]) => [after, asked.id]);
    return {
      title: this.#title,
      turns: this.#turns.map(({ saved }) => saved),
      settings: { ...this.#composer.settings, chosen },
    };
  }

  #saveSoon() {
    clearTimeout(this.#saving);
    this.#saving = setTimeout(() => this.#save(), SAVE_AFTER_MILLISECONDS);
  }

  /** Save what waits to be saved, before the page is left. */
  #flush() {
    if (this.#saving === undefined || this.#isReadOnly || !this.#id) return;
    clearTimeout(this.#saving);
    put(`/v1/chats/${this.#id}`, this.#document()).catch(() => {});
  }

  async #save() {
    clearTimeout(this.#saving);
    this.#saving = undefined;
    if (this.#signal.aborted || this.#isReadOnly || !this.#turns.length) return;
    if (!this.#id) {
      this.#id = newChatId();
      this.#chats.current = this.#id;
      const address = `/?chat=${this.#id}${location.hash}`;
      this.#context.navigate(address, { replace: true, quiet: true });
      this.#rememberDraft();
    }
    try {
      await put(`/v1/chats/${this.#id}`, this.#document()); // also where the page is left
      this.#chats.load();
    } catch (error) {
      if (this.#signal.aborted) return;
      const { message } = /** @type {Error} */ (error);
      replace(this.#notice, h('p', { class: 'notice', role: 'alert' }, `This conversation is not kept: ${message}`));
    }
  }

  #keepDraft() {
    this.#rememberDraft();
    if (this.#id) this.#saveSoon();
  }

  /** With the address, for a reload. */
  #rememberDraft() {
    const { question, settings } = this.#composer;
    const draft = { tabSession, question: question.slice(0, LONGEST_DRAFT), settings };
    history.replaceState({ ...history.state, draft }, '');
  }

  #scrollToEnd() {
    scrollTo({ top: document.documentElement.scrollHeight });
  }
}

function newChatId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `chat_${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
