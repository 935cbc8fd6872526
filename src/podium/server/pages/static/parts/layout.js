// Where the steps of a workflow stand in a drawing, which lines join them, and which is next to
// which. Pure: it knows nothing of the page. Lanes are workers, columns are depth: a step stands to
// the right of all that it reads.

/**
 * @typedef {{worker: string, subtask: string, access: 'all' | number[], state?: string}} Step
 * @typedef {{x: number, y: number, width: number, column: number, lane: number}} Place
 * @typedef {{worker: string, top: number, height: number}} Lane
 */

export const NODE = Object.freeze({ narrowest: 56, narrow: 148, widest: 320, height: 40, inset: 10 });

/** `tight` is between columns where there is no room for steps with words. */
const GAP = Object.freeze({ column: 44, tight: 20, row: 12, lane: 20 });
const MARGIN = Object.freeze({ right: 16, top: 4 });

/** Workers' names stand to the left of their lanes; longer ones are cut off, sooner in a narrow
 * drawing. */
const LONGEST_LANE = 20;
const LONGEST_NARROW_LANE = 10;
const NARROW_ROOM = 480;
const LETTER = 7.5;

/**
 * The earlier steps that each step receives.
 * @param {Step[]} steps
 * @returns {number[][]}
 */
function readsOf(steps) {
  return steps.map((step, index) =>
    step.access === 'all'
      ? Array.from({ length: index }, (_, earlier) => earlier)
      : step.access.filter((read) => read >= 0 && read < index),
  );
}

/**
 * The reads that no other read implies: what is reached through a step in between needs no line
 * of its own.
 * @param {number[][]} reads
 * @returns {number[][]}
 */
function directReads(reads) {
  const words = Math.ceil(reads.length / 32);
  const reachable = reads.map(() => new Uint32Array(words));
  return reads.map((own, index) => {
    const implied = new Uint32Array(words);
    for (const read of own) {
      const further = reachable[read];
      for (let word = 0; word < words; word += 1) implied[word] |= further[word];
    }
    const direct = own.filter((read) => !(implied[read >> 5] & (1 << (read & 31))));
    for (const read of own) implied[read >> 5] |= 1 << (read & 31);
    reachable[index] = implied;
    return direct;
  });
}

/**
 * The whole drawing: a place for every step, lanes, lines and the size.
 * @param {Step[]} steps
 * @param {number} room How wide it should be: steps are as wide as their words where they can be,
 * and shrink to their numbers where they must.
 * `reads` are all reads of each step: the `direct` ones, and those that others imply.
 * @returns {{places: Place[], lanes: Lane[], reads: number[][], direct: number[][],
 *   implied: number[][], width: number, height: number, longestLane: number}}
 */
export function layout(steps, room) {
  const reads = readsOf(steps);
  const direct = directReads(reads);
  const columns = depths(direct);
  const workers = [...new Set(steps.map((step) => step.worker))];
  const rows = rowsWithinLanes(steps, columns);
  const lanes = lanesOf(workers, steps, rows);
  const longestLane = room < NARROW_ROOM ? LONGEST_NARROW_LANE : LONGEST_LANE;
  const left = roomForNames(workers, longestLane);
  const { width, gap } = widthOfSteps(steps, columns, room - left - MARGIN.right);
  const laneOf = new Map(workers.map((worker, lane) => [worker, lane]));
  const places = steps.map((step, index) => {
    const lane = laneOf.get(step.worker) ?? 0;
    const inset = GAP.lane / 2;
    return {
      column: columns[index],
      lane,
      width,
      x: left + columns[index] * (width + gap),
      y: lanes[lane].top + inset + rows[index] * (NODE.height + GAP.row),
    };
  });
  const last = lanes[lanes.length - 1];
  const right = Math.max(...places.map((place) => place.x), left);
  return {
    places,
    lanes,
    reads,
    direct,
    implied: reads.map((own, index) => without(own, direct[index])),
    width: right + width + MARGIN.right,
    height: (last ? last.top + last.height : 0) + MARGIN.top,
    longestLane,
  };
}

/**
 * The line from one step to another, as the data of an SVG path.
 * @param {Place} from
 * @param {Place} to
 * @returns {string}
 */
