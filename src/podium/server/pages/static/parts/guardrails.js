// What guardrails did in a run: a line for each action, in the order of the run.

import { h } from '../lib/dom.js';
import { countText, usdText } from '../lib/format.js';

/**
 * @typedef {{guardrail: string, stage: string, action: string, reason: string, round: number,
 *   step: number | null, worker: string, cost_usd: number | null,
 *   usage: {input_tokens: number | null, output_tokens: number | null}}} Check
 */

/**
 * What was done, or nothing where nothing was.
 * @param {{guardrail_checks?: Check[], guardrails?: string[]}} document The run as the server tells of it.
 * @returns {HTMLElement | null}
 */
export function guardrails({ guardrail_checks: checks = [] }) {
  if (!checks.length) return null;
  return h(
    'ul',
    { class: 'guardrails' },
    checks.map((check) => h('li', { 'data-action': check.action }, line(check))),
  );
}

/** @param {Check} check */
function line({ guardrail, stage, action, reason, round, step, worker, usage, cost_usd }) {
  const where = step === null ? '' : ` of step ${step + 1} in round ${round + 1} (${worker})`;
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const paid = tokens ? ` Its verifier took ${countText(tokens)} tokens, ${usdText(cost_usd)}.` : '';
  return [
    h('strong', {}, guardrail),
    ` ${action} the ${stage}${where}`,
    reason ? `: ${reason}.` : '.',
    paid ? h('span', { class: 'quiet-text' }, paid) : null,
  ];
}
