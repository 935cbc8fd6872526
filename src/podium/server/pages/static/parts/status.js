// How a run stands, in a word, and what that means and how to go on in a sentence or two.

import { h } from '../lib/dom.js';
import { copyButton } from './copy.js';

const WORDS = Object.freeze({
  running: ['running', 'accent'],
  answered: ['answered', 'good'],
  partial: ['partial', 'warn'],
  failed: ['failed', 'bad'],
  exhausted: ['budget spent', 'bad'],
  interrupted: ['interrupted', 'warn'],
  waiting: ['waits for tools', 'warn'],
});

/** Every status with what it is called, for fields to choose from. */
export const STATUSES = Object.freeze(
  Object.entries(WORDS).map(([status, [words]]) => ({ status, words })),
);

/**
 * @param {string} status
 * @returns {HTMLElement}
 */
export function statusBadge(status) {
  const [words, kind] = WORDS[/** @type {keyof typeof WORDS} */ (status)] ?? [status, ''];
  const pulse = status === 'running' ? h('span', { class: 'pulse', 'aria-hidden': 'true' }) : null;
  return h('span', { class: `badge ${kind}`, 'data-status': status }, pulse, words);
}

/**
 * Whether the run goes on somewhere, as far as anybody knows.
 * @param {{status: string, is_performed?: boolean | null}} document
 */
export function goesOn(document) {
  return document.status === 'running' && document.is_performed !== false;
}

/**
 * What there is to say of a run that is not simply answered; null of one that is.
 * @param {any} document
 * @returns {HTMLElement | null}
 */
export function statusNotice(document) {
  const { run_id: id, status, error } = document;
  const because = error ? h('p', {}, error) : null;
  const resume = command(`podium runs resume ${id}`);
  if (goesOn(document)) {
    return h('p', { class: 'quiet-text', role: 'status' }, 'This run is going on. The page follows it, and ends with it.');
  }
  switch (status) {
    case 'running':
    case 'interrupted':
      return notice(
        'warn',
        'This run was interrupted: it was stopped, or the process that performed it ended, before there was an answer.',
        status === 'interrupted' ? because : null,
        h('p', {}, 'What is done is kept and is not asked again. To go on with it, where the server runs:'),
        resume,
      );
    case 'failed':
      return notice(
        'bad',
        'This run failed before there was an answer.',
        because,
        h('p', {}, 'The steps below show how far it got. To try again what failed, where the server runs:'),
        resume,
      );
    case 'partial':
      return notice(
        'warn',
        'Not everything that was planned came about; the answer is the best so far.',
        because,
        h('p', {}, 'To try again what failed, where the server runs:'),
        resume,
      );
    case 'exhausted':
      return notice(
        'bad',
        'The budget was spent before there was an answer.',
        because,
        h('p', {}, 'To go on with more, where the server runs, with a cap of your own:'),
        command(`podium runs resume ${id} --budget-usd 1`),
      );
    case 'waiting':
      return notice(
        'warn',
        `This run waits for the results of ${toolsInWords(document.waiting_for)}.`,
        h('p', {}, 'The client that asked carries them out and sends what came of it; then the run goes on by itself. Should it never come back, delete the run.'),
      );
    default:
      return error ? notice('warn', error) : null;
  }
}

/**
 * @param {'warn' | 'bad'} kind
 * @param {string} words
 * @param {...import('../lib/dom.js').Child} more
 */
function notice(kind, words, ...more) {
  return h('div', { class: `notice run-notice ${kind}`, role: 'status' }, h('p', {}, h('strong', {}, words)), more);
}

/** @param {string} text */
function command(text) {
  return h('p', { class: 'command' }, h('code', {}, text), copyButton('Copy', () => text));
}

/** @param {{name: string}[]} calls */
function toolsInWords(calls) {
  const names = [...new Set(calls.map((call) => call.name))].join(', ');
  return calls.length === 1 ? `the tool ${names}` : `${calls.length} calls of tools (${names})`;
}
