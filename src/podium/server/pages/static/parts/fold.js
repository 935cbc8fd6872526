// Something folded, made when it is opened for the first time.

import { h, replace } from '../lib/dom.js';
import { loading } from '../lib/states.js';

/**
 * @param {string} words
 * @param {() => import('../lib/dom.js').Child | Promise<import('../lib/dom.js').Child>} make
 */
export function fold(words, make) {
  const body = h('div', {});
  return h(
    'details',
    {
      ontoggle: async () => {
        if (body.hasChildNodes()) return;
        replace(body, loading('Loading…'));
        try {
          replace(body, await make());
        } catch (error) {
          replace(body, h('p', { class: 'field-error' }, /** @type {Error} */ (error).message));
        }
      },
    },
    h('summary', {}, words),
    body,
  );
}
