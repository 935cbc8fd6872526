// Charts: lines over steps, and bars that are stacked. Each is a figure with a drawing, the names
// of what is drawn, and the same numbers as a table for users who prefer text, or cannot see
// it. A chart is drawn as wide as its place is, so that its words stay readable on a telephone.

import { barTable, drawBars } from './chart/bars.js';
import { frame } from './chart/frame.js';
import { describeLine, drawLines, lineTable } from './chart/lines.js';

/**
 * @typedef {{label: string, points: [number, number][], hue?: number, faint?: boolean}} Line
 *   `faint` lines are thin, with a dot for every point: measured now and then.
 * @typedef {{label: string, hue?: number}} Part What a bar is stacked of.
 * @typedef {{label: string, values: (number | null)[], title?: string}} Bar `values` are in the
 *   order of the parts; null is unknown.
 * @typedef {{title: string, note?: string, across: string, format?: (value: number) => string,
 *   low?: number, high?: number, height?: number}} Options `note` says what it means; `across` names
 *   what goes from left to right; `low` and `high` are where the scale ends, unless the values do.
 * @typedef {{element: HTMLElement}} Chart
 */

/**
 * Lines over steps. `update` draws others in their place.
 * @param {Line[]} lines
 * @param {Options} options
 * @returns {Chart & {update: (lines: Line[]) => void}}
 */
export function lineChart(lines, options) {
  let shown = lines;
  const chart = frame(options, {
    parts: () => shown.map((line, place) => ({ ...line, hue: line.hue ?? place })),
    draw: (width, height) => drawLines(shown, options, width, height),
    describe: () => shown.map((line) => describeLine(line, options)).join(' '),
    table: () => lineTable(shown, options),
  });
  return {
    element: chart.element,
    update(others) {
      shown = others;
      chart.redraw();
    },
  };
}

/**
 * Bars side by side, each stacked of the parts.
 * @param {Bar[]} items
 * @param {Options & {parts: Part[]}} options
 * @returns {Chart & {update: (items: Bar[]) => void}}
 */
export function bars(items, options) {
  let shown = items;
  const { parts } = options;
  const chart = frame(options, {
    parts: () => parts.map((part, place) => ({ label: part.label, hue: part.hue ?? place })),
    draw: (width, height) => drawBars(shown, options, width, height),
    describe: () => `${shown.length} bars, from ${shown[0]?.label} to ${shown.at(-1)?.label}.`,
    table: () => barTable(shown, options),
  });
  return {
    element: chart.element,
    update(others) {
      shown = others;
      chart.redraw();
    },
  };
}
