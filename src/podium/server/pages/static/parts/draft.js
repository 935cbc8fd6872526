// A plan on a card that is being edited and has not run.

import { Editor } from './editor.js';
import { isSame } from './plan.js';
import { button } from './ways.js';

/**
 * Show an editor in the place of the card's plan. `onRun` gets the plan as it is then, and what to
 * call should the server refuse it, with the reason.
 * @param {import('./version.js').Version} version
 * @param {import('./plan.js').Step[]} steps
 * @param {string[]} workers
 * @param {{
 *   onRun: (steps: import('./plan.js').Step[], reopen: (reason: string) => void) => void,
 *   onDiscard: () => void,
 * }} listener
 */
export function draft(version, steps, workers, { onRun, onDiscard }) {
  const editor = new Editor(steps, workers);

  function run() {
    if (editor.check()) onRun(editor.steps, reopen);
  }

  function tell() {
    version.status(isSame(steps, editor.steps) ? 'not changed yet' : 'edited, not run');
  }

  function show() {
    tell();
    version.plan(editor.element);
    version.actions(button('Run this plan', run, 'primary'), button('Discard', onDiscard));
  }

  /** @param {string} reason */
  function reopen(reason) {
    version.end();
    show();
    editor.refused(reason);
  }

  editor.onChange = tell;
  editor.element.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run();
  });
  show();
  editor.focus();
}
