// Two runs side by side: how they stand, their answers, and their plans step by step with what each
// worker received and replied.

import { get } from '../lib/api.js';
import { diff } from '../lib/diff.js';
import { h, replace } from '../lib/dom.js';
import { count, duration, shorten, usd, when } from '../lib/format.js';
import { markdown } from '../lib/markdown.js';
import { failure, loading } from '../lib/states.js';
import { fold } from '../parts/fold.js';
import { conversation } from '../parts/messages.js';
import { readsInWords } from '../parts/matrix.js';
import { TIERS } from '../parts/run-head.js';
import { statusBadge } from '../parts/status.js';
import { stateBadge } from '../parts/step.js';
import { facts } from '../parts/table.js';
import { fromRecord } from '../parts/trace.js';

export const title = 'Compare runs';

const LONGEST_TITLE = 120;

/** @typedef {import('../parts/trace.js').StepTrace} StepTrace */
/** @typedef {{run: any, trace: import('../parts/trace.js').Trace}} Side */

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
export async function show(root, { query, signal }) {
  const ids = query.getAll('run').slice(0, 2);
  const head = [
    h('p', { class: 'crumb' }, h('a', { href: '/runs' }, '← Runs')),
    h('div', { class: 'page-head' }, h('h1', {}, title)),
  ];
  if (ids.length < 2) {
    replace(root, head, h('p', {}, 'Select two runs in the list of runs, and choose Compare.'));
    return;
  }
  replace(root, head, loading('Loading both runs…'));
  try {
    const runs = await Promise.all(
      ids.map((id) => get(`/v1/runs/${encodeURIComponent(id)}`, { signal })),
    );
    const sides = runs.map((run) => ({ run, trace: fromRecord(run) }));
    replace(root, head, ...compared(sides, signal));
  } catch (error) {
    if (!signal.aborted) replace(root, head, failure(error, () => location.reload()));
  }
}

/**
 * @param {Side[]} sides
 * @param {AbortSignal} signal
 */
function compared(sides, signal) {
  const [one, other] = sides.map(({ run }) => run);
  const isSameQuestion = one.question === other.question;
  return [
    isSameQuestion && h('p', { class: 'lead' }, shorten(one.question, 400)),
    pair(sides.map(({ run }) => overview(run, isSameQuestion))),
    h('h2', {}, 'Answers'),
    answers(one.answer ?? '', other.answer ?? ''),
    ...rounds(sides, signal),
  ];
}

/** @param {import('../lib/dom.js').Child[]} cells */
function pair(cells) {
  return h('div', { class: 'pair' }, cells.map((cell) => h('div', { class: 'pair-side' }, cell)));
}

/**
 * @param {any} run
 * @param {boolean} isSameQuestion
 */
function overview(run, isSameQuestion) {
  return h(
    'section',
    { class: 'card', 'aria-label': run.run_id },
    h(
      'p',
      { class: 'crumb' },
      h('a', { href: `/runs/${run.run_id}` }, run.run_id),
      statusBadge(run.status),
    ),
    !isSameQuestion && h('p', {}, h('strong', {}, shorten(run.question, LONGEST_TITLE))),
    facts(
      ['Cost', usd(run.cost_usd)],
      ['Time', duration(run.budget.spent.seconds || null)],
      ['Tokens', count(run.usage.total_tokens)],
      ['Calls', count(run.budget.spent.calls)],
      ['Tier', TIERS[/** @type {'mini'} */ (run.tier)] ?? run.tier],
      ['Asked', when(run.created_at)],
    ),
  );
}

/**
 * @param {string} one
 * @param {string} other
 */
function answers(one, other) {
  const prose = (/** @type {string} */ text) =>
    h('div', { class: 'prose card' }, text ? markdown(text) : h('p', { class: 'quiet-text' }, 'no answer'));
  if (one === other) return h('div', {}, h('p', { class: 'quiet-text' }, 'Both are the same.'), prose(one));
  return h('div', {}, pair([prose(one), prose(other)]), differences(one, other));
}

/**
 * @param {string} one
 * @param {string} other
 */
function differences(one, other) {
  const body = h('p', { class: 'plain differences' });
  return h(
    'details',
    {
      ontoggle: () => {
        if (body.hasChildNodes()) return;
        const tags = { same: 'span', removed: 'del', added: 'ins' };
        replace(body, diff(one, other).map(({ kind, text }) => h(tags[kind], {}, text)));
      },
    },
    h('summary', {}, 'Differences word by word'),
    body,
  );
}

/**
 * @param {Side[]} sides
 * @param {AbortSignal} signal
 */
function rounds(sides, signal) {
  const many = Math.max(...sides.map(({ trace }) => trace.rounds.length));
  return Array.from({ length: many }, (_, round) => {
    const steps = sides.map(({ trace }) => trace.rounds[round]?.steps ?? []);
    const longest = Math.max(...steps.map(({ length }) => length));
    return h(
      'section',
      { class: 'compared-round' },
      h('h2', {}, many > 1 ? `Plan of round ${round + 1}` : 'Plan'),
      longest === 0 && h('p', { class: 'quiet-text' }, 'Nothing was planned.'),
      Array.from({ length: longest }, (_, index) => {
        const [one, other] = steps.map((each) => each[index]);
        return pair([
          step(one, other, sides[0].run.run_id, signal),
          step(other, one, sides[1].run.run_id, signal),
        ]);
      }),
    );
  });
}

/**
 * @param {StepTrace | undefined} mine
 * @param {StepTrace | undefined} others
 * @param {string} runId
 * @param {AbortSignal} signal
 */
function step(mine, others, runId, signal) {
  if (!mine) return h('p', { class: 'card quiet-text' }, 'no such step');
  const mark = (/** @type {boolean} */ differs) => differs && h('span', { class: 'badge warn' }, 'differs');
  const seconds = ((mine.finished_ms ?? NaN) - (mine.started_ms ?? NaN)) / 1000;
  return h(
    'article',
    { class: 'card compared-step', 'aria-label': `Step ${mine.index} of ${runId}` },
    h(
      'p',
      { class: 'compared-head' },
      h('strong', {}, `${mine.index} ${mine.worker}`),
      stateBadge(mine.state),
      mark(others !== undefined && others.worker !== mine.worker),
      h('span', { class: 'small quiet-text' }, usd(mine.cost_usd), ' · ', duration(seconds)),
    ),
    h('p', { class: 'plain' }, mine.subtask, ' ', mark(others !== undefined && others.subtask !== mine.subtask)),
    h('p', { class: 'small quiet-text' }, `It ${readsInWords(mine)}.`),
    mine.error && h('p', { class: 'notice' }, mine.error),
    mine.reply && fold('Reply', () => h('div', { class: 'prose' }, markdown(mine.reply))),
    fold('Prompt', async () => {
      const details = await get(`/v1/runs/${runId}/steps/${mine.round}/${mine.index}`, { signal });
      return details.request ? conversation(details.request) : 'No worker was asked.';
    }),
  );
}
