// Tables that become cards on small screens. Roles are explicit, because browsers forget that a
// table is one when its display changes.

import { h } from '../lib/dom.js';

/**
 * @typedef {import('../lib/dom.js').Child} Child
 * @typedef {{id?: string, class?: string, cells: Child[]}} Row
 */

/**
 * @param {string} name What it lists, for screen readers.
 * @param {[string, string?][]} columns Heading and class of each.
 * @param {Row[]} rows The first cell is the row's heading.
 * @returns {HTMLElement}
 */
export function table(name, columns, rows) {
  return h(
    'div',
    { class: 'table-box stacked', tabindex: 0, role: 'region', 'aria-label': name },
    h(
      'table',
      { role: 'table' },
      h(
        'thead',
        { role: 'rowgroup' },
        h(
          'tr',
          { role: 'row' },
          columns.map(([words, kind]) =>
            h('th', { scope: 'col', role: 'columnheader', class: kind }, words || hidden('Actions')),
          ),
        ),
      ),
      h(
        'tbody',
        { role: 'rowgroup' },
        rows.map(({ id, class: kind, cells }) =>
          h(
            'tr',
            { role: 'row', id, class: kind },
            cells.map((cell, at) =>
              h(
                at === 0 ? 'th' : 'td',
                {
                  role: at === 0 ? 'rowheader' : 'cell',
                  scope: at === 0 && 'row',
                  class: columns[at][1],
                  'data-label': columns[at][0],
                },
                cell,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @param {string} words */
function hidden(words) {
  return h('span', { class: 'visually-hidden' }, words);
}

/**
 * A few figures beside each other, each with its name.
 * @param {...[string, Child]} pairs
 */
export function facts(...pairs) {
  return h(
    'dl',
    { class: 'facts' },
    pairs.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
  );
}

/**
 * A bar of what is used of a cap.
 * @param {string} name
 * @param {number} used
 * @param {number} cap
 * @param {Child} words
 */
export function usedBar(name, used, cap, words) {
  const share = cap > 0 ? Math.min(1, used / cap) : 1;
  const state = share >= 1 ? 'over' : share >= 0.8 ? 'near' : '';
  return h(
    'div',
    { class: `used ${state}` },
    h('meter', { min: 0, max: 1, value: share, 'aria-label': name }),
    h('span', { class: 'small' }, words),
  );
}