export function line(from, to) {
  const x1 = from.x + from.width;
  const y1 = from.y + NODE.height / 2;
  const x2 = to.x;
  const y2 = to.y + NODE.height / 2;
  const bend = Math.max(GAP.tight / 2, (x2 - x1) / 2);
  // A line along a row would run behind the steps between its ends: it goes around them.
  const around = y1 === y2 && to.column - from.column > 1 ? NODE.height : 0;
  return `M${x1} ${y1}C${x1 + bend} ${y1 - around} ${x2 - bend} ${y2 - around} ${x2} ${y2}`;
}

/**
 * The step to go to from another by a key, or null where that key means nothing.
 * @param {Place[]} places
 * @param {number} index
 * @param {string} key
 * @returns {number | null}
 */
export function neighbour(places, index, key) {
  if (key === 'Home') return 0;
  if (key === 'End') return places.length - 1;
  const here = places[index];
  const ahead = {
    ArrowRight: (/** @type {typeof here} */ place) => place.x - here.x,
    ArrowLeft: (/** @type {typeof here} */ place) => here.x - place.x,
    ArrowDown: (/** @type {typeof here} */ place) => place.y - here.y,
    ArrowUp: (/** @type {typeof here} */ place) => here.y - place.y,
  }[key];
  if (ahead === undefined) return null;
  const sideways = key === 'ArrowRight' || key === 'ArrowLeft' ? 'y' : 'x';
  let best = index;
  let least = Infinity;
  places.forEach((place, other) => {
    const distance = ahead(place);
    if (distance <= 0) return;
    // What lies in the same row or column comes first, then what is nearest.
    const cost = distance + 3 * Math.abs(place[sideways] - here[sideways]);
    if (cost < least) [best, least] = [other, cost];
  });
  return best;
}

/**
 * @param {number[]} reads
 * @param {number[]} others
 */
function without(reads, others) {
  const left = new Set(others);
  return reads.filter((read) => !left.has(read));
}

/**
 * @param {string[]} workers
 * @param {number} most How many letters of a name are shown.
 */
function roomForNames(workers, most) {
  const longest = Math.max(0, ...workers.map((worker) => Math.min(worker.length, most)));
  return Math.round(longest * LETTER) + 28;
}

/**
 * How many letters go on one line of a step.
 * @param {number} width
 */
export function lettersIn(width) {
  return Math.floor((width - 2 * NODE.inset) / LETTER) + 1;
}

/**
 * @param {Step[]} steps
 * @param {number[]} columns
 * @param {number} room
 */
function widthOfSteps(steps, columns, room) {
  const many = columns.reduce((most, column) => Math.max(most, column + 1), 1);
  const longest = steps.reduce((most, { subtask }) => Math.max(most, subtask.length), 0);
  const wanted = (longest + String(steps.length).length + 1) * LETTER + 2 * NODE.inset;
  const fitting = (/** @type {number} */ gap) => Math.floor((room + gap) / many) - gap;
  const gap = fitting(GAP.column) < NODE.narrow ? GAP.tight : GAP.column;
  const useful = Math.max(NODE.narrow, Math.min(Math.ceil(wanted), NODE.widest));
  return { width: Math.max(NODE.narrowest, Math.min(useful, fitting(gap))), gap };
}

/** @param {number[][]} direct */
function depths(direct) {
  /** @type {number[]} */
  const columns = [];
  for (const own of direct) {
    columns.push(1 + own.reduce((most, read) => Math.max(most, columns[read]), -1));
  }
  return columns;
}

/**
 * Steps of one worker that could run at once stand below one another.
 * @param {Step[]} steps
 * @param {number[]} columns
 */
function rowsWithinLanes(steps, columns) {
  /** @type {Map<string, number>} */
  const taken = new Map();
  return steps.map((step, index) => {
    const cell = `${columns[index]} ${step.worker}`;
    const row = taken.get(cell) ?? 0;
    taken.set(cell, row + 1);
    return row;
  });
}

/**
 * @param {string[]} workers
 * @param {Step[]} steps
 * @param {number[]} rows
 * @returns {Lane[]}
 */
function lanesOf(workers, steps, rows) {
  /** @type {Map<string, number>} */
  const deepest = new Map();
  steps.forEach((step, index) => {
    deepest.set(step.worker, Math.max(deepest.get(step.worker) ?? 0, rows[index]));
  });
  let top = MARGIN.top;
  return workers.map((worker) => {
    const count = (deepest.get(worker) ?? 0) + 1;
    const height = count * NODE.height + (count - 1) * GAP.row + GAP.lane;
    const lane = { worker, top, height };
    top += height;
    return lane;
  });
}
