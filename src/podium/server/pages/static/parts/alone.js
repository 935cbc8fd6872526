// The best single worker, for comparison: asked by its name, with nothing planned.

import { ApiError, get } from '../lib/api.js';

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

/** @param {{worker: string, isMostExpensive: boolean}} best */
export function whyBest({ worker, isMostExpensive }) {
  return isMostExpensive
    ? `${worker} is the most expensive worker of this pool, and so taken for the best.`
    : `${worker} is taken for the best: no worker of this pool is known to cost more.`;
}
