// A stored run as a conversation that can be continued.

import { shorten } from '../lib/format.js';
import { TIERS } from './run-head.js';
import { newId } from './version.js';

const LONGEST_TITLE = 80;

/**
 * @param {any} run As `GET /v1/runs/{id}/export` returns it.
 * @returns {{id: null, title: string, turns: any[], settings: any}}
 */
export function asChat(run) {
  const model = TIERS[/** @type {'mini'} */ (run.tier)] ?? run.tier;
  const system = textsOf(run.history, ['system', 'developer']).join('\n');
  /** @type {any[]} */
  const turns = [];
  const add = (/** @type {string} */ question, /** @type {any[]} */ files) =>
    turns.push({
      id: newId(),
      after: turns.at(-1)?.shown ?? null,
      question,
      files,
      model,
      system,
      podium: {},
      shown: null,
      versions: [],
    });
  const answer = (/** @type {string} */ text, /** @type {any} */ more) => {
    const version = { id: newId(), kind: 'answer', title: model, status: 'answered', text, took: null };
    turns.at(-1).versions.push({ ...version, run: null, ...more });
    turns.at(-1).shown = version.id;
  };
  for (const message of run.history) {
    const [text = ''] = textsOf([message], ['user', 'assistant']);
    if (!text) continue;
    if (message.role === 'user') {
      const open = turns.at(-1);
      if (open && !open.shown) open.question += `\n\n${text}`;
      else add(text, []);
    } else if (turns.length && !turns.at(-1).shown) answer(text, {});
  }
  if (!turns.length || turns.at(-1).shown) add(run.question, run.images.flatMap(imageFile));
  answer(run.answer ?? '', { run: run.id, status: run.status });
  return {
    id: null,
    title: shorten(turns[0].question, LONGEST_TITLE),
    turns,
    settings: { model, system },
  };
}

/**
 * @param {any[]} messages
 * @param {string[]} roles
 * @returns {string[]}
 */
function textsOf(messages, roles) {
  return messages
    .filter(({ role }) => roles.includes(role))
    .map(({ parts }) =>
      parts
        .filter((/** @type {any} */ { kind }) => kind === 'text')
        .map((/** @type {any} */ { text }) => text)
        .join('\n'),
    );
}

/**
 * @param {{media_type: string, data: string}} image
 * @param {number} index
 */
function imageFile({ media_type: type, data }, index) {
  if (!data) return [];
  return [{ name: `image ${index + 1}`, kind: 'image', data: `data:${type};base64,${data}` }];
}
