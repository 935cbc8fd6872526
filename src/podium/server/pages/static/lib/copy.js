// A button that copies a text, and says that it did.

import { h, replace } from './dom.js';

const SAID_FOR_MILLISECONDS = 1600;

/**
 * @param {string} words What the button says.
 * @param {() => string} text What it copies.
 * @returns {HTMLElement}
 */
export function copyButton(words, text) {
  const said = h('span', { 'aria-live': 'polite' }, words);
  return h(
    'button',
    {
      type: 'button',
      class: 'small',
      onclick: async () => {
        replace(said, (await copied(text())) ? 'Copied' : 'Select it and copy by hand');
        setTimeout(() => replace(said, words), SAID_FOR_MILLISECONDS);
      },
    },
    said,
  );
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // over plain HTTP from another machine, browsers keep the clipboard closed
  }
}
