// A dialog with a form: what the server refuses is shown in it, and what was typed stays.

import { h, replace } from '../lib/dom.js';

/**
 * @param {string} title
 * @param {{submit?: string, danger?: boolean, wide?: boolean, cancel?: string,
 *   onSubmit?: (form: HTMLFormElement) => Promise<void>}} options
 * @param {...import('../lib/dom.js').Child} children
 * @returns {Promise<boolean>} True if it was submitted, and what followed succeeded.
 */
export function formDialog(title, { submit, danger, wide, cancel = 'Cancel', onSubmit }, ...children) {
  return new Promise((resolve) => {
    let isDone = false;
    const problem = h('p', { class: 'field-error', role: 'alert' });
    const button = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, submit);
    const form = /** @type {HTMLFormElement} */ (
      h(
        'form',
        {
          onsubmit: async (/** @type {Event} */ event) => {
            event.preventDefault();
            replace(problem);
            button.setAttribute('disabled', '');
            try {
              await onSubmit?.(form);
              isDone = true;
              dialog.close();
            } catch (error) {
              replace(problem, error instanceof Error ? error.message : String(error));
            }
            button.removeAttribute('disabled');
          },
        },
        h('h2', { id: 'dialog-title' }, title),
        children,
        problem,
        h(
          'div',
          { class: 'buttons' },
          submit && button,
          h('button', { type: 'button', onclick: () => dialog.close() }, cancel),
        ),
      )
    );
    const dialog = /** @type {HTMLDialogElement} */ (
      h('dialog', { class: wide && 'wide', 'aria-labelledby': 'dialog-title' }, form)
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(isDone);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * A labelled field.
 * @param {string} words
 * @param {HTMLElement} control With an id.
 * @param {import('../lib/dom.js').Child} [hint]
 */
export function field(words, control, hint) {
  return h(
    'div',
    { class: 'field' },
    h('label', { for: control.id }, words),
    control,
    hint && h('p', { class: 'small quiet-text' }, hint),
  );
}
