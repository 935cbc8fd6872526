// A few figures beside each other, each with what it is.

import { h } from '../lib/dom.js';

/**
 * @param {...[string, Node]} pairs
 */
export function facts(...pairs) {
  return h(
    'dl',
    { class: 'facts' },
    pairs.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
  );
}
