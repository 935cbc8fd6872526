// A workflow drawn: a lane for each worker, a column for each depth, a line for each result that
// a step reads. States change in place, so that a run can be watched. Where things stand is
// `layout.js`.
//
// One step is a tab stop; arrow keys go from step to step, Enter and the space bar select one.

import { h, replace, s } from '../lib/dom.js';
import { countText, shorten } from '../lib/format.js';
import { NODE, layout, lettersIn, line, neighbour } from './layout.js';

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

/** What stands beside a drawing on a page, until it is known how much room it has. */
const AROUND = 120;
const MOST_ROOM = 960;

/** Narrower steps show no words, and these in turn only a mark. */
const NARROWEST_WITH_WORDS = 110;
const NARROWEST_WITH_STATE = 80;

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
  #steps;
  #label;
  /** @type {ReturnType<typeof layout>} */
  #drawing;
  /** @type {StepNode[]} */
  #nodes = [];
  #svg = s('svg', { class: 'graph', role: 'group' });
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
    this.#steps = steps;
    this.#label = label;
    this.#onSelect = onSelect;
    this.#drawing = layout(steps, Math.min(MOST_ROOM, innerWidth - AROUND));
    this.#draw();
    /** What to say beside a drawing that leaves something out; empty for most. */
    this.hint = isLegible(this.#drawing.reads)
      ? ''
      : 'Select a step to see a line to all that it reads.';
    this.#svg.addEventListener('click', (event) => this.#clicked(event));
    this.#svg.addEventListener('keydown', (event) => this.#pressed(event));
    this.#svg.addEventListener('pointerover', (event) => {
      const index = indexOf(event.target);
      if (index !== null) this.#nodes[index].hover();
    });
    this.element = h('div', { class: 'graph-box', tabindex: '-1' }, this.#svg);
    new ResizeObserver(() => this.#fit()).observe(this.element);
  }

  /** Lay it out anew where the room for it has changed. */
  #fit() {
    const room = this.element.clientWidth;
    if (room === 0) return; // folded away
    const drawing = layout(this.#steps, room);
    if (drawing.width === this.#drawing.width && drawing.longestLane === this.#drawing.longestLane) return;
    const isFocused = this.#svg.contains(document.activeElement);
    this.#drawing = drawing;
    this.#draw();
    if (this.#selected >= 0) this.select(this.#selected);
    if (isFocused) this.#nodes[this.#stop].element.focus();
  }

  #draw() {
    const { reads, direct, implied, lanes, width, height, longestLane } = this.#drawing;
    const earlier = this.#nodes;
    this.#nodes = this.#steps.map(
      (step, index) => new StepNode(step, index, this.#drawing, earlier[index]),
    );
    this.#svg.setAttribute('width', String(width));
    this.#svg.setAttribute('height', String(height));
    this.#svg.setAttribute('aria-label', spokenLabel(this.#label, this.#steps.length, lanes.length));
    replace(
      this.#svg,
      lanes.map((lane, index) => laneOf(lane, index, longestLane)),
      this.#drawn(s('path', { class: 'graph-implied' }), isLegible(reads) ? implied : []),
      this.#drawn(s('path', { class: 'graph-lines' }), isLegible(direct) ? direct : []),
      this.#flow,
      this.#chosen,
      this.#nodes.map((node) => node.element),
    );
    this.#nodes[this.#stop]?.element.setAttribute('tabindex', '0');
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
  #width;
  /** @type {number | null} */
  #tokens;
  #note = s('text', { class: 'graph-note', x: 10, y: 32 });

  /**
   * @param {import('./layout.js').Step} step
   * @param {number} index
   * @param {ReturnType<typeof layout>} drawing
   * @param {StepNode} [earlier] The same step in a drawing that this one replaces.
   */
  constructor(step, index, drawing, earlier) {
    const { x, y, width } = drawing.places[index];
    this.#step = step;
    this.#index = index;
    this.#reads = drawing.reads[index];
    this.#width = width;
    this.#tokens = earlier ? earlier.#tokens : null;
    this.state = earlier?.state ?? step.state ?? 'waiting';
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
    if (width < NARROWEST_WITH_WORDS) return null;
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
    const words = this.#width < NARROWEST_WITH_STATE ? '' : ` ${state}`;
    this.#note.textContent = `${glyph}${words}${this.#width < NODE.narrow ? '' : used}`;
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
 * @param {number} longest How many letters of the worker's name are shown.
 */
function laneOf(lane, index, longest) {
  return s(
    'g',
    { class: index % 2 ? 'graph-lane graph-lane-odd' : 'graph-lane', 'aria-hidden': 'true' },
    s('rect', { x: 0, y: lane.top, width: '100%', height: lane.height }),
    s(
      'text',
      { x: 10, y: lane.top + lane.height / 2 + 4 },
      s('title', {}, lane.worker),
      shorten(lane.worker, longest),
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
