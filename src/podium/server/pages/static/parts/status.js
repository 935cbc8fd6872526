// How a run stands, in a word, and what that means and how to go on in a sentence or two.

import { copyButton } from '../lib/copy.js';
import { h } from '../lib/dom.js';

const WORDS = Object.freeze({
  running: ['running', 'accent'],
  answered: ['answered', 'good'],
  partial: ['partial', 'warn'],
  failed: ['failed', 'bad'],
  exhausted: ['budget spent', 'bad'],
  interrupted: ['interrupted', 'warn'],
  waiting: ['waits for tools', 'warn'],
});

// A run that was not updated for so long has no live process. Its lease is shorter, but the clocks
// of two machines may differ.
const SILENCE_MILLISECONDS = 150_000;

/** Every status with what it is called, for fields to choose from. */
export const STATUSES = Object.freeze(
  Object.entries(WORDS).map(([status, [words]]) => /** @type {const} */ ([status, words])),
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
 * True if a process executes the run, as far as the server knows.
 * @param {{status: string, is_executing?: boolean | null}} document
 */
export function isRunning(document) {
  return document.status === 'running' && document.is_executing !== false;
}

/**
 * True if a listed run was updated recently: a process that executes it sends heartbeats.
 * @param {{status: string, updated_at: string}} run
 */
export function isLikelyRunning({ status, updated_at: moment }) {
  return status === 'running' && Date.now() - Date.parse(moment) < SILENCE_MILLISECONDS;
}

/**
 * What there is to say of a run that is not simply answered; null of one that is.
 * @param {any} document
 * @param {HTMLElement | null} retry A button, where the run can be retried here.
 * @returns {HTMLElement | null}
 */
export function statusNotice(document, retry = null) {
  const { run_id: id, status, error } = document;
  const because = error ? h('p', {}, error) : null;
  const resume = command(`podium runs resume ${id}`);
  if (isRunning(document)) {
    const words = 'This run is in progress; this page updates live.';
    return h('p', { class: 'quiet-text', role: 'status' }, words);
  }
  if (document.blocked_by) {
    return notice('bad', 'A guardrail blocked this run; it cannot go on.', because);
  }
  switch (status) {
    case 'running':
    case 'interrupted':
      return notice(
        'warn',
        'This run was interrupted: it was stopped, or its process ended, before it was answered.',
        status === 'interrupted' ? because : null,
        retry,
        h('p', {}, 'Finished steps are kept. To resume this run, where the server runs:'),
        resume,
      );
    case 'failed':
      return notice(
        'bad',
        'This run failed before there was an answer.',
        because,
        retry,
        h('p', {}, 'The steps below show how far it got. To resume this run, where the server runs:'),
        resume,
      );
    case 'partial':
      return notice(
        'warn',
        'Some steps failed; the answer is the best so far.',
        because,
        retry,
        h('p', {}, 'To resume this run, where the server runs:'),
        resume,
      );
    case 'exhausted':
      return notice(
        'bad',
        'The budget was spent before there was an answer.',
        because,
        retry,
        h('p', {}, 'To resume with a higher cap, where the server runs:'),
        command(`podium runs resume ${id} --budget-usd 1`),
      );
    case 'waiting':
      return notice(
        'warn',
        `This run waits for the results of ${toolsInWords(document.waiting_for)}.`,
        h('p', {}, 'The client that asked carries them out; with what it sends, the run goes on.'),
        h('p', {}, 'If that client never returns, delete the run.'),
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
  const said = h('p', {}, h('strong', {}, words));
  return h('div', { class: `notice run-notice ${kind}`, role: 'status' }, said, more);
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
