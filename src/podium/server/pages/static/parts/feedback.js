// What whoever asked thinks of an answer: a thumb up or down, which can be changed, and withdrawn by
// pressing it once more. What a grader thinks stands beside them until a person says something.

import { post, remove } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';

const THUMBS = Object.freeze([
  { score: 1, sign: '👍', words: 'Good answer' },
  { score: 0, sign: '👎', words: 'Bad answer' },
]);

/** A score from here on is good. */
const GOOD = 0.5;

/**
 * What was thought of a run, as the server has it: `grader` is empty where a person said it.
 * @typedef {{score: number, comment: string, grader: string}} Feedback
 */

/**
 * @param {string} id
 * @param {Feedback | null} given What was thought of the run so far.
 * @returns {HTMLElement}
 */
export function thumbs(id, given) {
  const address = `/v1/runs/${encodeURIComponent(id)}/feedback`;
  const said = h('span', { class: 'quiet-text', role: 'status' });
  const buttons = THUMBS.map(({ score, sign, words }) =>
    h(
      'button',
      { type: 'button', class: 'small', onclick: () => press(score) },
      h('span', { 'aria-hidden': 'true' }, sign, ' '),
      words,
    ),
  );

  /** @param {string} words */
  const show = (words) => {
    buttons.forEach((button, place) => {
      const isPressed = pressed(given) === THUMBS[place].score;
      button.setAttribute('aria-pressed', String(isPressed));
    });
    replace(said, words);
  };

  /** @param {number} score */
  const press = async (score) => {
    for (const button of buttons) button.setAttribute('disabled', '');
    try {
      if (pressed(given) === score) {
        await remove(address);
        given = null;
        show('Withdrawn.');
      } else {
        const comment = given?.grader === '' ? given.comment : '';
        given = /** @type {Feedback} */ (await post(address, { score, comment }));
        show('Kept with the run.');
      }
    } catch (error) {
      show(/** @type {Error} */ (error).message);
    }
    for (const button of buttons) button.removeAttribute('disabled');
    buttons[THUMBS.findIndex((thumb) => thumb.score === score)].focus();
  };

  show(given?.grader ? `Graded ${given.score} by ${given.grader}.` : (given?.comment ?? ''));
  const label = 'What do you think of the answer?';
  return h('div', { class: 'buttons run-thumbs', role: 'group', 'aria-label': label }, buttons, said);
}

/**
 * Which thumb a person has pressed; null where none has.
 * @param {Feedback | null} given
 */
function pressed(given) {
  if (given === null || given.grader) return null;
  return given.score >= GOOD ? 1 : 0;
}
