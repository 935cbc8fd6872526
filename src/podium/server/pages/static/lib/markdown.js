// Markdown as elements. A first, plain form: paragraphs of text.

import { h } from './dom.js';

/**
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function markdown(text) {
  const fragment = document.createDocumentFragment();
  for (const paragraph of text.split(/\n{2,}/)) {
    if (paragraph.trim()) fragment.append(h('p', { class: 'plain' }, paragraph));
  }
  return fragment;
}
