// The field for a step's access: all earlier steps, or some of them. Among few steps each is a box
// to tick; among many the numbers are written.

import { h } from '../lib/dom.js';

/** With more earlier steps than this, they are written instead of ticked. */
const MOST_TICKED = 20;

/**
 * @param {'all' | number[]} access
 * @param {number} index the step whose access it is
 * @param {string} id
 * @param {(access: 'all' | number[]) => void} change
 * @returns {HTMLElement}
 */
export function accessField(access, index, id, change) {
  return index > MOST_TICKED
    ? written(access, id, change)
    : ticked(access, index, id, change);
}

/**
 * @param {'all' | number[]} access
 * @param {number} index
 * @param {string} id
 * @param {(access: 'all' | number[]) => void} change
 */
function ticked(access, index, id, change) {
  const read = new Set(access === 'all' ? [] : access);
  const earlier = Array.from({ length: index }, (_, step) => step);
  // After a step has moved, another may read what comes later: that stays to be seen and unticked.
  const offered = [...new Set([...earlier, ...read])].sort((a, b) => a - b);
  const boxes = offered.map((step) =>
    box(`step ${step}`, read.has(step), access === 'all', (isTicked) => {
      if (isTicked) read.add(step);
      else read.delete(step);
      tell();
    }),
  );
  const all = box('every earlier step', access === 'all', false, (isTicked) => {
    for (const each of boxes) each.input.disabled = isTicked;
    tell();
  });
  const tell = () => change(all.input.checked ? 'all' : [...read].sort((a, b) => a - b));
  const nothing = h('span', { class: 'quiet-text' }, 'there is no earlier step to read');
  return h(
    'div',
    {
      class: 'access',
      role: 'group',
      tabindex: '-1',
      'data-field': 'access',
      'aria-labelledby': `${id}-label`,
      'aria-describedby': `${id}-problem`,
    },
    h('span', { class: 'access-label', id: `${id}-label` }, 'Reads'),
    boxes.map((each) => each.element),
    index > 0 || access === 'all' ? all.element : offered.length === 0 && nothing,
  );
}

/**
 * @param {'all' | number[]} access
 * @param {string} id
 * @param {(access: 'all' | number[]) => void} change
 */
function written(access, id, change) {
  const field = /** @type {HTMLInputElement} */ (
    h('input', {
      id,
      'data-field': 'access',
      'aria-describedby': `${id}-problem`,
      placeholder: 'all, or numbers such as 0, 3',
      value: access === 'all' ? 'all' : access.join(', '),
      oninput: () => change(readAccess(field.value)),
    })
  );
  return h('div', { class: 'field' }, h('label', { for: id }, 'Reads (all, or steps)'), field);
}

/** @param {string} text */
function readAccess(text) {
  if (text.trim().toLowerCase() === 'all') return 'all';
  const numbers = text.match(/\d+/g) ?? [];
  return [...new Set(numbers.map(Number))].sort((a, b) => a - b);
}

/**
 * @param {string} words
 * @param {boolean} checked
 * @param {boolean} disabled
 * @param {(isTicked: boolean) => void} change
 */
function box(words, checked, disabled, change) {
  const input = /** @type {HTMLInputElement} */ (
    h('input', { type: 'checkbox', checked, disabled, onchange: () => change(input.checked) })
  );
  return { input, element: h('label', { class: 'tick' }, input, words) };
}
