// The best single worker's own reply, for comparison: asked by its name as through a gateway, with
// nothing planned. Which worker that is, the server says.

import { ApiError, get, post } from '../lib/api.js';
import { h } from '../lib/dom.js';
import { count, duration, usd } from '../lib/format.js';

/**
 * `isMostExpensive`: whether its price is why it is trusted; others cost less then.
 * @typedef {{worker: string, isMostExpensive: boolean, text: string, cost: number | null, seconds: number,
 *   usage: {prompt_tokens: number, completion_tokens: number} | null}} Alone
 */

/**
 * The worker that the pool trusts most with a whole question, and whether for its price.
 * @param {AbortSignal} signal
 * @returns {Promise<{worker: string, isMostExpensive: boolean}>}
 */
export async function bestWorker(signal) {
  const { best, workers } = await get('/v1/pool?days=1', { signal });
  const priced = workers.filter((/** @type {any} */ each) => each.is_worker && each.price !== null);
  const own = priced.find((/** @type {any} */ each) => each.name === best)?.price.output;
  const isMostExpensive = priced.some((/** @type {any} */ each) => each.price.output < own);
  if (best) return { worker: best, isMostExpensive };
  throw new ApiError(404, 'This API key may not call any worker by name.', '');
}

/**
 * @param {{worker: string, isMostExpensive: boolean}} who
 * @param {{question: string, podium: Record<string, unknown>}} asked
 * @param {AbortSignal} signal
 * @returns {Promise<Alone>}
 */
export async function answeredBy({ worker, isMostExpensive }, { question, podium }, signal) {
  const body = { model: worker, messages: [{ role: 'user', content: question }], podium };
  const began = performance.now();
  /** @type {number | null} */
  let cost = null;
  const onHeaders = (/** @type {Headers} */ headers) => {
    const header = headers.get('X-Podium-Cost');
    cost = header === null ? null : Number(header);
  };
  const { choices, usage } = await post('/v1/chat/completions', body, { signal, onHeaders });
  const seconds = (performance.now() - began) / 1000;
  const text = choices[0].message.content ?? '';
  return { worker, isMostExpensive, text, cost, seconds, usage };
}

/**
 * @param {import('./version.js').Version} version
 * @param {Alone} alone
 */
export function showAlone(version, alone) {
  version.isAlone = true;
  version.alone = alone;
  version.answered(
    alone.text,
    ['Cost', usd(alone.cost)],
    ['Time', duration(alone.seconds)],
    ['Tokens in', count(alone.usage?.prompt_tokens)],
    ['Tokens out', count(alone.usage?.completion_tokens)],
    ['Calls', count(1)],
  );
  const why =
    `${alone.worker} is whom this pool trusts most with a whole question: ` +
    (alone.isMostExpensive
      ? 'its most expensive worker, for price is the only measure of strength that every pool has. '
      : 'no worker is known to cost more, and of those that cost as much it is named first. ') +
    'There is no run of this call; the reply is kept in this browser, with this page.';
  version.actions(h('p', { class: 'quiet-text' }, why));
}
