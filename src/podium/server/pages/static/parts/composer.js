// Where a message is written: its words and files, the model, and in the options the system prompt
// and what an answer may take at most.

import { h, replace } from '../lib/dom.js';
import { Attachments } from './attachments.js';
import { deniedReason } from './scoped.js';

/**
 * @typedef {{model: string, system: string, usd: string, seconds: string}} ChatSettings
 * @typedef {{question: string, files: import('./attachments.js').Attachment[], model: string,
 *   system: string, podium: Record<string, unknown>}} Message
 */

const TIERS = /** @type {Record<string, string>} */ ({
  'podium-mini': 'podium-mini: one worker',
  podium: 'podium: as needed',
  'podium-ultra': 'podium-ultra: planned',
});

const USUAL = 'podium';
const PINNED = /^podium(-mini|-ultra)?@/;
const ONLY_PLAN = 'Show the workflow and an estimate; nothing is executed';
const MAX_SYSTEM = 100_000;

/** @param {string} model */
export function isTier(model) {
  return model in TIERS || PINNED.test(model);
}

export class Composer {
  #question = /** @type {HTMLTextAreaElement} */ (
    h('textarea', {
      id: 'message',
      rows: '2',
      placeholder: 'Ask anything',
      'aria-label': 'Message',
      'aria-describedby': 'message-problem',
    })
  );
  #model = /** @type {HTMLSelectElement} */ (
    h('select', { 'aria-label': 'Model' }, Object.keys(TIERS).map(tierOption))
  );
  #plan = /** @type {HTMLButtonElement} */ (h('button', { type: 'button', class: 'quiet' }, 'Plan'));
  #send = /** @type {HTMLButtonElement} */ (
    h('button', { type: 'submit', class: 'primary' }, 'Send')
  );
  #stop = h('button', { type: 'button', class: 'primary', hidden: true }, 'Stop');
  #system = /** @type {HTMLTextAreaElement} */ (
    h('textarea', { id: 'system', rows: '2', maxlength: MAX_SYSTEM })
  );
  #usd = numberField('budget-usd');
  #seconds = numberField('budget-seconds');
  #options = /** @type {HTMLElement} */ (
    h(
      'div',
      { class: 'composer-options', id: 'chat-options', hidden: true },
      field('system', 'System prompt', this.#system),
      h(
        'div',
        { class: 'field-row' },
        field('budget-usd', 'Budget, USD', this.#usd),
        field('budget-seconds', 'Budget, seconds', this.#seconds),
      ),
    )
  );
  #toggle = h(
    'button',
    { type: 'button', class: 'quiet', 'aria-expanded': 'false', 'aria-controls': 'chat-options' },
    'Options',
  );
  #problem = h('p', { class: 'field-error', id: 'message-problem', role: 'alert' });
  #files = new Attachments();

  /**
   * @param {{onSend: () => void, onPlan: () => void, onStop: () => void, onChange: () => void}}
   *   listener
   */
  constructor({ onSend, onPlan, onStop, onChange }) {
    const send = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!this.#send.hidden) onSend();
    };
    this.#model.value = USUAL;
    this.#toggle.addEventListener('click', () => this.#showOptions(this.#options.hidden));
    this.#plan.addEventListener('click', () => onPlan());
    this.#stop.addEventListener('click', () => onStop());
    const attach = h(
      'button',
      { type: 'button', class: 'quiet', title: 'Images, and text files in UTF-8', onclick: () => this.#files.choose() },
      'Attach',
    );
    this.element = h(
      'form',
      {
        class: 'composer',
        novalidate: true, // validation messages are our own
        onsubmit: send,
        oninput: onChange,
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key !== 'Enter' || event.isComposing) return;
          const isHere = event.target === this.#question;
          const sends = event.ctrlKey || event.metaKey || (isHere && !event.shiftKey && hasKeyboard());
          if (sends) send(event);
        },
        onpaste: (/** @type {ClipboardEvent} */ event) => this.#take(event, event.clipboardData),
        ondrop: (/** @type {DragEvent} */ event) => this.#take(event, event.dataTransfer),
        ondragover: (/** @type {DragEvent} */ event) => event.preventDefault(),
      },
      this.#options,
      this.#files.element,
      this.#question,
      this.#problem,
      h(
        'div',
        { class: 'composer-row' },
        attach,
        this.#model,
        this.#toggle,
        h('span', { class: 'composer-end' }, this.#plan, this.#send, this.#stop),
      ),
    );
    this.allow();
  }

  /** Offer what the signed-in key allows. */
  allow() {
    const reason = deniedReason('plan');
    this.#plan.disabled = reason !== '';
    this.#plan.title = reason || ONLY_PLAN;
  }

  /**
   * What may be asked for.
   * @param {string[]} models
   */
  offer(models) {
    const chosen = this.#model.value;
    const tiers = Object.keys(TIERS).filter((name) => models.includes(name));
    const workers = models.filter((name) => !isTier(name));
    replace(
      this.#model,
      h('optgroup', { label: 'Tiers' }, tiers.map(tierOption)),
      workers.length && h('optgroup', { label: 'Workers' }, workers.map((name) => h('option', {}, name))),
    );
    const [first = ''] = tiers.includes(USUAL) ? [USUAL] : [...tiers, ...workers];
    this.#choose(models.includes(chosen) ? chosen : first);
  }

  /** While an answer comes, it can be stopped, and nothing else be sent. @param {boolean} is */
  set isBusy(is) {
    const hadFocus = [this.#send, this.#stop].includes(/** @type {any} */ (document.activeElement));
    this.#send.hidden = is;
    this.#plan.disabled = is || deniedReason('plan') !== '';
    this.#stop.hidden = !is;
    if (hadFocus) this.focus();
  }

  get question() {
    return this.#question.value;
  }

  set question(words) {
    this.#question.value = words;
  }

  /** @param {import('./attachments.js').Attachment[]} files */
  set files(files) {
    this.#files.files = files;
  }

  /** @returns {ChatSettings} */
  get settings() {
    return {
      model: this.#model.value,
      system: this.#system.value,
      usd: this.#usd.value,
      seconds: this.#seconds.value,
    };
  }

  /** @param {Partial<ChatSettings>} settings */
  set settings({ model = USUAL, system = '', usd = '', seconds = '' }) {
    this.#choose(model);
    this.#system.value = system;
    this.#usd.value = usd;
    this.#seconds.value = seconds;
    if (system || usd || seconds) this.#showOptions(true);
  }

  /**
   * The message that was written, or null where something is missing: that is shown.
   * @returns {Message | null}
   */
  read() {
    const wrong = this.#wrong();
    replace(this.#problem, wrong?.message ?? '');
    for (const each of [this.#question, this.#usd, this.#seconds]) {
      if (wrong?.field === each) each.setAttribute('aria-invalid', 'true');
      else each.removeAttribute('aria-invalid');
    }
    if (wrong) {
      if (wrong.field !== this.#question) this.#showOptions(true);
      wrong.field.focus();
      return null;
    }
    const { model, system, usd, seconds } = this.settings;
    const given = Object.entries({ usd, seconds }).filter(([, value]) => value !== '');
    const budget = Object.fromEntries(given.map(([name, value]) => [name, Number(value)]));
    const question = this.question.trim();
    this.question = '';
    const podium = given.length ? { budget } : {};
    return { question, files: this.#files.take(), model, system: system.trim(), podium };
  }

  focus() {
    this.#question.focus();
  }

  /** @param {string} model It may be listed later: models are still being fetched. */
  #choose(model) {
    if (![...this.#model.options].some(({ value }) => value === model)) {
      this.#model.append(h('option', {}, model));
    }
    this.#model.value = model;
  }

  /** @param {boolean} are */
  #showOptions(are) {
    this.#options.hidden = !are;
    this.#toggle.setAttribute('aria-expanded', String(are));
  }

  /**
   * @param {Event} event
   * @param {DataTransfer | null} given
   */
  #take(event, given) {
    if (!given?.files.length) return;
    event.preventDefault();
    this.#files.add([...given.files]);
  }

  #wrong() {
    if (!this.#question.value.trim() && this.#files.isEmpty) {
      return { field: this.#question, message: 'The message is empty; write one.' };
    }
    for (const [name, field] of /** @type {const} */ ([
      ['dollars', this.#usd],
      ['seconds', this.#seconds],
    ])) {
      if (!field.validity.valid) {
        const message = `The budget in ${name} is a number from 0 on, or empty for the one configured.`;
        return { field, message };
      }
    }
    return null;
  }
}

/** On a phone, Enter begins a new line. */
function hasKeyboard() {
  return !matchMedia('(pointer: coarse)').matches;
}

/** @param {string} name */
function tierOption(name) {
  return h('option', { value: name }, TIERS[name]);
}

/** @param {string} id */
function numberField(id) {
  const placeholder = 'as configured';
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
