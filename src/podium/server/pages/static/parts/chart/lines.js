// Lines over steps: the drawing, the words and the table of them.

import { s } from '../../lib/dom.js';
import { ROOM, colour, grid, leftOf, nothing, numbersTable, plain, written } from './frame.js';
import { least, most, scale, some, ticks } from './scale.js';
import { smooth } from './smooth.js';

/**
 * @typedef {import('../chart.js').Line} Line
 * @typedef {import('../chart.js').Options} Options
 */

const MOST_ROWS = 60;
const MOST_STEPS = 8;

/**
 * @param {Line[]} lines
 * @param {Options} options
 * @param {number} width
 * @param {number} height
 */
export function drawLines(lines, options, width, height) {
  const values = lines.flatMap((line) => line.points.map((point) => point[1]));
  if (values.length === 0) return [nothing(width, height)];
  const steps = lines.flatMap((line) => line.points.map((point) => point[0]));
  const beside = ticks(
    options.low ?? Math.min(0, least(values)),
    options.high ?? Math.max(0, most(values)),
  );
  const below = ticks(least(steps), most(steps), MOST_STEPS);
  const format = options.format ?? plain;
  const edge = leftOf(beside, format);
  const x = scale(least(steps), most(steps), edge + 4, width - ROOM.right - 4);
  const y = scale(beside[0], beside[beside.length - 1], height - ROOM.bottom, ROOM.top);
  return [
    ...grid(beside, y, edge, width, format),
    ...below
      .filter((step) => step >= least(steps) && step <= most(steps))
      .map((step) =>
        s('text', { x: x(step), y: height - 6, 'text-anchor': 'middle' }, plain(step)),
      ),
    // The first is what the chart is about: it lies on top.
    ...lines.map((line, place) => drawLine(line, line.hue ?? place, x, y, options)).reverse(),
  ];
}

/**
 * @param {Line} line
 * @param {number} hue
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 * @param {Options} options
 */
function drawLine(line, hue, x, y, options) {
  const placed = (/** @type {[number, number][]} */ points) =>
    points.map(([at, value]) => [x(at).toFixed(1), y(value).toFixed(1)]);
  const path = (/** @type {[number, number][]} */ points) => `M${placed(points).join(' L')}`;
  const places = placed(line.points);
  const trend = line.faint ? line.points : smooth(line.points);
  const dotted = line.faint || places.length === 1;
  return s(
    'g',
    { class: line.faint ? 'faint' : '' },
    s('path', {
      class: `chart-line ${colour(hue)} ${trend === line.points ? '' : 'chart-raw'}`,
      d: path(line.points),
    }),
    trend !== line.points && s('path', { class: `chart-line ${colour(hue)}`, d: path(trend) }),
    dotted &&
      places.map(([cx, cy]) => s('circle', { class: `chart-dot ${colour(hue)}`, cx, cy, r: 2.2 })),
    s('title', {}, describeLine(line, options)),
  );
}

/**
 * A line in words.
 * @param {Line} line
 * @param {Options} options
 */
export function describeLine(line, { format = plain, across }) {
  const [first, last] = [line.points[0], line.points.at(-1)];
  if (!first || !last) return `${line.label}: nothing yet.`;
  if (first === last) return `${line.label}: ${format(first[1])} at ${across} ${first[0]}.`;
  const values = `from ${format(first[1])} to ${format(last[1])}`;
  return `${line.label}: ${values}, ${across} ${first[0]} to ${last[0]}.`;
}

/**
 * @param {Line[]} lines
 * @param {Options} options
 */
export function lineTable(lines, { title, across, format = plain }) {
  const known = lines.map((line) => new Map(line.points));
  const steps = [...new Set(known.flatMap((points) => [...points.keys()]))].sort((a, b) => a - b);
  const rows = some(steps, MOST_ROWS);
  return numbersTable(title, [across, ...lines.map((line) => line.label)], rows.map((step) => [
    String(step),
    ...known.map((points) => written(points.get(step), format)),
  ]));
}
