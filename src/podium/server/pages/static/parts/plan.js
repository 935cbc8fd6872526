// A workflow being edited, as plain values: what is wrong with it by the server's own rules, and
// the changes that keep its access meaningful. Pure: the form is `editor.js`.

/**
 * @typedef {{worker: string, subtask: string, access: 'all' | number[], if?: string}} Step
 * @typedef {{index: number | null, field: 'worker' | 'subtask' | 'access' | 'steps',
 *   message: string}} Problem
 */

/**
 * Everything that the server would refuse. `index` is null where the workflow as a whole is meant.
 * @param {Step[]} steps
 * @param {string[]} workers
 * @returns {Problem[]}
 */
export function problems(steps, workers) {
  if (!steps.length) {
    const message = 'The workflow has no steps; give it at least one.';
    return [{ index: null, field: 'steps', message }];
  }
  return steps.flatMap((step, index) => [
    ...workerProblems(step, index, workers),
    ...subtaskProblems(step, index),
    ...accessProblems(step, index),
  ]);
}

/**
 * The step with which a message of the server finds fault; null where it names none.
 * @param {string} message
 * @param {number} length how many steps there are
 * @returns {number | null}
 */
export function stepNamed(message, length) {
  const found = /\bstep (\d+)\b/i.exec(message);
  const index = found ? Number(found[1]) : length;
  return index < length ? index : null;
}

/**
 * The steps with one of them somewhere else. Whoever read a step still reads it, even where it
 * now comes later: that is a problem to be shown, not one to be solved silently.
 * @param {Step[]} steps
 * @param {number} from
 * @param {number} to
 * @returns {Step[]}
 */
export function moved(steps, from, to) {
  const order = steps.map((_, index) => index);
  order.splice(to, 0, ...order.splice(from, 1));
  return renumbered(
    order.map((old) => steps[old]),
    (read) => order.indexOf(read),
  );
}

/**
 * The steps without one of them; no step reads it any more.
 * @param {Step[]} steps
 * @param {number} gone
 * @returns {Step[]}
 */
export function removed(steps, gone) {
  return renumbered(
    steps.filter((_, index) => index !== gone),
    (read) => (read === gone ? null : read - (read > gone ? 1 : 0)),
  );
}

/**
 * The steps with a new one before the last: the last step's reply is the answer, and stays so.
 * @param {Step[]} steps
 * @param {string} worker
 * @returns {{steps: Step[], added: number}}
 */
export function added(steps, worker) {
  const place = Math.max(steps.length - 1, 0);
  const later = renumbered(steps, (read) => (read >= place ? read + 1 : read));
  const step = { worker, subtask: '', access: [] };
  return { steps: [...later.slice(0, place), step, ...later.slice(place)], added: place };
}

/**
 * Whether two workflows are the same.
 * @param {Step[]} one
 * @param {Step[]} other
 */
export function isSame(one, other) {
  return JSON.stringify(one.map(essence)) === JSON.stringify(other.map(essence));
}

/**
 * A step with what a workflow holds of it, and nothing else.
 * @param {Step} step
 * @returns {Step}
 */
export function essence({ worker, subtask, access, if: condition }) {
  /** @type {Step} */
  const step = { worker, subtask, access: access === 'all' ? 'all' : [...access] };
  return condition ? { ...step, if: condition } : step;
}

/**
 * @param {Step[]} steps
 * @param {(read: number) => number | null} renumber
 */
function renumbered(steps, renumber) {
  return steps.map((before) => {
    const step = withCondition(before, renumber);
    if (step.access === 'all') return step;
    const access = step.access.map(renumber).filter((read) => read !== null);
    return { ...step, access: access.sort((a, b) => a - b) };
  });
}

/**
 * The step with its condition renumbered, or without it where a step it names is gone.
 * @param {Step} step
 * @param {(read: number) => number | null} renumber
 * @returns {Step}
 */
function withCondition({ if: condition, ...step }, renumber) {
  if (!condition) return step;
  const [predicate, ...named] = condition.split(' ');
  const steps = named.map((index) => renumber(Number(index)));
  return steps.includes(null) ? step : { ...step, if: [predicate, ...steps].join(' ') };
}

/**
 * @param {Step} step
 * @param {number} index
 * @param {string[]} workers
 * @returns {Problem[]}
 */
function workerProblems({ worker }, index, workers) {
  if (workers.includes(worker)) return [];
  const message = `There is no worker “${worker}” in the pool; it has ${workers.join(', ')}.`;
  return [{ index, field: 'worker', message }];
}

/** @returns {Problem[]} */
function subtaskProblems(/** @type {Step} */ { subtask }, /** @type {number} */ index) {
  if (subtask.trim()) return [];
  const message = `Step ${index} has an empty subtask; say what to do.`;
  return [{ index, field: 'subtask', message }];
}

/** @returns {Problem[]} */
function accessProblems(/** @type {Step} */ { access }, /** @type {number} */ index) {
  if (access === 'all') return [];
  const earlier = index ? ` (0 to ${index - 1})` : ' and this is the first';
  return access
    .filter((read) => read >= index)
    .map((read) => ({
      index,
      field: 'access',
      message: `Step ${index} may not read step ${read}; a step reads only earlier ones${earlier}.`,
    }));
}
