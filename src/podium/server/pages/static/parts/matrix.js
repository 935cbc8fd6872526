// Who could read whom: a row for each step, a column for each step that it may read. A long
// workflow is drawn as a picture, for its cells are too many to be elements; the list beside it
// says the same in words.

import { h, replace } from '../lib/dom.js';
import { reads } from './trace.js';

const MOST_CELLS_AS_TABLE = 40 * 40;
const LARGEST_PICTURE = 640;

/** @typedef {import('./trace.js').RoundTrace} RoundTrace */
/** @typedef {import('./trace.js').StepTrace} StepTrace */

/**
 * @param {RoundTrace} round
 * @param {{onSelect?: (round: number, index: number) => void, signal?: AbortSignal}} [options]
 *   `signal` ends what the drawing listens to.
 * @returns {{element: HTMLElement, update: () => void}} `update` when steps have changed.
 */
export function matrix(round, { onSelect, signal } = {}) {
  const { steps } = round;
  const select = (/** @type {number} */ index) => onSelect?.(round.index, index);
  const isSmall = steps.length ** 2 <= MOST_CELLS_AS_TABLE;
  const label = { role: 'group', 'aria-label': 'Access matrix' };
  const box = h('div', { class: 'matrix-box', tabindex: '0', ...label });
  const words = 'A row for each step; the marks show whose subtask and reply it was given.';
  const element = h(
    'div',
    { class: 'matrix' },
    h('p', { class: 'quiet-text' }, words),
    box,
    isSmall ? null : asList(steps, select),
  );
  const shown = isSmall ? null : picture(steps, select, signal);
  if (shown) replace(box, shown.element, shown.reading);
  const draw = () => {
    if (shown) shown.draw();
    else replace(box, asTable(round, select));
  };
  draw();
  return { element, update: draw };
}

/**
 * @param {RoundTrace} round
 * @param {(index: number) => void} select
 */
function asTable({ index: round, steps }, select) {
  const seesRoundBefore = round > 0;
  return h(
    'table',
    { class: 'matrix-table' },
    h('caption', { class: 'visually-hidden' }, 'Whose subtask and reply each step was given'),
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        h('th', { scope: 'col' }, 'Step'),
        seesRoundBefore ? h('th', { scope: 'col' }, `Round ${round}`) : null,
        steps.map((step) =>
          h('th', { scope: 'col', title: step.worker }, String(step.index)),
        ),
      ),
    ),
    h(
      'tbody',
      {},
      steps.map((step) => {
        const read = new Set(reads(step));
        return h(
          'tr',
          {},
          h(
            'th',
            { scope: 'row' },
            h(
              'button',
              { type: 'button', class: 'quiet small', onclick: () => select(step.index) },
              `${step.index} `,
              h('span', { class: 'quiet-text' }, step.worker),
            ),
          ),
          seesRoundBefore ? cell(step.access === 'all', null, step) : null,
          steps.map((other) => cell(read.has(other.index), other, step)),
        );
      }),
    ),
  );
}

/**
 * @param {boolean} isRead
 * @param {StepTrace | null} other
 * @param {StepTrace} step
 */
function cell(isRead, other, step) {
  if (other !== null && other.index >= step.index) return h('td', { class: 'matrix-never' });
  if (!isRead) return h('td', {}, h('span', { class: 'visually-hidden' }, 'no'));
  const isLost = other !== null && ['failed', 'skipped', 'cancelled'].includes(other.state);
  const what = other === null ? 'the round before' : `step ${other.index}`;
  const words = isLost ? `may read ${what}, which gave nothing` : `reads ${what}`;
  return h(
    'td',
    { class: isLost ? 'matrix-lost' : 'matrix-read', title: `Step ${step.index} ${words}` },
    h('span', { 'aria-hidden': 'true' }, isLost ? '○' : '●'),
    h('span', { class: 'visually-hidden' }, isLost ? 'lost' : 'yes'),
  );
}

/**
 * The matrix as one drawing: pointing at it says which step reads which.
 * @param {StepTrace[]} steps
 * @param {(index: number) => void} select
 * @param {AbortSignal} [signal]
 */
function picture(steps, select, signal) {
  const size = Math.max(2, Math.floor(LARGEST_PICTURE / steps.length));
  const side = size * steps.length;
  const canvas = /** @type {HTMLCanvasElement} */ (
    h('canvas', {
      class: 'matrix-picture',
      width: side,
      height: side,
      role: 'img',
      'aria-label': `Access of ${steps.length} steps; the list below says the same in words`,
    })
  );
  const reading = h('p', { class: 'matrix-reading quiet-text' }, 'Point at a mark to read it.');

  function draw() {
    const context = canvas.getContext('2d');
    if (context === null) return;
    const style = getComputedStyle(canvas);
    context.clearRect(0, 0, side, side);
    context.fillStyle = style.borderColor;
    for (let row = 0; row < steps.length; row += 1) {
      context.fillRect(row * size, row * size, side, size);
    }
    context.fillStyle = style.color;
    steps.forEach((step, row) => {
      if (step.access === 'all') context.fillRect(0, row * size, row * size, size);
      else for (const read of step.access) context.fillRect(read * size, row * size, size, size);
    });
  }

  /** @param {MouseEvent} event */
  function pointedAt(event) {
    const place = canvas.getBoundingClientRect();
    const scale = steps.length / place.width;
    const row = Math.floor((event.clientY - place.top) * scale);
    const column = Math.floor((event.clientX - place.left) * scale);
    return { row: Math.min(row, steps.length - 1), column };
  }

  canvas.addEventListener('pointermove', (event) => {
    const { row, column } = pointedAt(event);
    const step = steps[row];
    if (!step) return;
    const isRead = column < row && (step.access === 'all' || step.access.includes(column));
    const does = isRead ? 'reads' : 'does not read';
    replace(reading, `Step ${row} (${step.worker}) ${does} step ${column}.`);
  });
  canvas.addEventListener('click', (event) => select(pointedAt(event).row));
  // Colours are the theme's, which can be switched while the page is shown.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw, { signal });
  const theme = new MutationObserver(draw);
  theme.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  signal?.addEventListener('abort', () => theme.disconnect());
  requestAnimationFrame(draw);
  return { element: canvas, reading, draw };
}

/**
 * @param {StepTrace[]} steps
 * @param {(index: number) => void} select
 */
function asList(steps, select) {
  const list = h('ul', { class: 'matrix-list' });
  const details = /** @type {HTMLDetailsElement} */ (
    h('details', {}, h('summary', {}, 'Access in words'), list)
  );
  details.addEventListener('toggle', () => {
    if (!details.open || list.childElementCount) return;
    replace(
      list,
      steps.map((step) =>
        h(
          'li',
          {},
          h(
            'button',
            { type: 'button', class: 'quiet small', onclick: () => select(step.index) },
            `Step ${step.index}`,
          ),
          ` ${readsInWords(step)}`,
        ),
      ),
    );
  });
  return details;
}

/**
 * What a step reads, with neighbours drawn together: reads steps 0–3, 7.
 * @param {{index: number, access: 'all' | number[]}} step
 * @returns {string}
 */
export function readsInWords(step) {
  if (step.access === 'all') return 'reads everything before it';
  if (!step.access.length) return 'reads no other step';
  /** @type {[number, number][]} */
  const spans = [];
  for (const read of step.access) {
    const last = spans.at(-1);
    if (last && last[1] === read - 1) last[1] = read;
    else spans.push([read, read]);
  }
  const said = spans.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(', ');
  return `reads ${step.access.length === 1 ? 'step' : 'steps'} ${said}`;
}
