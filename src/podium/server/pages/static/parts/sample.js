// A sample of a training: a plan that was tried, or what was recited, as it was written down.

import { h } from '../lib/dom.js';
import { shorten } from '../lib/format.js';

/**
 * @param {Record<string, any>} sample
 * @returns {HTMLElement}
 */
export function sampleCard(sample) {
  return h('li', { class: 'card sample' }, 'expected' in sample ? mistake(sample) : rollout(sample));
}

/** @param {Record<string, any>} sample */
function rollout(sample) {
  return [
    h(
      'p',
      { class: 'sample-head' },
      h(
        'span',
        { class: `badge ${sample.right ? 'good' : 'bad'}` },
        sample.right ? 'right' : 'wrong',
      ),
      typeof sample.reward === 'number' &&
        h('span', { class: 'figure' }, `reward ${sample.reward}`),
      sample.kind && h('span', { class: 'quiet-text' }, sample.kind),
    ),
    sample.question && h('p', { class: 'sample-question' }, sample.question),
    plan(sample.text),
    words(sample.answer ? 'Answer' : 'Problem', sample.answer || sample.problem),
  ];
}

/** @param {Record<string, any>} sample */
function mistake(sample) {
  const right = sample.reply === sample.expected;
  return [
    h(
      'p',
      { class: 'sample-head' },
      h(
        'span',
        { class: `badge ${right ? 'good' : 'bad'}` },
        right ? 'right' : 'wrong',
      ),
      sample.adapter && h('span', { class: 'quiet-text' }, sample.adapter),
    ),
    sample.prompt &&
      h('details', {}, h('summary', {}, shorten(sample.prompt, 80)), plan(sample.prompt)),
    h('h3', {}, 'Expected'),
    plan(sample.expected),
    h('h3', {}, 'Reply'),
    plan(sample.reply),
  ];
}

/** @param {string | undefined} text */
function plan(text) {
  if (!text) return h('p', { class: 'quiet-text' }, 'nothing');
  return h('pre', { class: 'sample-text', tabindex: 0 }, text);
}

/**
 * @param {string} name
 * @param {string | undefined} text
 */
function words(name, text) {
  return text ? h('p', {}, h('span', { class: 'quiet-text' }, `${name}: `), text) : null;
}
