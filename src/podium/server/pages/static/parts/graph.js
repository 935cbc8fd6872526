// A workflow drawn: a lane for each worker, a column for each depth, a line for each result that
// a step reads. States change in place, so that a run can be watched. Where things stand is
// `layout.js`.
//
// One step is a tab stop; arrow keys go from step to step, Enter and the space bar select one.

import { s } from '../lib/dom.js';
import { countText, shorten } from '../lib/format.js';
import { LONGEST_LANE, NODE, layout, lettersIn, line, neighbour } from './layout.js';

/** What stands in a step beside the colour, which not everybody sees. */
const GLYPHS = Object.freeze({ planned: '○', waiting: '○', running: '◔', done: '✓', failed: '✕' });
const OTHER_GLYPH = '–';

/**
 * More lines than this say nothing to an eye. Among so many, those that are implied by others are
 * left out first, and then all but those of the step that is selected.
 */
const MOST_LINES = 1500;

/**
 * Lines longer than this together, in pixels, are not dashed: every dash is drawn by itself, also
 * those that are not scrolled into view.
 */
const LONGEST_DASHED = 60_000;

/** The point of the arrow at which every line into a step ends. */
const PORT = `M-6 ${NODE.height / 2 - 4}l6 4l-6 4z`;

/** The widest that a drawing is made, and what stands beside it on a page. */
const MOST_ROOM = 960;
const AROUND = 120;

const LONGEST_SPOKEN = 120;
const LONGEST_TITLE = 500;

/**
 * @param {import('./layout.js').Step[]} steps
 * @param {{onSelect?: (index: number) => void, label?: string}} [options]
 * @returns {Graph}
 */
export function graph(steps, options) {
  return new Graph(steps, options);
}

class Graph {
  #drawing;
  #nodes;
  #flow = s('path', { class: 'graph-flow' });
  #chosen = s('path', { class: 'graph-chosen' });
  #onSelect;
  #stop = 0;
  #selected = -1;
  #isFlowStale = false;

  /**
   * @param {import('./layout.js').Step[]} steps
   * @param {{onSelect?: (index: number) => void, label?: string}} [options]
   */
  constructor(steps, { onSelect, label = 'The workflow' } = {}) {
    const drawing = layout(steps, Math.min(MOST_ROOM, innerWidth - AROUND));
    this.#drawing = drawing;
    this.#onSelect = onSelect;
    this.#nodes = steps.map((step, index) => new StepNode(step, index, drawing));
    const { reads, direct, implied } = drawing;
    const drawsAll = isLegible(reads);
    /** What to say beside a drawing that leaves something out; empty for most. */
    this.hint = drawsAll ? '' : 'Select a step to see a line to all that it reads.';
    /** @type {SVGElement} */
    this.element = s(
      'svg',
      {
        class: 'graph',
        width: drawing.width,
        height: drawing.height,
        role: 'group',
        'aria-label': spokenLabel(label, steps.length, drawing.lanes.length),
        onclick: (/** @type {Event} */ event) => this.#clicked(event),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#pressed(event),
        onpointerover: (/** @type {Event} */ event) => {
          const index = indexOf(event.target);
          if (index !== null) this.#nodes[index].hover();
        },
      },
      drawing.lanes.map((lane, index) => laneOf(lane, index)),
      this.#drawn(s('path', { class: 'graph-implied' }), drawsAll ? implied : []),
      this.#drawn(s('path', { class: 'graph-lines' }), isLegible(direct) ? direct : []),
      this.#flow,
      this.#chosen,
      this.#nodes.map((node) => node.element),
    );
    this.#nodes[0]?.element.setAttribute('tabindex', '0');
    this.#drawFlow();
  }

  /**
   * Show how a step stands.
   * @param {number} index
   * @param {{state?: string, tokens?: number | null}} change
   */
  update(index, change) {
    const node = this.#nodes[index];
    const wasRunning = node.state === 'running';
    node.update(change);
    if (wasRunning === (node.state === 'running') || this.#isFlowStale) return;
    this.#isFlowStale = true; // many steps may change at once, and the lines are drawn once for all
    requestAnimationFrame(() => this.#drawFlow());
  }

  /**
   * Mark a step, and draw a line from everything that it reads.
   * @param {number} index
   */
  select(index) {
    this.#nodes[this.#selected]?.element.setAttribute('aria-pressed', 'false');
    this.#selected = index;
    this.#nodes[index].element.setAttribute('aria-pressed', 'true');
    const { reads } = this.#drawing;
    this.#drawn(this.#chosen, reads.map((own, at) => (at === index ? own : [])));
  }

  /**
   * Draw the lines from what each step is given here to that step.
   * @param {SVGElement} path
   * @param {number[][]} from
   */
  #drawn(path, from) {
    const { places } = this.#drawing;
    const ends = from
      .flatMap((own, index) => own.map((read) => [places[read], places[index]]))
      .slice(0, MOST_LINES);
    const length = ends.reduce((sum, [start, end]) => sum + end.x - start.x, 0);
    path.setAttribute('d', ends.map(([start, end]) => line(start, end)).join(''));
    path.classList.toggle('graph-long', length > LONGEST_DASHED);
    return path;
  }

  #drawFlow() {
    this.#isFlowStale = false;
    const { reads } = this.#drawing;
    const isRunning = (/** @type {number} */ index) => this.#nodes[index].state === 'running';
    const flowing = reads.map((own, index) => (isRunning(index) ? own : []));
    this.#drawn(this.#flow, flowing);
  }

