// The curves of a training: which series are drawn together, and under which words. What the
// numbers mean is explained in docs/reference/training.md.

import { h, replace } from '../lib/dom.js';
import { percentText } from '../lib/format.js';
import { lineChart } from './chart.js';

/**
 * @typedef {Record<string, [number, number][]>} Series
 * @typedef {{title: string, lines: [string, string][], high?: number,
 *   format?: (value: number) => string}} Plot `lines` are names of series and their words.
 */

const HELD_OUT = 'held_out/';
const SHARE = { high: 1, format: percentText };

/** @type {Plot[]} */
const PLOTS = [
  { title: 'Reward', lines: [['reward', 'reward']] },
  {
    title: 'Accuracy given a valid plan',
    lines: [
      ['accuracy_given_valid', 'given a valid plan'],
      ['accuracy', 'over all plans'],
    ],
    ...SHARE,
  },
  { title: 'Valid plans', lines: [['valid_rate', 'share of valid plans']], ...SHARE },
  { title: 'Entropy of workers, bits', lines: [['entropy_bits', 'entropy']] },
  { title: 'Steps of a plan', lines: [['mean_steps', 'mean steps']] },
  { title: 'Everyday questions left alone', lines: [['everyday', 'share']], ...SHARE },
  {
    title: 'Behind the best',
    lines: [
      ['regret', 'regret against the best worker'],
      ['ceiling_gap', 'gap to ideal plans'],
    ],
  },
  { title: 'Groups with spread', lines: [['groups_with_spread', 'share of groups']], ...SHARE },
  { title: 'Tokens of a completion', lines: [['mean_tokens', 'mean']] },
  { title: 'Loss', lines: [['loss', 'loss']] },
  {
    title: 'Seconds a step',
    lines: [
      ['seconds', 'all of it'],
      ['seconds/sampling', 'sampling'],
      ['seconds/workers', 'workers'],
    ],
  },
];

/** Series of many lines: how their names begin, and what they are called. */
const FAMILIES = /** @type {[string, string][]} */ ([
  ['accuracy/', 'Accuracy by kind'],
  [`${HELD_OUT}accuracy/`, 'Held-out accuracy by kind'],
  ['worker/', 'Share of steps by worker'],
  ['steps/', 'Share of plans by their steps'],
  ['shape/', 'Share of plans by shape'],
  ['eval/', 'Accuracy on held-out examples'],
]);

/** What is written down for held-out questions and means nothing there: each is tried once. */
const NEVER_MEASURED = new Set(['groups_with_spread', 'seconds']);

/**
 * Charts of all that a training has written down; `update` draws what has come to it.
 * @returns {{element: HTMLElement, update: (series: Series) => void}}
 */
export function curves() {
  const element = h('div', { class: 'curves' });
  /** @type {Map<string, ReturnType<typeof lineChart>>} */
  const drawn = new Map();
  return {
    element,
    update(series) {
      const wanted = plots(series);
      const same = wanted.length === drawn.size && wanted.every(({ title }) => drawn.has(title));
      for (const { title, lines, ...options } of wanted) {
        const known = drawn.get(title);
        if (known) known.update(lines);
        else drawn.set(title, lineChart(lines, { title, across: 'step', ...options }));
      }
      if (same) return;
      for (const title of drawn.keys()) {
        if (!wanted.some((plot) => plot.title === title)) drawn.delete(title);
      }
      replace(element, wanted.map(({ title }) => drawn.get(title)?.element));
    },
  };
}

/**
 * The plots for which there is anything to show.
 * @param {Series} series
 */
function plots(series) {
  const shared = PLOTS.map(({ lines, ...plot }) => ({
    ...plot,
    lines: lines.flatMap(([name, label], hue) => [
      { label, hue, points: series[name] ?? [] },
      { label: `${label}, held out`, hue, faint: true, points: measured(series, name) },
    ]),
  }));
  const families = FAMILIES.map(([beginning, title]) => ({
    title,
    ...SHARE,
    lines: family(series, beginning),
  }));
  return [...shared, ...families]
    .map((plot) => ({ ...plot, lines: plot.lines.filter((line) => line.points.length > 0) }))
    .filter((plot) => plot.lines.length > 0);
}

/**
 * @param {Series} series
 * @param {string} name
 */
function measured(series, name) {
  return NEVER_MEASURED.has(name) ? [] : (series[HELD_OUT + name] ?? []);
}

/**
 * A line for every name that begins so. A length that no plan of a step had is not written down
 * there, and its share was nothing; the same goes for shapes.
 * @param {Series} series
 * @param {string} beginning
 */
function family(series, beginning) {
  const names = Object.keys(series).filter((name) => name.startsWith(beginning)).sort();
  const filled = beginning === 'steps/' || beginning === 'shape/';
  return names.map((name, hue) => ({
    label: name.slice(beginning.length),
    hue,
    points: filled ? withNothing(series[name], series.mean_steps ?? []) : series[name],
  }));
}

/**
 * @param {[number, number][]} points
 * @param {[number, number][]} all
 * @returns {[number, number][]}
 */
function withNothing(points, all) {
  const known = new Map(points);
  return all.length === 0 ? points : all.map(([step]) => [step, known.get(step) ?? 0]);
}

/**
 * How plans of a step are spread over their lengths; null where that step has none written down.
 * @param {Series} series
 * @param {number} step
 * @returns {{label: string, values: number[]}[] | null}
 */
export function lengths(series, step) {
  const names = Object.keys(series).filter((name) => name.startsWith('steps/'));
  const at = nearest(series.mean_steps ?? [], step);
  if (names.length === 0 || at === null) return null;
  const numbers = names.map((name) => Number(name.slice('steps/'.length))).sort((a, b) => a - b);
  return numbers.map((number) => {
    const found = series[`steps/${number}`].find(([each]) => each === at);
    return { label: String(number), values: [found ? found[1] : 0] };
  });
}

/**
 * The last step before, or at, the one that is meant.
 * @param {[number, number][]} points
 * @param {number} step
 */
function nearest(points, step) {
  let found = null;
  for (const [at] of points) if (at <= step) found = at;
  return found ?? points[0]?.[0] ?? null;
}
