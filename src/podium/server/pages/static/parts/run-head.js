// The top of a run's page: what was asked, how it stands, what it took, and what can be done.

import { remove } from '../lib/api.js';
import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';
import { count, countText, duration, shorten, usd, when } from '../lib/format.js';
import { scoped } from './scoped.js';
import { isRunning, statusBadge } from './status.js';

const LONGEST_TITLE = 160;

/** What clients call the tiers. */
export const TIERS = Object.freeze({ mini: 'podium-mini', podium: 'podium', ultra: 'podium-ultra' });

/**
 * @param {any} document
 * @param {{onDeleted: () => void}} options
 * @returns {HTMLElement}
 */
export function runHead(document, { onDeleted }) {
  const isOver = !isRunning(document);
  return h(
    'header',
    { class: 'run-head' },
    h(
      'div',
      { class: 'crumb' },
      h('a', { href: '/runs' }, '← Runs'),
      h('code', { class: 'run-id' }, document.run_id),
      statusBadge(document.status === 'running' && isOver ? 'interrupted' : document.status),
    ),
    h('h1', {}, shorten(document.question, LONGEST_TITLE)),
    wholeQuestion(document.question),
    facts(document),
    actions(document, onDeleted),
  );
}

/** @param {string} question */
function wholeQuestion(question) {
  if (shorten(question, LONGEST_TITLE) === question) return null;
  return h(
    'details',
    { class: 'whole-question' },
    h('summary', {}, `The whole question (${countText(question.length)} characters)`),
    h('pre', { class: 'said', tabindex: '0' }, question),
  );
}

/** @param {any} document */
function facts(document) {
  const isOver = !isRunning(document);
  const { usage, budget } = document;
  const orchestration = sum(usage.orchestration_input_tokens, usage.orchestration_output_tokens);
  return h(
    'dl',
    { class: 'facts' },
    fact('Cost', isOver ? usd(document.cost_usd) : '…'),
    fact('Time', isOver ? duration(budget.spent.seconds || null) : '…'),
    fact('Tokens', isOver ? count(usage.total_tokens) : '…', partOf(orchestration)),
    fact('Calls', isOver ? count(budget.spent.calls) : '…'),
    fact('Tier', TIERS[/** @type {'mini'} */ (document.tier)] ?? document.tier),
    fact('Conductor', document.conductor),
    fact('Asked', when(document.created_at)),
    document.owner ? fact('Key', keyLink(document)) : null,
  );
}

/**
 * The key by its name, where that is known; it leads to all of its runs.
 * @param {{owner: string, owner_name: string | null}} document
 */
function keyLink({ owner, owner_name: name }) {
  const href = `/runs?owner=${encodeURIComponent(owner)}`;
  return h('a', { href, title: owner }, name ?? owner);
}

/** @param {number | null} orchestration */
function partOf(orchestration) {
  if (!orchestration) return null;
  return h('span', { class: 'quiet-text' }, countText(orchestration), ' of them planning');
}

/**
 * @param {string} name
 * @param {import('../lib/dom.js').Child} value
 * @param {import('../lib/dom.js').Child} [more]
 */
function fact(name, value, more) {
  const also = more ? h('dd', { class: 'fact-more' }, more) : null;
  return h('div', {}, h('dt', {}, name), h('dd', {}, value), also);
}

/**
 * @param {number | null} one
 * @param {number | null} other
 */
function sum(one, other) {
  return one === null || other === null ? null : one + other;
}

/** @param {string} id */
function addressOf(id) {
  return `/v1/runs/${encodeURIComponent(id)}`;
}

/**
 * @param {any} document
 * @param {() => void} onDeleted
 */
function actions(document, onDeleted) {
  const id = document.run_id;
  const isOver = !isRunning(document);
  return h(
    'div',
    { class: 'buttons' },
    copyButton('Copy link', () => `${location.origin}/runs/${id}`),
    h(
      'a',
      { class: 'button small', href: `${addressOf(id)}/export`, download: `${id}.json` },
      'Export as JSON',
    ),
    isOver && h('a', { class: 'button small', href: `/?run=${encodeURIComponent(id)}` }, 'Open in chat'),
    scoped(
      h(
        'button',
        {
          type: 'button',
          class: 'small danger',
          disabled: !isOver,
          title: isOver ? null : 'A run is deleted when it has ended',
          onclick: () => confirmDeletion(document, onDeleted),
        },
        'Delete…',
      ),
      'runs:delete',
    ),
  );
}

/**
 * @param {{run_id: string, owner: string | null}} run
 * @param {() => void} onDeleted
 */
function confirmDeletion({ run_id: id, owner }, onDeleted) {
  const problem = h('p', { class: 'field-error', role: 'alert' });
  const dialog = /** @type {HTMLDialogElement} */ (
    h(
      'dialog',
      { 'aria-labelledby': 'delete-title' },
      h(
        'form',
        {
          onsubmit: async (/** @type {Event} */ event) => {
            event.preventDefault();
            replace(problem);
            try {
              await remove(addressOf(id));
            } catch (error) {
              replace(problem, /** @type {Error} */ (error).message);
              return;
            }
            dialog.close();
            onDeleted();
          },
        },
        h('h2', { id: 'delete-title' }, 'Delete this run?'),
        h('p', {}, 'Its question, plans, replies and answer are deleted for good.'),
        owner ? h('p', {}, 'What it cost stays in the sums of its key.') : null,
        problem,
        h(
          'div',
          { class: 'buttons' },
          h('button', { type: 'submit', class: 'danger' }, 'Delete for good'),
          h(
            'button',
            { type: 'button', autofocus: true, onclick: () => dialog.close() },
            'Keep it',
          ),
        ),
      ),
    )
  );
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