  /** @param {number} index */
  #focus(index) {
    this.#nodes[this.#stop].element.setAttribute('tabindex', '-1');
    this.#stop = index;
    const { element } = this.#nodes[index];
    element.setAttribute('tabindex', '0');
    element.focus();
  }

  /** @param {Event} event */
  #clicked(event) {
    const index = indexOf(event.target);
    if (index === null) return;
    this.#focus(index);
    this.select(index);
    this.#onSelect?.(index);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const index = indexOf(event.target);
    if (index === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Enter' || event.key === ' ') {
      this.select(index);
      this.#onSelect?.(index);
    } else {
      const next = neighbour(this.#drawing.places, index, event.key);
      if (next === null) return;
      this.#focus(next);
    }
    event.preventDefault();
  }
}

/** @param {number[][]} reads */
function isLegible(reads) {
  return reads.reduce((sum, own) => sum + own.length, 0) <= MOST_LINES;
}

/** @param {EventTarget | null} target */
function indexOf(target) {
  const found = target instanceof Element ? target.closest('[data-step]') : null;
  return found === null ? null : Number(found.getAttribute('data-step'));
}

/** One step in the drawing. */
class StepNode {
  #step;
  #index;
  #reads;
  #tokens = /** @type {number | null} */ (null);
  #note = s('text', { class: 'graph-note', x: 10, y: 32 });

  /**
   * @param {import('./layout.js').Step} step
   * @param {number} index
   * @param {ReturnType<typeof layout>} drawing
   */
  constructor(step, index, drawing) {
    this.#step = step;
    this.#index = index;
    this.#reads = drawing.reads[index];
    this.state = step.state ?? 'waiting';
    const { x, y, width } = drawing.places[index];
    this.element = s(
      'g',
      {
        class: 'graph-step',
        transform: `translate(${x} ${y})`,
        tabindex: '-1',
        role: 'button',
        'aria-pressed': 'false',
        'data-step': index,
      },
      s('rect', { width, height: NODE.height, rx: 7 }),
      this.#reads.length > 0 && s('path', { class: 'graph-port', d: PORT }),
      s('text', { x: 10, y: 17 }, s('tspan', { class: 'graph-index' }, index), this.#task(width)),
      this.#note,
    );
    this.update({});
  }

  /** Say it all on hovering. It is made when the pointer comes, for most steps never see one. */
  hover() {
    if (this.element.querySelector('title')) return;
    const { worker, subtask } = this.#step;
    const words = `Step ${this.#index}, ${worker}: ${shorten(subtask, LONGEST_TITLE)}`;
    this.element.prepend(s('title', {}, words));
  }

  /** @param {number} width */
  #task(width) {
    const room = lettersIn(width) - String(this.#index).length;
    return `\u2002${shorten(this.#step.subtask, room)}`;
  }

  /** @param {{state?: string, tokens?: number | null}} change */
  update({ state = this.state, tokens = this.#tokens }) {
    this.state = state;
    this.#tokens = tokens;
    const used = tokens === null ? '' : `, ${countText(tokens)} tokens`;
    const access = this.#reads.length > 0 ? `reads ${inWords(this.#reads)}` : 'reads no other step';
    const { worker } = this.#step;
    const subtask = shorten(this.#step.subtask, LONGEST_SPOKEN);
    const glyph = GLYPHS[/** @type {keyof typeof GLYPHS} */ (state)] ?? OTHER_GLYPH;
    this.#note.textContent = `${glyph} ${state}${used}`;
    this.element.setAttribute('data-state', state);
    this.element.setAttribute(
      'aria-label',
      `Step ${this.#index}, ${worker}, ${state}${used}; ${access}: ${subtask}`,
    );
  }
}

/** @param {number[]} reads */
function inWords(reads) {
  if (reads.length > 8) return `${reads.length} earlier steps`;
  return `${reads.length === 1 ? 'step' : 'steps'} ${reads.join(', ')}`;
}

/**
 * @param {import('./layout.js').Lane} lane
 * @param {number} index
 */
function laneOf(lane, index) {
  return s(
    'g',
    { class: index % 2 ? 'graph-lane graph-lane-odd' : 'graph-lane', 'aria-hidden': 'true' },
    s('rect', { x: 0, y: lane.top, width: '100%', height: lane.height }),
    s(
      'text',
      { x: 10, y: lane.top + lane.height / 2 + 4 },
      s('title', {}, lane.worker),
      shorten(lane.worker, LONGEST_LANE),
    ),
  );
}

/**
 * @param {string} label
 * @param {number} steps
 * @param {number} workers
 */
function spokenLabel(label, steps, workers) {
  const by = `${workers} ${workers === 1 ? 'worker' : 'workers'}`;
  return `${label}: ${steps} ${steps === 1 ? 'step' : 'steps'} by ${by}`;
}
