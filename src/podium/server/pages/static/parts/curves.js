// The curves of a training: which series are drawn together, and under which words.

import { h, replace } from '../lib/dom.js';
import { percentText } from '../lib/format.js';
import { lineChart } from './chart.js';
import { multiples } from './chart/multiples.js';

/**
 * @typedef {Record<string, [number, number][]>} Series
 * @typedef {{title: string, note: string, lines: [string, string][], high?: number,
 *   format?: (value: number) => string}} Plot `lines` are names of series and their words.
 */

const HELD_OUT = 'held_out/';
const SHARE = { high: 1, format: percentText };

/** More lines than these hide each other. */
const MOST_LINES = 4;

/** @type {Plot[]} */
const PLOTS = [
  {
    title: 'Reward',
    note: 'What training maximises, as a mean over the plans of a step.',
    lines: [['reward', 'reward']],
  },
  {
    title: 'Accuracy given a valid plan',
    note: 'Share of plans whose answer was right.',
    lines: [
      ['accuracy_given_valid', 'given a valid plan'],
      ['accuracy', 'over all plans'],
    ],
    ...SHARE,
  },
  {
    title: 'Valid plans',
    note: 'Share of plans that could be carried out as written.',
    lines: [['valid_rate', 'share of valid plans']],
    ...SHARE,
  },
  {
    title: 'Variety of workers',
    note: 'Entropy of the workers chosen, in bits: 0 is always the same one.',
    lines: [['entropy_bits', 'entropy']],
  },
  { title: 'Steps of a plan', note: 'How long plans are, on average.', lines: [['mean_steps', 'mean steps']] },
  {
    title: 'Everyday questions left alone',
    note: 'Share of simple questions that got one step, as they should.',
    lines: [['everyday', 'share']],
    ...SHARE,
  },
  {
    title: 'Reward still to gain',
    note: 'How much better the best worker alone and ideal plans do; below 0, plans are ahead.',
    lines: [
      ['regret', 'best worker alone'],
      ['ceiling_gap', 'ideal plans'],
    ],
  },
  {
    title: 'Questions that teach',
    note: 'Share of questions with both right and wrong plans: only these change the model.',
    lines: [['groups_with_reward_variance', 'share of questions']],
    ...SHARE,
  },
  {
    title: 'Tokens of a plan',
    note: 'How much the conductor writes for a plan, on average.',
    lines: [['mean_tokens', 'mean']],
  },
  { title: 'Loss', note: 'What the optimiser minimises.', lines: [['loss', 'loss']] },
  {
    title: 'Seconds a training step',
    note: 'The whole step, and how much of it sampling and workers take.',
    lines: [
      ['seconds', 'all of it'],
      ['seconds/sampling', 'sampling'],
      ['seconds/workers', 'workers'],
    ],
  },
];

/** Series of many lines: how their names begin, and what they are called. */
const FAMILIES = /** @type {[string, string, string][]} */ ([
  ['accuracy/', 'Accuracy by kind of question', 'Share of plans whose answer was right, in training.'],
  [
    `${HELD_OUT}accuracy/`,
    'Accuracy by kind of question, held out',
    'The same on questions that were not trained on.',
  ],
  ['worker/', 'Share of steps by worker', 'Which workers plans use.'],
  ['steps/', 'Share of plans by number of steps', 'How long plans are.'],
  ['shape/', 'Share of plans by shape', 'How the steps of plans read each other.'],
  ['eval/', 'Accuracy on held-out examples', 'Share of held-out examples with the expected reply.'],
]);

/** 2 stands before 10. */
const NATURAL = new Intl.Collator(undefined, { numeric: true });

/** What is written down for held-out questions and means nothing there: each is tried once. */
const NEVER_MEASURED = new Set(['groups_with_reward_variance', 'seconds']);

/**
 * Charts of all that a training has written down; `update` draws what has come to it.
 * @returns {{element: HTMLElement, update: (series: Series) => void}}
 */
export function curves() {
  const element = h('div', { class: 'curves' });
  /** @type {Map<string, ReturnType<typeof lineChart> & {isMany?: boolean}>} */
  const drawn = new Map();
  return {
    element,
    update(series) {
      const wanted = plots(series);
      const isDrawn = (/** @type {{title: string, lines: unknown[]}} */ { title, lines }) =>
        drawn.get(title)?.isMany === lines.length > MOST_LINES;
      const same = wanted.length === drawn.size && wanted.every(isDrawn);
      for (const { title, lines, ...options } of wanted) {
        const known = drawn.get(title);
        const isMany = lines.length > MOST_LINES;
        if (known?.isMany === isMany) known.update(lines);
        else drawn.set(title, { ...(isMany ? multiples : lineChart)(lines, { title, across: 'step', ...options }), isMany });
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
  const families = FAMILIES.map(([beginning, title, note]) => ({
    title,
    note,
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
  const names = Object.keys(series).filter((name) => name.startsWith(beginning)).sort(NATURAL.compare);
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
