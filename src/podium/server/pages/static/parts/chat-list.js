// The conversations that are kept, with a search; and what can be done with one: share it, export
// it, delete it.

import { get, post, remove } from '../lib/api.js';
import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';
import { when } from '../lib/format.js';
import { formDialog } from './dialog.js';

const SEARCH_AFTER_MILLISECONDS = 200;
const WIDE = '(min-width: 56rem)';

/** @typedef {{id: string, title: string, updated_at: string, share_token: string | null}} Summary */

export class ChatList {
  #signal;
  #current = '';
  #search = /** @type {HTMLInputElement} */ (
    h('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Search conversations' })
  );
  #list = h('ul', { class: 'chat-list' });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #searching;

  /** @param {AbortSignal} signal */
  constructor(signal) {
    this.#signal = signal;
    this.#search.addEventListener('input', () => {
      clearTimeout(this.#searching);
      this.#searching = setTimeout(() => this.load(), SEARCH_AFTER_MILLISECONDS);
    });
    const fold = /** @type {HTMLDetailsElement} */ (
      h(
        'details',
        { class: 'chats' },
        h('summary', {}, 'Conversations'),
        h('a', { class: 'button', href: '/' }, 'New chat'),
        this.#search,
        h('nav', { 'aria-label': 'Conversations' }, this.#list),
      )
    );
    const wide = matchMedia(WIDE);
    const adapt = () => {
      fold.open = wide.matches;
    };
    wide.addEventListener('change', adapt, { signal });
    signal.addEventListener('abort', () => clearTimeout(this.#searching));
    adapt();
    this.element = fold;
  }

  /** @param {string} id The conversation that is shown. */
  set current(id) {
    this.#current = id;
  }

  async load() {
    const text = this.#search.value.trim();
    const query = text ? `?text=${encodeURIComponent(text)}` : '';
    try {
      const { data } = await get(`/v1/chats${query}`, { signal: this.#signal, inBackground: true });
      replace(this.#list, data.length ? data.map((/** @type {Summary} */ chat) => this.#item(chat)) : none(text));
    } catch (error) {
      if (this.#signal.aborted) return;
      replace(this.#list, none('', /** @type {Error} */ (error).message));
    }
  }

  /** @param {Summary} chat */
  #item({ id, title, updated_at: moment, share_token }) {
    const isHere = id === this.#current;
    return h(
      'li',
      {},
      h(
        'a',
        { href: `/?chat=${id}`, 'aria-current': isHere && 'true', title },
        h('span', { class: 'chat-title' }, title),
        h('span', { class: 'small quiet-text' }, when(moment), share_token ? ' · shared' : null),
      ),
    );
  }
}

/**
 * @param {string} text
 * @param {string} [problem]
 */
function none(text, problem) {
  const words = problem ?? (text ? `Nothing found for “${text}”.` : 'Conversations are kept here.');
  return h('li', { class: 'small quiet-text chat-none' }, words);
}

/**
 * Share a conversation or revoke its link. Only its owner's key can.
 * @param {string} id
 */
export async function shareChat(id) {
  const address = `/v1/chats/${id}`;
  /** @type {(token: string | null) => Promise<unknown>} */
  const show = (token) => {
    const link = `${location.origin}/?shared=${token}`;
    return token
      ? formDialog(
          'Shared conversation',
          {
            submit: 'Revoke the link',
            danger: true,
            cancel: 'Close',
            onSubmit: () => remove(`${address}/share`),
          },
          h('p', {}, 'Whoever has this link and may use this server can read the conversation:'),
          h('p', { class: 'share-link' }, h('code', {}, link), copyButton('Copy link', () => link)),
        )
      : formDialog(
          'Share this conversation?',
          {
            submit: 'Create a link',
            onSubmit: async () => {
              token = (await post(`${address}/share`, {})).share_token;
            },
          },
          h(
            'p',
            {},
            'Whoever has the link and may use this server reads it, with what you add later. ' +
              'You can revoke the link.',
          ),
        ).then((isMade) => isMade && show(token));
  };
  await show((await get(address)).share_token);
}

/**
 * @param {string} id
 * @returns {Promise<boolean>} True if it was deleted.
 */
export function deleteChat(id) {
  return formDialog(
    'Delete this conversation?',
    {
      submit: 'Delete',
      danger: true,
      onSubmit: () => remove(`/v1/chats/${id}`),
    },
    h('p', {}, 'Its link ends as well. Its runs stay on the page Runs.'),
  );
}

/**
 * Download a conversation as Markdown or JSON.
 * @param {string} title
 * @param {import('./turn.js').SavedTurn[]} path The turns that are shown.
 * @param {unknown} document All of it.
 */
export function exportChat(title, path, document) {
  return formDialog(
    'Export this conversation',
    { cancel: 'Close' },
    h('p', {}, 'Markdown has the messages that are shown; JSON has every branch and every answer.'),
    h(
      'div',
      { class: 'buttons' },
      download('Markdown', `${fileName(title)}.md`, 'text/markdown', asMarkdown(title, path)),
      download('JSON', `${fileName(title)}.json`, 'application/json', JSON.stringify(document, null, 2)),
    ),
  );
}

/**
 * @param {string} title
 * @param {import('./turn.js').SavedTurn[]} path
 */
function asMarkdown(title, path) {
  const turns = path.map(({ question, files, versions, shown }) => {
    const names = files.map(({ name }) => `*${name}*\n\n`).join('');
    const answer = versions.find(({ id }) => id === shown);
    const reply = answer ? `## ${answer.title}\n\n${answer.text}\n` : '';
    return `## You\n\n${names}${question}\n\n${reply}`;
  });
  return `# ${title}\n\n${turns.join('\n')}`;
}

/** @param {string} title */
function fileName(title) {
  return title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60) || 'conversation';
}

/**
 * @param {string} words
 * @param {string} name
 * @param {string} type
 * @param {string} content
 */
function download(words, name, type, content) {
  const link = /** @type {HTMLAnchorElement} */ (h('a', { class: 'button', download: name }, words));
  link.href = URL.createObjectURL(new Blob([content], { type }));
  return link;
}
