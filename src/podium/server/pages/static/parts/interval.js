// A share with its interval, drawn small enough to stand in a table.

import { s } from '../lib/dom.js';
import { scale } from './chart/scale.js';

const WIDTH = 120;
const HEIGHT = 14;

/**
 * Where a share lies between 0 and 1, and how far it may be off. The numbers stand beside it.
 * @param {number} value
 * @param {[number, number]} ends
 * @returns {SVGElement}
 */
export function intervalBar(value, [low, high]) {
  const x = scale(0, 1, 3, WIDTH - 3);
  const middle = HEIGHT / 2;
  return s(
    'svg',
    { class: 'interval', width: WIDTH, height: HEIGHT, 'aria-hidden': 'true' },
    s('path', { class: 'interval-whole', d: `M${x(0)},${middle} H${x(1)}` }),
    s('path', { class: 'interval-range', d: `M${x(low)},${middle} H${x(high)}` }),
    s('circle', { class: 'interval-value', cx: x(value), cy: middle, r: 3.5 }),
  );
}
