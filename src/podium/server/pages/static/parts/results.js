// The samples of an evaluation, task by task: the question, what each strategy answered and how it
// was graded; opened, every plan, prompt and reply. Two evaluations are compared in the same way.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { countText, duration, percentText, snippet, usd } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { fold } from './fold.js';
import { planning } from './rounds.js';
import { stepPart } from './step.js';
import { fromRecord } from './trace.js';

const AT_ONCE = 100;

/**
 * A strategy of an evaluation; `label` says which evaluation, where there are two.
 * @typedef {{evaluation: string, strategy: string, label: string}} Column
 * @typedef {{key: string, task: string, repeat: number, kind: string, suite: string,
 *   question: string, expected: string, samples: (any | null)[]}} Row A sample for each column.
 */

/**
 * @param {{column: Column, samples: any[]}[]} columns
 * @returns {Row[]} The tasks that any of them answered, in the order of the first.
 */
function rowsOf(columns) {
  /** @type {Map<string, Row>} */
  const rows = new Map();
  columns.forEach(({ samples }, place) => {
    for (const sample of samples) {
      const { task, kind, question, expected } = sample;
      const repeat = sample.repeat ?? 0;
      const key = `${task} ${repeat}`;
      const row = rows.get(key) ?? {
        key,
        task,
        repeat,
        kind: kind || 'other',
        suite: String(task).includes('/') ? String(task).replace(/\/[^/]*$/, '') : '',
        question: question ?? '',
        expected: expected ?? '',
        samples: columns.map(() => null),
      };
      row.question ||= question ?? '';
      row.samples[place] = sample;
      rows.set(key, row);
    }
  });
  return [...rows.values()];
}

/** @type {Record<string, [string, (row: Row) => boolean]>} */
const FILTERS = {
  all: ['all', () => true],
  wrong: ['wrong', ({ samples }) => samples.some((sample) => sample && !sample.right)],
  disagreed: ['disagreed', ({ samples }) => new Set(known(samples).map(({ right }) => right)).size > 1],
  gained: ['right only on the right', ({ samples: [one, other] }) => !one?.right && other?.right],
  lost: ['right only on the left', ({ samples: [one, other] }) => one?.right && !other?.right],
  failed: ['failed', ({ samples }) => samples.some((sample) => sample?.error)],
};

/** @param {(any | null)[]} samples */
function known(samples) {
  return samples.filter((sample) => sample !== null);
}

/**
 * @param {{column: Column, samples: any[]}[]} columns
 * @param {AbortSignal} signal
 * @returns {HTMLElement}
 */
