import { h } from '../lib/dom.js';

export const title = 'Pool';

/**
 * @param {HTMLElement} root
 */
export async function show(root) {
  root.append(h('h1', {}, title));
}
