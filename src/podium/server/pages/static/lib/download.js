// Save a text as a file.

import { h } from './dom.js';

/**
 * @param {string} name
 * @param {string} content
 * @param {string} type
 */
export function download(name, content, type) {
  const link = /** @type {HTMLAnchorElement} */ (h('a', { download: name }));
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
