// Run a stored run again, as a new one: what is done is kept, or what was done before a step.

import { post } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { TIERS } from './run-head.js';
import { scoped } from './scoped.js';

/**
 * @param {any} run The document of a run of a tier.
 * @param {{round: number, step: number}} [from]
 * @returns {Promise<string>} The id of the new run.
 */
async function retryRun({ run_id: run, tier, question }, from) {
  let id = '';
  const model = TIERS[/** @type {'mini'} */ (tier)];
  const body = { model, input: question || ' ', background: true, podium: { rerun: { run, ...from } } };
  await post('/v1/responses', body, {
    onHeaders: (headers) => {
      id = headers.get('X-Podium-Run') ?? '';
    },
  });
  return id;
}

/**
 * @param {any} run
 * @param {{onRetried: (id: string) => void, from?: {round: number, step: number}, words: string,
 *   kind?: string}} options
 * @returns {HTMLElement} A button, and what the server refuses.
 */
export function retryRunButton(run, { onRetried, from, words, kind = 'small' }) {
  const problem = h('p', { class: 'field-error', role: 'alert' });
  const button = h(
    'button',
    {
      type: 'button',
      class: kind,
      onclick: async () => {
        replace(problem);
        button.setAttribute('disabled', '');
        try {
          onRetried(await retryRun(run, from));
        } catch (error) {
          button.removeAttribute('disabled');
          replace(problem, /** @type {Error} */ (error).message);
        }
      },
    },
    words,
  );
  return h('div', { class: 'retry' }, scoped(button, 'workflow'), problem);
}

/**
 * A run of a worker that was called by its own name has no tier to run it again.
 * @param {any} run
 */
export function canRetry(run) {
  return run.conductor !== 'direct' && run.status !== 'waiting' && !run.blocked_by;
}
