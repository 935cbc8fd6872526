// The form in which a workflow is edited: worker, subtask and access of each step, and their
// order. Problems are shown beside the step, by the rules of `plan.js`, before anything is sent.

import { h, replace } from '../lib/dom.js';
import { accessField } from './access.js';
import { graph } from './graph.js';
import { added, essence, moved, problems, removed, stepNamed } from './plan.js';

/** @type {number} Tells the fields of several editors on a page apart. */
let editors = 0;

export class Editor {
  #workers;
  #steps;
  #prefix = `editor-${(editors += 1)}`;
  #drawing = h('div', {});
  #list = h('ol', { class: 'editor-steps' });
  #overall = h('p', { class: 'field-error', role: 'alert' });
  /** True if all problems are shown, not only those that typing on cannot fix. */
  #isStrict = false;
  #isDrawingStale = false;

  /**
   * @param {import('./plan.js').Step[]} steps
   * @param {string[]} workers
   */
  constructor(steps, workers) {
    this.#steps = steps.map(essence);
    /** Called whenever something was edited. */
    this.onChange = () => {};
    // A plan may name a worker that clients cannot call by its name, such as a conductor.
    this.#workers = [...new Set([...workers, ...steps.map((step) => step.worker)])];
    this.element = h(
      'div',
      { class: 'editor' },
      this.#drawing,
      this.#list,
      this.#overall,
      h(
        'div',
        { class: 'buttons' },
        h('button', { type: 'button', class: 'small', onclick: () => this.#add() }, 'Add a step'),
      ),
    );
    this.#rebuild();
  }

  /** The workflow as it is now. */
  get steps() {
    return this.#steps.map(essence);
  }

  /** Whether the workflow can be carried out; what is wrong is shown, and the first is focused. */
  check() {
    this.#isStrict = true;
    const found = this.#tell();
    if (found.length) this.#focus(found[0].index ?? 0, found[0].field);
    return found.length === 0;
  }

  /**
   * Show what the server found wrong, beside the step that it names.
   * @param {string} message
   */
  refused(message) {
    const index = stepNamed(message, this.#steps.length);
    this.#tell();
    const place = index === null ? this.#overall : this.#problemOf(index, 'subtask');
    replace(/** @type {HTMLElement} */ (place), message);
  }

  focus() {
    this.#focus(0, 'subtask');
  }

  #rebuild() {
    replace(this.#list, this.#steps.map((step, index) => this.#row(step, index)));
    this.#changed();
  }

  #changed() {
    this.#tell();
    this.onChange();
    if (this.#isDrawingStale) return;
    this.#isDrawingStale = true;
    requestAnimationFrame(() => {
      this.#isDrawingStale = false;
      const drawn = graph(this.#steps, {
        label: 'The plan as edited',
        onSelect: (index) => this.#focus(index, 'subtask'),
      });
      replace(this.#drawing, drawn.element);
    });
  }

  #tell() {
    const found = problems(this.#steps, this.#workers);
    const visible = found.filter(({ field }) => this.#isStrict || field !== 'subtask');
    for (const place of this.#list.querySelectorAll('.field-error')) replace(place);
    for (const field of this.#list.querySelectorAll('[aria-invalid]')) {
      field.removeAttribute('aria-invalid');
    }
    replace(this.#overall);
    for (const { index, field, message } of visible) {
      const place = index === null ? this.#overall : this.#problemOf(index, field);
      if (place) replace(place, message);
      if (index !== null) this.#field(index, field)?.setAttribute('aria-invalid', 'true');
    }
    return found;
  }

  #add() {
    const { steps, added: index } = added(this.#steps, this.#workers[0]);
    this.#steps = steps;
    this.#rebuild();
    this.#focus(index, 'subtask');
  }

  /** @param {number} index */
  #remove(index) {
    this.#steps = removed(this.#steps, index);
    this.#rebuild();
    if (this.#steps.length) this.#focus(Math.min(index, this.#steps.length - 1), 'subtask');
    else /** @type {HTMLElement} */ (this.element.querySelector('.buttons button')).focus();
  }

  /**
   * @param {number} index
   * @param {number} by
   * @param {string} button which of the buttons was pressed, to be found again
   */
  #move(index, by, button) {
    this.#steps = moved(this.#steps, index, index + by);
    this.#rebuild();
    const row = this.#list.children[index + by];
    const again = row.querySelector(`button[data-does="${button}"]:not(:disabled)`);
    /** @type {HTMLElement} */ (again ?? row.querySelector('button:not(:disabled)')).focus();
  }

  /**
   * @param {import('./plan.js').Step} step
   * @param {number} index
   */
  #row(step, index) {
    const id = (/** @type {string} */ name) => `${this.#prefix}-${index}-${name}`;
    const change = (/** @type {Partial<import('./plan.js').Step>} */ what) => {
      Object.assign(this.#steps[index], what);
      this.#changed();
    };
    const isLast = index === this.#steps.length - 1;
    return h(
      'li',
      {},
      h(
        'fieldset',
        { class: 'editor-step' },
        h('legend', {}, `Step ${index}`, isLast && h('span', {}, ' (its reply is the answer)')),
        h('label', { for: id('worker') }, 'Worker'),
        this.#workerField(step, id('worker'), (worker) => change({ worker })),
        problem(id('worker-problem')),
        h('label', { for: id('subtask') }, 'Subtask'),
        subtaskField(step, id('subtask'), (subtask) => change({ subtask })),
        problem(id('subtask-problem')),
        accessField(step.access, index, id('access'), (access) => change({ access })),
        problem(id('access-problem')),
        this.#buttons(index),
      ),
    );
  }

  /**
   * @param {import('./plan.js').Step} step
   * @param {string} id
   * @param {(worker: string) => void} change
   */
  #workerField(step, id, change) {
    return h(
      'select',
      {
        id,
        'data-field': 'worker',
        'aria-describedby': `${id}-problem`,
        onchange: (/** @type {Event} */ event) =>
          change(/** @type {HTMLSelectElement} */ (event.target).value),
      },
      this.#workers.map((worker) =>
        h('option', { value: worker, selected: worker === step.worker }, worker),
      ),
    );
  }

  /** @param {number} index */
  #buttons(index) {
    const last = this.#steps.length - 1;
    const button = (
      /** @type {string} */ does,
      /** @type {string} */ label,
      /** @type {() => void} */ onclick,
      disabled = false,
    ) =>
      h(
        'button',
        {
          type: 'button',
          class: 'small quiet',
          'data-does': does,
          'aria-label': `${label}: step ${index}`,
          disabled,
          onclick,
        },
        label,
      );
    return h(
      'div',
      { class: 'buttons' },
      button('up', 'Move up', () => this.#move(index, -1, 'up'), index === 0),
      button('down', 'Move down', () => this.#move(index, 1, 'down'), index === last),
      button('remove', 'Remove', () => this.#remove(index)),
    );
  }

  /**
   * @param {number} index
   * @param {string} field
   */
  #field(index, field) {
    return this.#list.children[index]?.querySelector(`[data-field="${field}"]`);
  }

  /**
   * @param {number} index
   * @param {string} field
   */
  #problemOf(index, field) {
    const places = this.#list.children[index]?.querySelectorAll('.field-error') ?? [];
    return Array.from(places).find((place) => place.id.endsWith(`-${field}-problem`)) ?? null;
  }

  /**
   * @param {number} index
   * @param {string} field
   */
  #focus(index, field) {
    const found = this.#field(index, field);
    if (found instanceof HTMLElement) found.focus();
  }
}

/** @param {string} id */
function problem(id) {
  return h('p', { class: 'field-error', id, role: 'alert' });
}

/**
 * @param {import('./plan.js').Step} step
 * @param {string} id
 * @param {(subtask: string) => void} change
 */
function subtaskField(step, id, change) {
  const field = /** @type {HTMLTextAreaElement} */ (
    h('textarea', {
      id,
      rows: '2',
      'data-field': 'subtask',
      'aria-describedby': `${id}-problem`,
      oninput: () => change(field.value),
    })
  );
  field.value = step.subtask;
  return field;
}
