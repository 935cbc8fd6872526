// Below the table of an evaluation: its samples, beside those of another evaluation where one is
// chosen. What is chosen stands in the address.

import { get } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { failure, loading } from '../lib/states.js';
import { fetchResults, labelled, resultTable, select } from './results.js';

const ALL = '';

/** @typedef {{other: string, left: string, right: string}} Chosen */

/**
 * @param {string} name
 * @param {URLSearchParams} query
 * @param {{signal: AbortSignal, navigate: import('../app.js').Context['navigate']}} context
 */
export function samplesSection(name, query, { signal, navigate }) {
  /** @type {Chosen} */
  const chosen = {
    other: query.get('with') ?? '',
    left: query.get('left') ?? '',
    right: query.get('right') ?? '',
  };
  const choice = h('div', { class: 'field-row' });
  const body = h('div', {});
  const element = h('section', { class: 'experiments', hidden: true }, h('h2', {}, 'Samples'), choice, body);
  /** @type {any[]} */
  let own = [];
  /** @type {any[]} */
  let theirs = [];
  /** @type {any[]} */
  let evaluations = [];

  async function choose() {
    const query = new URLSearchParams();
    if (chosen.other) query.set('with', chosen.other);
    if (chosen.other && chosen.left) query.set('left', chosen.left);
    if (chosen.other && chosen.right) query.set('right', chosen.right);
    navigate(`${location.pathname}${query.size ? `?${query}` : ''}`, { replace: true, quiet: true });
    await showOther();
  }

  async function showOther() {
    theirs = [];
    if (chosen.other) {
      replace(body, loading('Loading the other evaluation…'));
      try {
        theirs = (await fetchResults(chosen.other, signal)).data;
      } catch (error) {
        if (!signal.aborted) replace(body, failure(error, showOther));
        return;
      }
    }
    draw();
  }

  function draw() {
    const [mine, others] = [strategiesOf(own), strategiesOf(theirs)];
    if (!chosen.other) {
      const columns = mine.map((strategy) => column(name, strategy, strategy, own));
      replace(choice, compareWith());
      replace(body, resultTable(columns, signal));
      return;
    }
    const common = mine.find((strategy) => others.includes(strategy));
    const left = mine.includes(chosen.left) ? chosen.left : (common ?? mine[0]);
    const right = others.includes(chosen.right) ? chosen.right : (common ?? others[0]);
    replace(
      choice,
      compareWith(),
      picker('left', 'Strategy on the left', mine, left),
      picker('right', 'Strategy on the right', others, right),
    );
    const [here, there] = shortNames(name, chosen.other);
    const columns = [
      column(name, left, `${here}: ${left}`, own),
      column(chosen.other, right, `${there}: ${right}`, theirs),
    ];
    replace(body, resultTable(columns, signal));
  }

  function compareWith() {
    const others = evaluations.filter((each) => each.kind === 'evaluation' && each.name !== name);
    if (!others.length) return null;
    const control = select('compare-with', [
      [ALL, 'no other'],
      ...others.map(({ name: other, title }) => /** @type {[string, string]} */ ([other, title])),
    ]);
    control.value = chosen.other;
    control.onchange = () => {
      chosen.other = control.value;
      choose();
    };
    return labelled('Compare with', control);
  }

  /**
   * @param {'left' | 'right'} side
   * @param {string} words
   * @param {string[]} strategies
   * @param {string} value
   */
  function picker(side, words, strategies, value) {
    const control = select(`compare-${side}`, strategies.map((each) => [each, each]));
    control.value = value;
    control.onchange = () => {
      chosen[side] = control.value;
      choose();
    };
    return labelled(words, control);
  }

  let before = '';
  return {
    element,
    /**
     * Show the samples that there are now.
     * @param {any} page The evaluation.
     * @param {boolean} inBackground
     */
    async update(page, inBackground) {
      const now = JSON.stringify(page.samples);
      if (now === before) return;
      const { data } = await fetchResults(name, signal, inBackground);
      const isFirst = before === '';
      before = now;
      own = data;
      element.hidden = own.length === 0;
      if (isFirst) {
        const listed = await get('/v1/experiments', { signal, inBackground }).catch(() => ({ data: [] }));
        evaluations = listed.data;
        await showOther();
      } else draw();
    },
  };
}

/**
 * The last parts of two names, where these differ.
 * @param {string} one
 * @param {string} other
 */
function shortNames(one, other) {
  const [here, there] = [one, other].map((name) => name.split('.').at(-1) ?? name);
  return here === there ? [one, other] : [here, there];
}

/** @param {any[]} samples @returns {string[]} */
function strategiesOf(samples) {
  return [...new Set(samples.map(({ strategy }) => strategy))];
}

/**
 * @param {string} evaluation
 * @param {string} strategy
 * @param {string} label
 * @param {any[]} samples
 */
function column(evaluation, strategy, label, samples) {
  const own = samples.filter((sample) => sample.strategy === strategy);
  return { column: { evaluation, strategy, label }, samples: own };
}
