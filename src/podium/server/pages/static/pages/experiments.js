// The page Experiments: the trainings and evaluations below the directories that the
// configuration names, each with a page of its own that grows while it goes on.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { percent, when } from '../lib/format.js';
import { empty, failure, loading } from '../lib/states.js';
import { evaluation } from '../parts/evaluation.js';
import { connection, refresh, loadAndPoll } from '../parts/polling.js';
import { table } from '../parts/table.js';
import { training } from '../parts/training.js';

export const title = 'Experiments';

const EVERY_SECONDS = 5;

/** 2 stands before 10. */
const NATURAL = new Intl.Collator(undefined, { numeric: true });

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
export async function show(root, context) {
  const name = context.params.rest ?? '';
  replace(root, loading('Loading…'));
  try {
    await (name ? showOne(root, name, context) : showAll(root, context));
  } catch (error) {
    if (context.signal.aborted) return;
    replace(root, ...head(title, name), failure(error, () => show(root, context)));
  }
}

/**
 * @param {string} words
 * @param {string} [name] Of one of them: the way back stands above it.
 */
function head(words, name) {
  const back = h('p', {}, h('a', { href: '/experiments' }, '← Experiments'));
  return [name && back, h('div', { class: 'page-head' }, h('h1', {}, words))];
}

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
async function showAll(root, { signal }) {
  const trouble = connection();
  const content = h('div', { class: 'experiments' });
  let before = '';
  await loadAndPoll(
    async (inBackground) => {
      const page = await get('/v1/experiments', { signal, inBackground });
      if (JSON.stringify(page) === before) return;
      before = JSON.stringify(page);
      refresh(content, listed(page), page.directories.map(missing));
    },
    EVERY_SECONDS,
    signal,
    trouble.tell,
  );
  replace(
    root,
    ...head(title),
    h('p', { class: 'lead' }, 'Trainings and evaluations on the machine of this server.'),
    trouble.element,
    content,
  );
}

/** @param {any} page */
function listed({ data, directories }) {
  if (data.length === 0) {
    return empty(
      'There are no trainings or evaluations yet.',
      h(
        'span',
        {},
        'podium train and podium eval run write them; this page looks in ',
        directories.length ? 'the directories of podium.toml' : 'trained and measured, where podium serve runs',
        '.',
        h('code', { class: 'setting' }, 'podium eval run mine.jsonl --output measured/mine'),
        'Other directories are named in podium.toml:',
        h('code', { class: 'setting' }, '[server]\nexperiment_dirs = ["trained", "measured"]'),
      ),
    );
  }
  const sorted = [...data].sort((one, other) => NATURAL.compare(one.title, other.title));
  const trainings = sorted.filter(({ kind }) => kind === 'training');
  const evaluations = sorted.filter(({ kind }) => kind !== 'training');
  return [
    evaluations.length > 0 && [h('h2', {}, 'Evaluations'), evaluationTable(evaluations)],
    trainings.length > 0 && [h('h2', {}, 'Trainings'), trainingTable(trainings)],
  ];
}

/** @param {any[]} evaluations */
function evaluationTable(evaluations) {
  return table(
    'Evaluations',
    [['Name'], ['Suite'], ['Best strategy'], ['Accuracy', 'number'], ['State'], ['Last written'], ...reportColumn(evaluations)],
    evaluations.map((each) => ({
      cells: [
        nameLink(each),
        each.suite ?? '',
        each.best?.strategy ?? '',
        each.best ? percent(each.best.accuracy) : '',
        each.kind === 'evaluation' &&
          h('span', { class: `badge ${each.is_finished ? 'good' : ''}` }, each.is_finished ? 'finished' : 'not finished'),
        when(each.updated_at),
        ...reportCell(each, evaluations),
      ],
    })),
  );
}

/** @param {any[]} trainings */
function trainingTable(trainings) {
  return table(
    'Trainings',
    [['Name'], ['Last written'], ...reportColumn(trainings)],
    trainings.map((each) => ({
      cells: [nameLink(each), when(each.updated_at), ...reportCell(each, trainings)],
    })),
  );
}

/** @param {any[]} all @returns {[string][]} */
function reportColumn(all) {
  return all.some((each) => each.has_report) ? [['Report']] : [];
}

/** @param {any} each @param {any[]} all */
function reportCell(each, all) {
  return reportColumn(all).map(() => (each.has_report ? report(each.name, each.title) : ''));
}

/** @param {{name: string, title: string}} each */
function nameLink({ name, title: words }) {
  return h('a', { href: `/experiments/${encodeURIComponent(name)}`, id: `experiments-${name}` }, words);
}

/**
 * The way to a report. It opens beside these pages, which it cannot reach.
 * @param {string} name
 * @param {string} of
 */
function report(name, of) {
  return h(
    'a',
    {
      href: `/v1/experiments/${encodeURIComponent(name)}/report`,
      target: '_blank',
      rel: 'noopener noreferrer',
    },
    'Report',
    h('span', { class: 'visually-hidden' }, ` of ${of}, in a new tab`),
  );
}

/** @param {any} directory */
function missing({ path, problem }) {
  return problem && h('p', { class: 'notice' }, h('code', {}, path), `: ${problem}.`);
}

/**
 * @param {HTMLElement} root
 * @param {string} name
 * @param {import('../app.js').Context} context
 */
async function showOne(root, name, { query, signal, navigate }) {
  const path = `/experiments/${encodeURIComponent(name)}`;
  const address = `/v1${path}`;
  const first = await get(address, { signal });
  if (first.object === 'report') {
    replace(root, ...head(first.title, name), h('p', {}, report(name, first.title)));
    return;
  }
  if (first.object === 'training') {
    const wanted = Number.parseInt(query.get('step') ?? '', 10);
    const { elements, follow } = training(name, first, {
      step: Number.isNaN(wanted) ? null : wanted,
      onStep: (step) =>
        navigate(step === null ? path : `${path}?step=${step}`, { replace: true, quiet: true }),
      signal,
    });
    replace(root, ...head(first.title, name), ...elements);
    await follow();
    return;
  }
  const trouble = connection();
  const content = h('div', { class: 'experiments' });
  const { samplesSection } = await import('../parts/samples-section.js');
  const samples = samplesSection(name, query, { signal, navigate });
  let waiting = first;
  let before = '';
  replace(root, ...head(first.title, name), trouble.element, content, samples.element);
  await loadAndPoll(
    async (inBackground) => {
      const page = waiting ?? (await get(address, { signal, inBackground }));
      waiting = null;
      if (JSON.stringify(page) === before) return;
      const link = page.has_report && h('p', {}, report(name, page.title));
      refresh(content, link, ...evaluation(page));
      await samples.update(page, inBackground);
      before = JSON.stringify(page);
    },
    EVERY_SECONDS,
    signal,
    trouble.tell,
  );
}