export function resultTable(columns, signal) {
  const rows = rowsOf(columns);
  const isPair = columns.length === 2;
  const list = h('div', { class: 'results', role: 'list' });
  const told = h('p', { class: 'small quiet-text', role: 'status' });
  const more = h('button', { type: 'button', class: 'small', onclick: () => draw(shown + AT_ONCE) }, 'Show more');
  let shown = AT_ONCE;
  const names = Object.keys(FILTERS).filter((name) => isPair || !['gained', 'lost'].includes(name));
  const show = select('result-show', names.map((name) => [name, FILTERS[name][0]]));
  const kinds = values(rows, 'kind');
  const kind = select('result-kind', [['', 'any'], ...kinds.map(twice)]);
  const suites = values(rows, 'suite');
  const suite = select('result-suite', [['', 'any'], ...suites.map(twice)]);
  const text = /** @type {HTMLInputElement} */ (
    h('input', { id: 'result-text', type: 'search', placeholder: 'in questions and answers' })
  );

  /** @param {number} most */
  function draw(most) {
    shown = most;
    const words = text.value.trim().toLowerCase();
    const found = rows.filter(
      (row) =>
        FILTERS[show.value][1](row) &&
        (!kind.value || row.kind === kind.value) &&
        (!suite.value || row.suite === suite.value) &&
        (!words || textOf(row).includes(words)),
    );
    replace(told, `${countText(found.length)} of ${countText(rows.length)} tasks`, outcome(found));
    replace(list, found.slice(0, most).map((row) => rowPart(row, columns, signal)));
    more.hidden = found.length <= most;
  }

  /** What each got right of them; where there are two, how they differ. @param {Row[]} found */
  function outcome(found) {
    const each = columns.map(({ column }, at) => {
      const graded = found.flatMap(({ samples }) => samples[at] ?? []);
      const share = graded.filter(({ right }) => right).length / graded.length;
      return graded.length ? `${column.label} ${percentText(share)} right` : `${column.label} none`;
    });
    const both = found.filter(({ samples }) => known(samples).length === columns.length);
    const [gained, lost] = [FILTERS.gained, FILTERS.lost].map(([, test]) => both.filter(test).length);
    return `: ${each.join(', ')}${isPair ? `; ${gained} gained, ${lost} lost` : ''}`;
  }

  const form = h(
    'form',
    { class: 'field-row', oninput: () => draw(AT_ONCE), onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    labelled('Show', show),
    kinds.length > 1 && labelled('Kind', kind),
    suites.length > 1 && labelled('Suite', suite),
    labelled('Search', text),
  );
  draw(AT_ONCE);
  return h('div', { class: 'result-box' }, form, told, list, h('div', { class: 'buttons' }, more));
}

/** @param {Row} row */
function textOf({ question, expected, samples }) {
  const said = known(samples).map(({ answer }) => answer ?? '');
  return [question, expected, ...said].join('\n').toLowerCase();
}

/**
 * @param {Row[]} rows
 * @param {'kind' | 'suite'} name
 */
function values(rows, name) {
  return [...new Set(rows.map((row) => row[name]))].sort();
}

/** @param {string} value @returns {[string, string]} */
function twice(value) {
  return [value, value || 'none'];
}

/**
 * @param {string} id
 * @param {[string, string][]} options
 */
export function select(id, options) {
  return /** @type {HTMLSelectElement} */ (
    h('select', { id }, options.map(([value, words]) => h('option', { value }, words)))
  );
}

/**
 * @param {string} words
 * @param {HTMLElement} control
 */
export function labelled(words, control) {
  return h('div', { class: 'field' }, h('label', { for: control.id }, words), control);
}

/**
 * @param {Row} row
 * @param {{column: Column}[]} columns
 * @param {AbortSignal} signal
 */
function rowPart(row, columns, signal) {
  const body = h('div', { class: 'result-body' });
  const fill = () => {
    if (body.hasChildNodes()) return;
    replace(
      body,
      h('p', { class: 'plain result-question' }, row.question || `Task ${row.task}`),
      row.expected && h('p', {}, h('span', { class: 'quiet-text' }, 'Expected: '), row.expected),
      h(
        'div',
        { class: columns.length > 2 ? 'result-columns many' : 'result-columns' },
        columns.map(({ column }, at) => answerPart(column, row, row.samples[at], signal)),
      ),
    );
  };
  return h(
    'div',
    { role: 'listitem' },
    h(
      'details',
      { class: 'result', ontoggle: fill },
      h(
        'summary',
        {},
        h('span', { class: 'result-title' }, snippet(row.question) || row.task),
        h(
          'span',
          { class: 'badges' },
          columns.map(({ column }, at) => gradeBadge(row.samples[at], column.label)),
        ),
      ),
      body,
    ),
  );
}

/**
 * @param {any | null} sample
 * @param {string} [label]
 */
function gradeBadge(sample, label) {
  const [words, kind, sign] = !sample
    ? ['not there', '', '–']
    : sample.error && !sample.right
      ? ['failed', 'warn', '!']
      : sample.right
        ? ['right', 'good', '✓']
        : ['wrong', 'bad', '✗'];
  if (!label) return h('span', { class: `badge ${kind}` }, words);
  return h(
    'span',
    { class: `badge ${kind}`, title: `${label}: ${words}` },
    label,
    h('span', { 'aria-hidden': 'true' }, ` ${sign}`),
    h('span', { class: 'visually-hidden' }, ` ${words}`),
  );
}

/**
 * @param {Column} column
 * @param {Row} row
 * @param {any | null} sample
 * @param {AbortSignal} signal
 */
function answerPart(column, row, sample, signal) {
  const head = h('h3', {}, column.label, ' ', gradeBadge(sample));
  const label = { 'aria-label': `${column.label} on ${row.task}` };
  if (!sample) return h('article', { class: 'card', ...label }, head, h('p', { class: 'quiet-text' }, 'Not answered.'));
  const answer = sample.answer ?? '';
  return h(
    'article',
    { class: 'card', ...label },
    head,
    h('div', { class: 'prose result-answer' }, answer ? markdown(answer) : h('p', { class: 'quiet-text' }, 'no answer')),
    h('p', { class: 'small' }, why(sample)),
    h(
      'p',
      { class: 'small quiet-text' },
      usd(sample.cost_usd),
      ' · ',
      sample.cached_calls ? 'cached replies' : duration(sample.seconds),
      ` · ${countText(sample.calls)} ${sample.calls === 1 ? 'call' : 'calls'}`,
    ),
    fold('Plan, prompts and replies', () => whole(column, row, signal)),
  );
}

const GRADERS = /** @type {Record<string, string>} */ ({
  ContainsGrader: 'the answer must contain',
  ExactGrader: 'the answer must be the words',
  LetterGrader: 'the chosen letter must be',
  NumberGrader: 'the number must be',
  PercentGrader: 'the percentage must be',
  MathGrader: 'the mathematics must equal',
});

/**
 * How the grade came about.
 * @param {any} sample
 */
function why({ right, error, error_source: source, judge, grader = '', expected, valid }) {
  if (error) return `${source ? `${source}: ` : ''}${error}`;
  const grade = right ? 'Right' : 'Wrong';
  const plan = valid === false ? ' The plan was not carried out as written.' : '';
  if (judge) return `${grade}, as ${judge} judged.${plan}`;
  const rule = GRADERS[grader];
  if (rule && expected) return `${grade}: ${rule} “${expected}”.${plan}`;
  const by = grader ? `, by ${grader}` : '';
  return `${grade}${by}${expected ? `; expected “${expected}”` : ''}.${plan}`;
}

/**
 * @param {Column} column
 * @param {Row} row
 * @param {AbortSignal} signal
 */
async function whole({ evaluation, strategy }, { task, repeat }, signal) {
  const query = new URLSearchParams({ strategy, task, repeat: String(repeat) });
  const address = `/v1/experiments/${encodeURIComponent(evaluation)}/results/run?${query}`;
  const { run, details } = await get(address, { signal });
  const load = async (/** @type {number} */ round, /** @type {number} */ index, nested = run.run_id) =>
    details.find(
      (/** @type {any} */ step) => step.run_id === nested && step.round === round && step.index === index,
    );
  const trace = fromRecord(run);
  return h(
    'div',
    { class: 'result-run' },
    h('p', { class: 'small quiet-text' }, `${run.status}, planned by ${run.conductor}`),
    trace.rounds.map((round) => [
      planning(round, run.rounds[round.index]),
      h('div', { class: 'steps' }, round.steps.map((step) => stepPart(step, { load }).element)),
    ]),
  );
}

/**
 * Fetch the samples of an evaluation.
 * @param {string} name
 * @param {AbortSignal} signal
 * @param {boolean} [inBackground]
 */
export async function fetchResults(name, signal, inBackground = false) {
  return get(`/v1/experiments/${encodeURIComponent(name)}/results`, { signal, inBackground });
}

