// Elements from plain calls. Strings always become text, so untrusted text can never become
// markup; this is the only way in which the pages make elements.

import { isSafeAddress, visible } from './text.js';

const SVG = 'http://www.w3.org/2000/svg';
const NEVER = new Set(['script', 'style', 'iframe', 'object', 'embed', 'base', 'link', 'meta']);
const ADDRESSES = new Set(['href', 'src', 'action', 'formaction', 'xlink:href', 'poster']);

/**
 * @typedef {Node | string | number | null | undefined | false} Leaf
 * @typedef {{readonly [place: number]: Child, readonly length: number}} Children An array of them.
 * @typedef {Leaf | Children} Child
 * @typedef {Record<string, unknown>} Attributes
 */

/**
 * An HTML element. An attribute `onclick` takes a function; true stands for an attribute without
 * a value; null, undefined and false leave it out. Children may be nested lists.
 * @param {string} tag
 * @param {Attributes | null} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  return furnished(document.createElement(tag), attributes, children);
}

/**
 * An SVG element, as `h`.
 * @param {string} tag
 * @param {Attributes | null} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, attributes, ...children) {
  return furnished(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * Put these children in the place of all that the element had.
 * @template {Element | DocumentFragment} Parent
 * @param {Parent} element
 * @param {...Child} children
 * @returns {Parent}
 */
export function replace(element, ...children) {
  const fragment = appendAll(document.createDocumentFragment(), children);
  element.replaceChildren(fragment);
  return element;
}

/**
 * One by one: a call takes some ten thousands of arguments, and a text may have more lines.
 * @template {Element | DocumentFragment} Parent
 * @param {Parent} parent
 * @param {Child[]} children
 * @returns {Parent}
 */
function appendAll(parent, children) {
  for (const node of nodes(children)) parent.append(node);
  return parent;
}

/**
 * Children as nodes: strings as text, nothing for null, undefined and false.
 * @param {Child[]} children
 * @returns {Node[]}
 */
export function nodes(children) {
  /** @type {Node[]} */
  const found = [];
  for (const child of children) {
    if (Array.isArray(child)) for (const node of nodes(child)) found.push(node);
    else if (child instanceof Node) found.push(child);
    else if (child !== null && child !== undefined && child !== false && child !== '') {
      found.push(document.createTextNode(visible(String(child))));
    }
  }
  return found;
}

/**
 * @template {Element} Made
 * @param {Made} element
 * @param {Attributes | null | undefined} attributes
 * @param {Child[]} children
 * @returns {Made}
 */
function furnished(element, attributes, children) {
  if (NEVER.has(element.localName)) throw new TypeError(`<${element.localName}> is never made here`);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') {
      element.addEventListener(name.replace(/^on/, ''), /** @type {EventListener} */ (value));
    } else {
      element.setAttribute(name, checked(name, value === true ? '' : String(value)));
    }
  }
  appendAll(element, children);
  return element;
}

/**
 * @param {string} name
 * @param {string} value
 */
function checked(name, value) {
  if (/^on/i.test(name)) throw new TypeError(`${name} takes a function`);
  if (/^style$/i.test(name)) throw new TypeError('style goes by classes or element.style');
  if (name === 'srcdoc') throw new TypeError('srcdoc is never set here');
  // A link that would run something leads nowhere.
  return ADDRESSES.has(name) && !isSafeAddress(value) ? '#' : value;
}
