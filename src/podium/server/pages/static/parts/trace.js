// A run as its page shows it: from its record, from its events, or from one and then the other.
// Nothing here touches the document.

/**
 * @typedef {'waiting' | 'running' | 'done' | 'failed' | 'skipped' | 'cancelled' | 'held'} State
 * `waiting`: for the steps that it reads. `held`: for the results of the client's tools.
 *
 * @typedef {{worker: string, started_ms: number, finished_ms: number, error: string | null,
 *   input_tokens: number | null, output_tokens: number | null, cost_usd: number | null}} Attempt
 *
 * @typedef {{round: number, index: number, worker: string, subtask: string,
 *   access: 'all' | number[], state: State, reply: string, error: string | null,
 *   answered_by: string, attempts: Attempt[], retries: {worker: string, error: string}[],
 *   tokens: number | null | undefined, cost_usd: number | null | undefined,
 *   started_ms: number | null, finished_ms: number | null, nested: string[]}} StepTrace
 *
 * @typedef {{index: number, accepts_answer: boolean, steps: StepTrace[], warnings: string[],
 *   planning_attempts: Attempt[], plan_text: string, shape: string | null, role: string | null,
 *   routing: {explanation: string} | null}} RoundTrace
 * `role` is what a turn was there for, and `routing` what a learned router decided, where one was
 * asked.
 *
 * @typedef {{id: string, status: string, is_executing: boolean | null, answer: string | null,
 *   rounds: RoundTrace[], document: any}} Trace
 * `document` is the last complete run document from the server.
 */

/** What a step's status on record is called here: a step that waits has called tools. */
const STATE_OF = Object.freeze({ waiting: 'held' });

/**
 * The trace of a run on record.
 * @param {any} document What `GET /v1/runs/{id}` answers.
 * @returns {Trace}
 */
export function fromRecord(document) {
  /** @type {Trace} */
  const trace = {
    id: document.run_id,
    status: document.status,
    is_executing: document.is_executing,
    answer: document.answer,
    rounds: [],
    document,
  };
  for (const round of document.rounds) {
    const planned = plannedRound(round.index, round);
    planned.shape = round.shape;
    planned.planning_attempts = round.planning_attempts ?? [];
    planned.plan_text = round.plan_text ?? '';
    trace.rounds.push(planned);
  }
  for (const step of document.steps) settle(trace, step);
  return trace;
}

/**
 * The trace of a running run before any of its events: the stream replays the earlier ones.
 * @param {any} document
 * @returns {Trace}
 */
export function beforeEvents(document) {
  return { ...fromRecord({ ...document, rounds: [], steps: [] }), answer: null, status: 'running' };
}

/**
 * Take the next event of the run.
 * @param {Trace} trace
 * @param {string} name
 * @param {any} data
 * @returns {{round?: number, index?: number, kind: 'nothing' | 'plan' | 'step' | 'words' | 'end'}}
 *   What has changed. Events of nested runs change nothing: they are shown when their step is done.
 */
export function take(trace, name, data) {
  if (data.run_id !== trace.id) return { kind: 'nothing' };
  const position = { round: data.round, index: data.index };
  switch (name) {
    case 'round_planned':
      trace.rounds[data.round] = plannedRound(data.round, data);
      trace.answer = data.accepts_answer ? trace.answer : null;
      return { ...position, kind: 'plan' };
    case 'step_started':
      return begin(trace, data) ? { ...position, kind: 'step' } : { kind: 'nothing' };
    case 'step_retried':
      stepOf(trace, data)?.retries.push({ worker: data.worker, error: data.error });
      return { ...position, kind: 'step' };
    case 'step_delta':
      if (data.thinking) return { kind: 'nothing' };
      trace.answer = (trace.answer ?? '') + data.text;
      return { ...position, kind: 'words' };
    case 'step_done':
      settle(trace, data);
      return { ...position, kind: 'step' };
    case 'run_done':
      trace.status = data.status;
      trace.answer = data.answer;
      return { kind: 'end' };
    default:
      return { kind: 'nothing' };
  }
}

/**
 * How far the run had got by what is known of its steps, in milliseconds since it began.
 * @param {RoundTrace[]} rounds
 * @returns {number}
 */
export function lastKnown(rounds) {
  let last = 0;
  for (const round of rounds) {
    for (const call of round.planning_attempts) last = Math.max(last, call.finished_ms);
    for (const step of round.steps) last = Math.max(last, step.finished_ms ?? 0);
  }
  return last;
}

/**
 * The earlier steps of the round that a step may read.
 * @param {{index: number, access: 'all' | number[]}} step
 * @returns {number[]}
 */
export function reads(step) {
  return step.access === 'all' ? Array.from({ length: step.index }, (_, i) => i) : step.access;
}

/**
 * @param {number} index
 * @param {any} planned A round on record, or the event of its planning.
 * @returns {RoundTrace}
 */
function plannedRound(index, planned) {
  const steps = planned.workflow?.steps ?? [];
  return {
    index,
    accepts_answer: planned.accepts_answer,
    warnings: planned.warnings ?? [],
    routing: planned.routing ?? null,
    planning_attempts: [],
    plan_text: '',
    shape: null,
    role: planned.role ?? null,
    steps: steps.map((/** @type {any} */ step, /** @type {number} */ at) => ({
      round: index,
      index: at,
      worker: step.worker,
      subtask: step.subtask,
      access: step.access,
      state: 'waiting',
      reply: '',
      error: null,
      answered_by: '',
      attempts: [],
      retries: [],
      tokens: undefined,
      cost_usd: undefined,
      started_ms: null,
      finished_ms: null,
      nested: [],
    })),
  };
}

/**
 * @param {Trace} trace
 * @param {{round: number, index: number}} place
 * @returns {StepTrace | undefined}
 */
function stepOf(trace, { round, index }) {
  return trace.rounds[round]?.steps[index];
}

/**
 * A step begins the moment the last of those that it reads has ended.
 * @param {Trace} trace
 * @param {any} data
 */
function begin(trace, data) {
  const step = stepOf(trace, data);
  if (!step) return false;
  const round = trace.rounds[data.round].steps;
  const inputs = reads(step).map((read) => round[read]?.finished_ms ?? 0);
  step.state = 'running';
  step.started_ms = inputs.length ? Math.max(...inputs) : beginningOf(trace, data.round);
  return true;
}

/**
 * @param {Trace} trace
 * @param {number} round
 */
function beginningOf(trace, round) {
  const before = trace.rounds[round - 1]?.steps ?? [];
  return Math.max(0, ...before.map((step) => step.finished_ms ?? 0));
}

/**
 * Note how a step ended.
 * @param {Trace} trace
 * @param {any} ended
 */
function settle(trace, ended) {
  const step = stepOf(trace, ended);
  if (!step) return;
  const { input_tokens: read, output_tokens: written } = ended.usage;
  Object.assign(step, {
    state: STATE_OF[/** @type {'waiting'} */ (ended.status)] ?? ended.status,
    reply: ended.reply,
    error: ended.error,
    answered_by: ended.answered_by ?? '',
    attempts: ended.attempts ?? [],
    tokens: read === null || written === null ? null : read + written,
    cost_usd: ended.cost_usd,
    started_ms: ended.started_ms,
    finished_ms: ended.finished_ms,
    nested: ended.nested ?? [],
  });
}
