// Feedback on an answer: a thumb up or down, which can be changed, and withdrawn by
// pressing it once more; under a thumb down, what would have been right. What a grader thinks stands
// beside them until a person says something.

import { post, remove } from '../lib/api.js';
import { h, replace, s } from '../lib/dom.js';

const THUMBS = Object.freeze([
  { score: 1, turned: '0', words: 'Good answer' },
  { score: 0, turned: '180', words: 'Bad answer' },
]);

/** A score from here on is good. */
const GOOD = 0.5;

const LONGEST_ANSWER = 2000;

/**
 * What was thought of a run, as the server has it: `grader` is empty where a person said it, and
 * `answer` is what they say is right.
 * @typedef {{score: number, comment: string, answer: string, grader: string}} Given
 */

/**
 * @param {string} id
 * @param {Given | null} given What was thought of the run so far.
 * @returns {HTMLElement}
 */
export function thumbs(id, given) {
  return new Thumbs(`/v1/runs/${encodeURIComponent(id)}/feedback`, given).element;
}

/**
 * A thumb up, turned by so many degrees.
 * @param {string} turned
 */
function thumb(turned) {
  const shape =
    'M7 11v9H4v-9zM7 11l4-8c1.5 0 2.5 1 2.5 2.5V9h5a2 2 0 0 1 2 2.3l-1.2 7a2 2 0 0 1-2 1.7H7';
  return s(
    'svg',
    { class: 'thumb', viewBox: '0 0 24 24', 'aria-hidden': 'true' },
    s('path', { d: shape, transform: `rotate(${turned} 12 12)` }),
  );
}

class Thumbs {
  /**
   * @param {string} address
   * @param {Given | null} given
   */
  constructor(address, given) {
    this.address = address;
    this.given = given;
    this.said = h('span', { class: 'quiet-text', role: 'status' });
    this.buttons = THUMBS.map(({ score, turned, words }) =>
      h(
        'button',
        { type: 'button', class: 'small', onclick: () => this.press(score) },
        thumb(turned),
        words,
      ),
    );
    this.better = h('div', { class: 'run-better' });
    const label = 'What do you think of the answer?';
    this.element = h(
      'div',
      { class: 'run-thumbs', role: 'group', 'aria-label': label },
      h('div', { class: 'buttons' }, this.buttons, this.said),
      this.better,
    );
    this.show(given?.grader ? `Graded ${given.score} by ${given.grader}.` : (given?.comment ?? ''));
  }

  /** Which thumb a person has pressed; null where none has. */
  get pressed() {
    if (this.given === null || this.given.grader) return null;
    return this.given.score >= GOOD ? 1 : 0;
  }

  /** @param {string} words */
  show(words) {
    this.buttons.forEach((button, place) => {
      button.setAttribute('aria-pressed', String(this.pressed === THUMBS[place].score));
    });
    replace(this.better, this.pressed === 0 ? this.asking() : null);
    replace(this.said, words);
  }

  /** A field for what would have been right. */
  asking() {
    const field = /** @type {HTMLInputElement} */ (
      h('input', { id: 'right-answer', maxlength: String(LONGEST_ANSWER), autocomplete: 'off' })
    );
    field.value = this.given?.answer ?? '';
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      return this.say({ score: this.given?.score, answer: field.value });
    };
    return h(
      'form',
      { onsubmit: submit },
      h('label', { for: 'right-answer' }, 'What would be right, in a few words?'),
      h('div', { class: 'buttons' }, field, h('button', { type: 'submit', class: 'small' }, 'Keep')),
    );
  }

  /** @param {number} score */
  async press(score) {
    for (const button of this.buttons) button.setAttribute('disabled', '');
    await (this.pressed === score ? this.withdraw() : this.say({ score }));
    for (const button of this.buttons) button.removeAttribute('disabled');
    this.buttons[THUMBS.findIndex((thumb) => thumb.score === score)].focus();
  }

  /** @param {{score: number | undefined, answer?: string}} judgement */
  async say(judgement) {
    const comment = this.given?.grader === '' ? this.given.comment : '';
    await this.doing('Kept with the run.', async () => {
      this.given = await post(this.address, { ...judgement, comment });
    });
  }

  async withdraw() {
    await this.doing('Withdrawn.', async () => {
      await remove(this.address);
      this.given = null;
    });
  }

  /**
   * Do something, and say that it is done, or why not.
   * @param {string} words
   * @param {() => Promise<void>} work
   */
  async doing(words, work) {
    try {
      await work();
      this.show(words);
    } catch (error) {
      this.show(/** @type {Error} */ (error).message);
    }
  }
}
