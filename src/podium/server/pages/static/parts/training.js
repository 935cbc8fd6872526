// A training, live from its directory: curves that grow while it goes on, and a slider over its
// steps with the lengths of plans and samples of each.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { count, duration, percentText, when } from '../lib/format.js';
import { empty } from '../lib/states.js';
import { bars } from './chart.js';
import { curves, lengths } from './curves.js';
import { poll, connection } from './polling.js';
import { sampleCard } from './sample.js';

/**
 * @typedef {import('./curves.js').Series} Series
 * @typedef {{
 *   step: number | null,
 *   onStep: (step: number | null) => void,
 *   signal: AbortSignal,
 * }} Context `step` is the one to look at; null follows the latest.
 */

const EVERY_SECONDS = 2;

/**
 * @param {string} name
 * @param {any} first The training as it was asked for first.
 * @param {Context} context
 */
export function training(name, first, { step, onStep, signal }) {
  const address = `/v1/experiments/${encodeURIComponent(name)}`;
  const facts = h('dl', { class: 'facts' });
  const notes = h('div', {});
  const trouble = connection();
  const drawn = curves();
  const moments = momentsOf(address, { step, onStep, signal }, trouble.tell);
  /** @type {Series} */
  let series = {};
  let isBehind = false;

  /** @param {any} page */
  function take(page) {
    const hasGrown = JSON.stringify(page.series) !== JSON.stringify(series);
    series = page.series;
    replace(facts, factsOf(page, series));
    replace(notes, notesOf(page, series));
    if (hasGrown) drawn.update(series);
    isBehind ||= hasGrown;
  }

  async function catchUp() {
    if (!isBehind) return;
    moments.element.ariaBusy = 'true';
    try {
      await moments.update(series);
      isBehind = false;
    } finally {
      moments.element.ariaBusy = 'false';
    }
  }

  async function follow() {
    take(first);
    try {
      await catchUp();
    } catch (error) {
      if (signal.aborted) return;
      trouble.tell(error);
    }
    const more = async (/** @type {boolean} */ inBackground) => {
      take(await get(address, { signal, inBackground }));
      await catchUp();
    };
    poll(more, EVERY_SECONDS, signal, trouble.tell);
  }

  const elements = [facts, trouble.element, notes, drawn.element, moments.element];
  return { elements, follow };
}

/**
 * @param {any} page
 * @param {Series} series
 */
function factsOf({ summary, updated_at: updated, is_finished: finished }, series) {
  const last = Math.max(0, ...Object.values(series).map((points) => points.at(-1)?.[0] ?? 0));
  const shown = [
    ['Step', count(last || summary.step || null)],
    finished !== null && [
      'State',
      h(
        'span',
        { class: `badge ${finished ? 'good' : ''}` },
        finished ? 'finished' : 'not finished',
      ),
    ],
    ['Last written', when(updated)],
    summary.seconds !== undefined && ['Trained for', duration(summary.seconds)],
    summary.rollouts > 0 && ['Rollouts', count(summary.rollouts)],
    summary.rollouts_per_second > 0 && [
      'Rollouts a second',
      h('span', { class: 'figure' }, String(summary.rollouts_per_second)),
    ],
  ];
  return shown
    .filter((pair) => pair !== false)
    .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)));
}

/**
 * @param {any} page
 * @param {Series} series
 */
function notesOf({ left_out: broken, skipped_bytes: skipped }, series) {
  if (Object.keys(series).length === 0) {
    return empty(
      'No step is written down yet.',
      'Curves appear here as soon as metrics.jsonl has a line.',
    );
  }
  const words = [
    broken > 0 && `${broken} lines could not be read.`,
    skipped > 0 && 'The file is very large: only its end is shown.',
  ].filter(Boolean);
  return words.length ? h('p', { class: 'notice' }, words.join(' ')) : null;
}

/**
 * @param {{label: string, values: number[]}[]} spread
 * @param {number} step
 */
function lengthBars(spread, step) {
  return bars(spread, {
    title: `How many steps plans have, at step ${step}`,
    across: 'steps of a plan',
    high: 1,
    height: 150,
    format: percentText,
    parts: [{ label: 'share of plans' }],
  }).element;
}

/**
 * The slider over the steps, with what plans of the chosen one looked like.
 * @param {string} address
 * @param {Context} context
 * @param {(error: unknown) => void} troubled
 */
function momentsOf(address, { step: chosen, onStep, signal }, troubled) {
  const slider = /** @type {HTMLInputElement} */ (
    h('input', { id: 'training-step', type: 'range', min: 0, max: 0, step: 1, oninput: moved })
  );
  const stepLabel = h('output', { for: 'training-step', class: 'figure' });
  const histogram = h('div', {});
  const samples = h('ul', { class: 'samples' });
  const element = h(
    'section',
    { class: 'moments', hidden: true },
    h('h2', {}, 'Plans through time'),
    h(
      'div',
      { class: 'field' },
      h('label', { for: 'training-step' }, 'Step'),
      h('div', { class: 'slider' }, slider, stepLabel),
    ),
    histogram,
    samples,
  );
  /** @type {Series} */
  let series = {};
  /** @type {number[]} */
  let steps = [];
  let asked = 0;

  async function moved() {
    const last = Number(slider.value) === steps.length - 1;
    chosen = last ? null : steps[Number(slider.value)];
    onStep(chosen);
    try {
      await look(false);
    } catch (error) {
      if (!signal.aborted) troubled(error);
    }
  }

  /** @param {boolean} inBackground */
  async function look(inBackground) {
    const step = steps[Number(slider.value)];
    replace(stepLabel, `step ${step}`);
    slider.setAttribute('aria-valuetext', `step ${step}`);
    const spread = lengths(series, step);
    replace(histogram, spread && lengthBars(spread, step));
    const mine = (asked += 1);
    const page = await get(`${address}/samples?step=${step}`, { signal, inBackground });
    if (mine !== asked || signal.aborted) return; // the slider has moved on since
    replace(
      samples,
      page.samples.map(sampleCard),
      page.more > 0 && h('li', { class: 'quiet-text' }, `${page.more} more of this step`),
    );
  }

  return {
    element,
    /** @param {Series} now */
    async update(now) {
      series = now;
      const page = await get(`${address}/samples`, { signal, inBackground: true });
      const written = (now.mean_steps ?? []).map(([each]) => each);
      steps = [...new Set([...page.steps, ...written])].sort((one, other) => one - other);
      element.hidden = steps.length === 0;
      if (steps.length === 0) return;
      slider.max = String(steps.length - 1);
      const place = chosen === null ? -1 : steps.findLastIndex((each) => each <= Number(chosen));
      slider.value = String(place < 0 ? (chosen === null ? steps.length - 1 : 0) : place);
      await look(true);
    },
  };
}
