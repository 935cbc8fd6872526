import { h } from '../lib/dom.js';

export const title = 'Run';

/**
 * @param {HTMLElement} root
 */
export async function show(root) {
  root.append(h('h1', {}, title));
}
