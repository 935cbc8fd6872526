// Where a question is asked: its words, the tier, and what it may take at most.

import { h, replace } from '../lib/dom.js';
import { deniedReason } from './scoped.js';

/**
 * @typedef {{question: string, model: string, usd: string, seconds: string}} Draft
 */

const TIERS = /** @type {Record<string, string>} */ ({
  'podium-mini': 'podium-mini: one worker, no plan',
  podium: 'podium: as much as the question needs',
  'podium-ultra': 'podium-ultra: planned, in rounds',
});

const USUAL = 'podium';
const PLANNING = 'Plan shows the workflow and an estimate, and carries nothing out.';

export class Composer {
  #question = /** @type {HTMLTextAreaElement} */ (
    h('textarea', {
      id: 'question',
      rows: '3',
      placeholder: 'What would you like to know?',
      'aria-describedby': 'question-problem question-keys',
    })
  );
  #model = /** @type {HTMLSelectElement} */ (
    h('select', { id: 'tier' }, Object.keys(TIERS).map(tierOption))
  );
  #plan = /** @type {HTMLButtonElement} */ (
    h('button', { type: 'button', 'aria-describedby': 'question-keys' }, 'Plan')
  );
  #planning = h('span', {});
  #usd = numberField('budget-usd', 'no cap of yours');
  #seconds = numberField('budget-seconds', 'no cap of yours');
  #problem = h('p', { class: 'field-error', id: 'question-problem', role: 'alert' });

  /**
   * @param {{onAsk: () => void, onPlan: () => void, onChange: () => void}} listener
   */
  constructor({ onAsk, onPlan, onChange }) {
    const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);
    this.#model.value = USUAL;
    this.element = h(
      'form',
      {
        class: 'composer',
        novalidate: true, // validation messages are our own
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          onAsk();
        },
        oninput: onChange,
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          onAsk();
        },
      },
      h('div', { class: 'field' }, h('label', { for: 'question' }, 'Question'), this.#question),
      this.#problem,
      h(
        'div',
        { class: 'field-row composer-row' },
        h('div', { class: 'field' }, h('label', { for: 'tier' }, 'Tier'), this.#model),
        field('budget-usd', 'Budget, USD', this.#usd),
        field('budget-seconds', 'Budget, seconds', this.#seconds),
        h(
          'div',
          { class: 'buttons composer-buttons' },
          this.#plan,
          h('button', { type: 'submit', class: 'primary' }, 'Ask'),
        ),
      ),
      h(
        'p',
        { class: 'quiet-text composer-keys', id: 'question-keys' },
        h(
          'span',
          { class: 'needs-keyboard' },
          h('kbd', {}, isMac ? '⌘' : 'Ctrl'),
          ' + ',
          h('kbd', {}, 'Enter'),
          ' asks. ',
        ),
        this.#planning,
      ),
    );
    this.#plan.addEventListener('click', () => onPlan());
    this.allow();
  }

  /** Offer what the signed-in key allows. */
  allow() {
    const reason = deniedReason('plan');
    this.#plan.disabled = reason !== '';
    replace(this.#planning, reason || PLANNING);
  }

  /**
   * What may be asked for.
   * @param {string[]} models
   */
  offer(models) {
    const chosen = this.#model.value;
    const tiers = Object.keys(TIERS).filter((name) => models.includes(name));
    replace(this.#model, tiers.map(tierOption));
    const [first = ''] = tiers.includes(USUAL) ? [USUAL] : tiers;
    this.#model.value = tiers.includes(chosen) ? chosen : first;
  }

  /** @returns {Draft} */
  get draft() {
    return {
      question: this.#question.value,
      model: this.#model.value,
      usd: this.#usd.value,
      seconds: this.#seconds.value,
    };
  }

  /** @param {Partial<Draft>} draft */
  set draft({ question = '', model = USUAL, usd = '', seconds = '' }) {
    this.#question.value = question;
    this.#model.value = model in TIERS ? model : USUAL;
    this.#usd.value = usd;
    this.#seconds.value = seconds;
  }

  /**
   * The draft as the body of a request, or null where something is missing: that is shown.
   * @returns {{question: string, model: string, podium: Record<string, unknown>} | null}
   */
  read() {
    const { question, model } = this.draft;
    const wrong = this.#wrong();
    replace(this.#problem, wrong?.message ?? '');
    for (const each of [this.#question, this.#usd, this.#seconds]) {
      if (wrong?.field === each) each.setAttribute('aria-invalid', 'true');
      else each.removeAttribute('aria-invalid');
    }
    if (wrong) {
      wrong.field.focus();
      return null;
    }
    const caps = { usd: this.#usd.value, seconds: this.#seconds.value };
    const given = Object.entries(caps).filter(([, value]) => value !== '');
    const budget = Object.fromEntries(given.map(([name, value]) => [name, Number(value)]));
    return { question, model, podium: given.length ? { budget } : {} };
  }

  focus() {
    this.#question.focus();
  }

  #wrong() {
    if (!this.#question.value.trim()) {
      return { field: this.#question, message: 'There is no question yet; write one.' };
    }
    for (const [name, field] of /** @type {const} */ ([
      ['dollars', this.#usd],
      ['seconds', this.#seconds],
    ])) {
      if (!field.validity.valid) {
        const message = `The budget in ${name} is a number from 0 on, or empty for no cap.`;
        return { field, message };
      }
    }
    return null;
  }
}

/** @param {string} name */
function tierOption(name) {
  return h('option', { value: name }, TIERS[name]);
}

/**
 * @param {string} id
 * @param {string} placeholder
 */
function numberField(id, placeholder) {
  return /** @type {HTMLInputElement} */ (
    h('input', { id, type: 'number', min: '0', step: 'any', inputmode: 'decimal', placeholder })
  );
}

/**
 * @param {string} id
 * @param {string} label
 * @param {Node} input
 */
function field(id, label, input) {
  return h('div', { class: 'field' }, h('label', { for: id }, label), input);
}
