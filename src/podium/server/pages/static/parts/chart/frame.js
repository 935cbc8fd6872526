// The figure around a drawing: its title, the names of what is drawn, the values beside it, and the
// same numbers as a table. What is drawn is said by `lines` and `bars`.

import { h, replace, s } from '../../lib/dom.js';

/** @typedef {import('../chart.js').Options} Options */

export const ROOM = { top: 10, right: 12, bottom: 24, left: 46 };
const CHARACTER = 6.8;
const HEIGHT = 180;
const HUES = 8;

/**
 * The figure around a drawing.
 * @param {Options} options
 * @param {{
 *   parts: () => {label: string, hue: number, faint?: boolean}[],
 *   draw: (width: number, height: number) => Node[],
 *   describe: () => string,
 *   table: () => HTMLElement,
 * }} content
 */
export function frame(options, { parts, draw, describe, table }) {
  const height = options.height ?? HEIGHT;
  const place = h('div', { class: 'chart-place' });
  place.style.setProperty('min-height', `${height}px`);
  const legend = h('ul', { class: 'chart-legend' });
  const numbers = h('div', {});
  const details = /** @type {HTMLDetailsElement} */ (
    h(
      'details',
      { class: 'chart-numbers', ontoggle: () => details.open && replace(numbers, table()) },
      h('summary', {}, 'Numbers', h('span', { class: 'visually-hidden' }, ` of ${options.title}`)),
      numbers,
    )
  );
  const element = h(
    'figure',
    { class: 'chart' },
    h(
      'figcaption',
      {},
      h('span', { class: 'chart-title' }, options.title),
      options.note && h('span', { class: 'chart-note' }, options.note),
    ),
    legend,
    place,
    details,
  );
  let width = 0;
  function name() {
    const named = parts();
    replace(legend, named.length > 1 ? named.map(legendEntry) : null);
  }
  name(); // before the width is known, so that nothing moves then
  function redraw() {
    if (width < 1) return;
    name();
    replace(
      place,
      s(
        'svg',
        { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img' },
        s('title', {}, options.title),
        s('desc', {}, describe()),
        ...draw(width, height),
      ),
    );
    if (details.open) replace(numbers, table());
  }
  // Only the width decides: the drawing's own height must not set off another drawing.
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    redraw();
  }).observe(place);
  return { element, redraw };
}

/** @param {{label: string, hue: number, faint?: boolean}} part */
function legendEntry({ label, hue, faint }) {
  return h(
    'li',
    {},
    s(
      'svg',
      { class: faint ? 'faint' : '', width: 14, height: 10, 'aria-hidden': 'true' },
      s('path', { class: `chart-line ${colour(hue)}`, d: 'M0,5 h14' }),
      faint && s('circle', { class: `chart-dot ${colour(hue)}`, cx: 7, cy: 5, r: 2.2 }),
    ),
    label,
  );
}

/** @param {number} hue */
export function colour(hue) {
  return `hue-${hue % HUES}${hue >= HUES ? ' again' : ''}`;
}

/**
 * Where a drawing begins, so that the longest of the values beside it is not cut off.
 * @param {number[]} values
 * @param {(value: number) => string} format
 */
export function leftOf(values, format) {
  return Math.max(ROOM.left, 10 + CHARACTER * Math.max(...values.map((each) => format(each).length)));
}

/**
 * The lines behind a drawing, and the values beside them.
 * @param {number[]} values
 * @param {(value: number) => number} y
 * @param {number} left
 * @param {number} width
 * @param {(value: number) => string} format
 */
export function grid(values, y, left, width, format) {
  return values.map((value) =>
    s(
      'g',
      { class: 'chart-grid' },
      s('path', { d: `M${left},${y(value)} H${width - ROOM.right}` }),
      s('text', { x: left - 7, y: y(value) + 4, 'text-anchor': 'end' }, format(value)),
    ),
  );
}

/**
 * @param {number} width
 * @param {number} height
 */
export function nothing(width, height) {
  return s(
    'text',
    { class: 'chart-nothing', x: width / 2, y: height / 2, 'text-anchor': 'middle' },
    'nothing yet',
  );
}

/**
 * @param {string} title
 * @param {string[]} head
 * @param {string[][]} rows
 */
export function numbersTable(title, head, rows) {
  return h(
    'div',
    { class: 'table-box', tabindex: 0, role: 'region', 'aria-label': `Numbers of ${title}` },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h('tr', {}, head.map((name) => h('th', { class: 'number', scope: 'col' }, name))),
      ),
      h(
        'tbody',
        {},
        rows.map(([name, ...cells]) =>
          h(
            'tr',
            {},
            h('th', { class: 'number', scope: 'row' }, name),
            cells.map((cell) => h('td', { class: 'number' }, cell)),
          ),
        ),
      ),
    ),
  );
}

/**
 * @param {number | null | undefined} value
 * @param {(value: number) => string} format
 */
export function written(value, format) {
  return value === null || value === undefined ? '–' : format(value);
}

/** @param {number} value */
export function plain(value) {
  return new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 }).format(value);
}
