// Bars side by side, stacked of parts: the drawing and the table of them.

import { s } from '../../lib/dom.js';
import { ROOM, colour, grid, leftOf, nothing, numbersTable, plain, written } from './frame.js';
import { most, scale, some, ticks } from './scale.js';

/**
 * @typedef {import('../chart.js').Bar} Bar
 * @typedef {import('../chart.js').Options} Options
 * @typedef {import('../chart.js').Part} Part
 */

/**
 * @param {Bar[]} items
 * @param {Options & {parts: Part[]}} options
 * @param {number} width
 * @param {number} height
 */
export function drawBars(items, options, width, height) {
  if (items.length === 0) return [nothing(width, height)];
  const format = options.format ?? plain;
  const beside = ticks(0, options.high ?? most(items.map(total)));
  const y = scale(0, beside[beside.length - 1], height - ROOM.bottom, ROOM.top);
  const edge = leftOf(beside, format);
  const slot = (width - edge - ROOM.right) / items.length;
  const thick = Math.max(1, Math.min(slot * 0.72, 48));
  const named = new Set(some(items.map((_, place) => place), Math.max(1, Math.floor(width / 74))));
  return [
    ...grid(beside, y, edge, width, format),
    ...items.map((item, place) => {
      const middle = edge + slot * (place + 0.5);
      const left = middle - thick / 2;
      return s(
        'g',
        { class: 'chart-bar' },
        s('rect', {
          class: 'chart-slot',
          x: edge + slot * place,
          y: ROOM.top,
          width: slot,
          height: height - ROOM.top - ROOM.bottom,
        }),
        stacked(item, options.parts, left, thick, y),
        named.has(place) &&
          s('text', { x: middle, y: height - 6, 'text-anchor': anchor(middle, width) }, item.label),
        s('title', {}, `${item.title ?? item.label}: ${format(total(item))}`),
      );
    }),
  ];
}

/**
 * @param {Bar} item
 * @param {Part[]} parts
 * @param {number} left
 * @param {number} thick
 * @param {(value: number) => number} y
 */
function stacked(item, parts, left, thick, y) {
  let below = 0;
  return parts.map((part, place) => {
    const value = Math.max(0, item.values[place] ?? 0);
    if (value === 0) return null;
    const [bottom, top] = [y(below), y(below + value)];
    below += value;
    const height = Math.max(0.5, bottom - top);
    const looks = `chart-part ${colour(part.hue ?? place)}`;
    return s('rect', { class: looks, x: left, y: top, width: thick, height });
  });
}

/**
 * Words near the edge must not be cut off by it.
 * @param {number} place
 * @param {number} width
 */
function anchor(place, width) {
  return place > width - 28 ? 'end' : 'middle';
}

/** @param {Bar} item */
function total(item) {
  return item.values.reduce((/** @type {number} */ sum, value) => sum + Math.max(0, value ?? 0), 0);
}

/**
 * @param {Bar[]} items
 * @param {Options & {parts: Part[]}} options
 */
export function barTable(items, { title, across, parts, format = plain }) {
  return numbersTable(title, [across, ...parts.map((part) => part.label)], items.map((item) => [
    item.title ?? item.label,
    ...parts.map((_, place) => written(item.values[place], format)),
  ]));
}
