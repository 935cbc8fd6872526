// Many lines of one kind, each in a small drawing of its own on the same scale: in one drawing
// they would hide each other.

import { h, replace, s } from '../../lib/dom.js';
import { numbersTable, plain, written } from './frame.js';
import { describeLine } from './lines.js';
import { least, most, some } from './scale.js';
import { smooth } from './smooth.js';

/**
 * @typedef {import('../chart.js').Line} Line
 * @typedef {import('../chart.js').Options} Options
 */

const WIDTH = 200;
const HEIGHT = 60;
const EDGE = 3;
const MOST_ROWS = 60;

/**
 * @param {Line[]} lines
 * @param {Options} options
 * @returns {import('../chart.js').Chart & {update: (lines: Line[]) => void}}
 */
export function multiples(lines, options) {
  const { title, note } = options;
  const grid = h('ul', { class: 'multiples' });
  const numbers = h('div', {});
  let shown = lines;
  const details = /** @type {HTMLDetailsElement} */ (
    h(
      'details',
      { class: 'chart-numbers', ontoggle: () => details.open && replace(numbers, table(shown, options)) },
      h('summary', {}, 'Numbers', h('span', { class: 'visually-hidden' }, ` of ${title}`)),
      numbers,
    )
  );
  const draw = () => {
    replace(grid, drawn(shown, options));
    if (details.open) replace(numbers, table(shown, options));
  };
  draw();
  return {
    element: h(
      'figure',
      { class: 'chart chart-wide' },
      h('figcaption', {}, h('span', { class: 'chart-title' }, title), h('span', { class: 'chart-note' }, note, ' All on one scale, with the latest trend.')),
      grid,
      details,
    ),
    update(others) {
      shown = others;
      draw();
    },
  };
}

/**
 * @param {Line[]} lines
 * @param {Options} options
 */
function drawn(lines, options) {
  const { format = plain, high } = options;
  const points = lines.flatMap((line) => line.points);
  const steps = points.map(([step]) => step);
  const top = Math.max(most(points.map(([, value]) => value)), high === 1 ? 0 : (high ?? 0)) || 1;
  const [first, last] = [least(steps), most(steps)];
  const place = ([step, value] = /** @type {[number, number]} */ ([0, 0])) => {
    const x = last > first ? EDGE + ((step - first) / (last - first)) * (WIDTH - 2 * EDGE) : WIDTH / 2;
    return `${x.toFixed(1)},${(HEIGHT - EDGE - (value / top) * (HEIGHT - 2 * EDGE)).toFixed(1)}`;
  };
  const path = (/** @type {[number, number][]} */ some) => `M${some.map(place).join(' L')}`;
  return lines.map((line) =>
    h(
      'li',
      {},
      h(
        'p',
        { class: 'multiple-head' },
        h('span', { title: line.label }, line.label),
        h('strong', { class: 'figure' }, format(smooth(line.points).at(-1)?.[1] ?? NaN)),
      ),
      s(
        'svg',
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img' },
        s('title', {}, line.label),
        s('desc', {}, describeLine(line, options)),
        s('path', { class: 'multiple-ground', d: `M0,${HEIGHT - EDGE} H${WIDTH}` }),
        s('path', { class: 'chart-line chart-raw hue-0', d: path(line.points) }),
        s('path', { class: 'chart-line hue-0', d: path(smooth(line.points)) }),
      ),
    ),
  );
}

/**
 * @param {Line[]} lines
 * @param {Options} options
 */
function table(lines, { title, across, format = plain }) {
  const known = lines.map((line) => new Map(line.points));
  const steps = [...new Set(known.flatMap((points) => [...points.keys()]))].sort((a, b) => a - b);
  return numbersTable(
    title,
    [across, ...lines.map((line) => line.label)],
    some(steps, MOST_ROWS).map((step) => [
      String(step),
      ...known.map((points) => written(points.get(step), format)),
    ]),
  );
}
