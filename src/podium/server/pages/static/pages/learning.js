// Learning and measuring: the trainings and evaluations below the directories that the
// configuration names, each with a page of its own that grows while it goes on.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { when } from '../lib/format.js';
import { empty, failure, loading } from '../lib/states.js';
import { evaluation } from '../parts/evaluation.js';
import { connection, refresh, loadAndPoll } from '../parts/polling.js';
import { training } from '../parts/training.js';

export const title = 'Learning';

const EVERY_SECONDS = 5;
const COLUMNS = ['Name', 'What', 'Last written', 'Report'];

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
  const back = h('p', {}, h('a', { href: '/learning' }, '← Learning'));
  return [name && back, h('div', { class: 'page-head' }, h('h1', {}, words))];
}

/**
 * @param {HTMLElement} root
 * @param {import('../app.js').Context} context
 */
async function showAll(root, { signal }) {
  const trouble = connection();
  const content = h('div', { class: 'learning' });
  let before = '';
  await loadAndPoll(
    async (inBackground) => {
      const page = await get('/v1/learning', { signal, inBackground });
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
  if (directories.length === 0) {
    return empty(
      'No directory is named.',
      h(
        'span',
        {},
        'Name those of your trainings and evaluations in podium.toml, and start the server again:',
        h('code', { class: 'setting' }, '[server]\nlearning = ["trained", "measured"]'),
      ),
    );
  }
  if (data.length === 0) {
    return empty(
      'There is nothing in these directories yet.',
      'What podium train and podium eval run --output write there appears here.',
    );
  }
  return h(
    'div',
    {
      class: 'table-box',
      id: 'learning-table',
      tabindex: 0,
      role: 'region',
      'aria-label': 'Trainings and evaluations',
    },
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, COLUMNS.map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, data.map(row)),
    ),
  );
}

/** @param {any} each */
function row(each) {
  return h(
    'tr',
    {},
    h(
      'th',
      { scope: 'row' },
      h(
        'a',
        { href: `/learning/${encodeURIComponent(each.name)}`, id: `learning-${each.name}` },
        each.title,
      ),
    ),
    h('td', {}, h('span', { class: 'badge' }, each.kind)),
    h('td', {}, when(each.updated_at)),
    h('td', {}, each.has_report ? report(each.name, each.title) : ''),
  );
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
      href: `/v1/learning/${encodeURIComponent(name)}/report`,
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
  const path = `/learning/${encodeURIComponent(name)}`;
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
  const content = h('div', { class: 'learning' });
  let waiting = first;
  let before = '';
  await loadAndPoll(
    async (inBackground) => {
      const page = waiting ?? (await get(address, { signal, inBackground }));
      waiting = null;
      if (JSON.stringify(page) === before) return;
      before = JSON.stringify(page);
      const link = page.has_report && h('p', {}, report(name, page.title));
      refresh(content, link, ...evaluation(page));
    },
    EVERY_SECONDS,
    signal,
    trouble.tell,
  );
  replace(root, ...head(first.title, name), trouble.element, content);
}
