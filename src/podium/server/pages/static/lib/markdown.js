// Markdown as elements: what models write, and never markup of theirs. HTML is shown as the text
// that it is, pictures are links. Blocks are read here, what stands within a line by `inline`.

import { copyButton } from './copy.js';
import { h, replace } from './dom.js';
import { inline } from './inline.js';
import { formula } from './math.js';

const DEEPEST = 10;
// What is wider is shown as it was written, and what is longer goes on as lines.
const MOST_COLUMNS = 100;
const MOST_ROWS = 2000;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const DISPLAY = /^ {0,3}(\$\$|\\\[)/;

/**
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function markdown(text) {
  const lines = text.replace(/\r\n?/g, '\n').replaceAll('\t', '    ').split('\n');
  return replace(document.createDocumentFragment(), blocks(lines, 0));
}

/**
 * @param {string[]} lines
 * @param {number} depth
 * @returns {Node[]}
 */
function blocks(lines, depth) {
  if (depth > DEEPEST) return [h('p', { class: 'plain' }, lines.join('\n'))];
  /** @type {Node[]} */
  const made = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === '') {
      at += 1;
      continue;
    }
    const reader = READERS.find(([begins]) => begins(lines, at))?.[1] ?? paragraph;
    const [node, next] = reader(lines, at, depth);
    made.push(node);
    at = next;
  }
  return made;
}

/**
 * @typedef {(lines: string[], at: number, depth: number) => [Node, number]} BlockReader What is
 *   read, and the line after it.
 */

/** @type {[(lines: string[], at: number) => boolean, BlockReader][]} */
const READERS = [
  [(lines, at) => FENCE.test(lines[at]), code],
  [(lines, at) => DISPLAY.test(lines[at]), display],
  [(lines, at) => HEADING.test(lines[at]), heading],
  [(lines, at) => RULE.test(lines[at]), (_, at) => [h('hr'), at + 1]],
  [(lines, at) => QUOTE.test(lines[at]), quote],
  [(lines, at) => ITEM.test(lines[at]), list],
  [isTable, table],
];

/** @type {BlockReader} A fence that is not closed goes on to the end: the rest may be coming. */
function code(lines, at) {
  const [, fence, language] = /** @type {RegExpExecArray} */ (FENCE.exec(lines[at]));
  const closing = new RegExp(`^ {0,3}\\${fence[0]}{${Math.min(fence.length, 99)},} *$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const source = lines.slice(at + 1, end).join('\n');
  const figure = h(
    'figure',
    { class: 'code' },
    h(
      'figcaption',
      {},
      h('span', {}, language || 'text'),
      copyButton('Copy', () => source),
    ),
    h('pre', { tabindex: 0 }, h('code', {}, source)),
  );
  return [figure, end + 1];
}

/** @type {BlockReader} A formula on lines of its own. */
function display(lines, at, depth) {
  const close = DISPLAY.exec(lines[at])?.[1] === '$$' ? '$$' : '\\]';
  const first = lines[at].trim().slice(2);
  if (first.includes(close)) {
    const [source, rest] = [first.slice(0, first.indexOf(close)), first.slice(first.indexOf(close) + 2)];
    if (rest.trim() !== '') return paragraph(lines, at, depth);
    return [formula(source.trim(), true), at + 1];
  }
  let end = at + 1;
  while (end < lines.length && !lines[end].includes(close)) end += 1;
  const last = end < lines.length ? lines[end].slice(0, lines[end].indexOf(close)) : '';
  const source = [first, ...lines.slice(at + 1, end), last].join('\n').trim();
  return [formula(source, true), end + 1];
}

/** @type {BlockReader} Below the headings of the page, whatever the writer thought. */
function heading(lines, at) {
  const [, signs, words] = /** @type {RegExpExecArray} */ (HEADING.exec(lines[at]));
  const tag = `h${Math.min(signs.length + 2, 6)}`;
  return [h(tag, { class: `prose-${signs.length}` }, inline(words ?? '')), at + 1];
}

/** @type {BlockReader} */
function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ''));
  return [h('blockquote', {}, blocks(inner, depth + 1)), end];
}

/** @type {BlockReader} */
function list(lines, at, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[at]));
  const numbered = /\d/.test(first[2]);
  const same = (/** @type {string} */ line) => {
    const found = RULE.test(line) ? null : ITEM.exec(line);
    return found !== null && /\d/.test(found[2]) === numbered;
  };
  /** @type {Node[]} */
  const items = [];
  let next = at;
  while (next < lines.length && same(lines[next])) {
    const { inner, end } = item(lines, next);
    items.push(h('li', {}, unwrapped(inner, depth)));
    next = end;
    while (next < lines.length && lines[next].trim() === '') next += 1;
  }
  const start = numbered ? Number.parseInt(first[2], 10) : 1;
  return [h(numbered ? 'ol' : 'ul', { start: start === 1 ? null : start }, items), next];
}

/**
 * The lines of an item without their indentation, and where it ends.
 * @param {string[]} lines
 * @param {number} at
 */
function item(lines, at) {
  const sign = /** @type {RegExpExecArray} */ (ITEM.exec(lines[at]))[0];
  const least = sign.search(/\S/) + 2;
  const inner = [lines[at].slice(sign.length)];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const indentation = line.search(/\S/);
    if (indentation < 0) {
      const following = lines.slice(end + 1, end + 4).find((each) => each.trim() !== '');
      if (following === undefined || following.search(/\S/) < least) break;
    } else if (indentation < least && (lines[end - 1].trim() === '' || beginsBlock(lines, end))) {
      break;
    }
    inner.push(line.slice(Math.min(Math.max(indentation, 0), sign.length)));
  }
  return { inner, end };
}

/**
 * An item that is one paragraph is just its words.
 * @param {string[]} lines
 * @param {number} depth
 */
function unwrapped(lines, depth) {
  const made = blocks(lines, depth + 1);
  if (lines.includes('')) return made;
  return made.flatMap((node) =>
    node instanceof HTMLParagraphElement ? [...node.childNodes] : [node],
  );
}

/**
 * @param {string[]} lines
 * @param {number} at
 */
function isTable(lines, at) {
  if (!lines[at].includes('|') || !TABLE_RULE.test(lines[at + 1] ?? '')) return false;
  return cells(lines[at]).length <= MOST_COLUMNS;
}

/** @type {BlockReader} */
function table(lines, at) {
  const head = cells(lines[at]);
  const sides = cells(lines[at + 1]).map((cell) => (/^-+:$/.test(cell) ? 'number' : null));
  const last = Math.min(lines.length, at + 2 + MOST_ROWS);
  let end = at + 2;
  while (end < last && lines[end].trim() !== '' && lines[end].includes('|')) end += 1;
  const row = (/** @type {string} */ line) => {
    const given = cells(line).slice(0, head.length);
    return h('tr', {}, given.map((cell, n) => h('td', { class: sides[n] }, inline(cell))));
  };
  const made = h(
    'table',
    {},
    h('thead', {}, h('tr', {}, head.map((cell, n) => h('th', { class: sides[n] }, inline(cell))))),
    h('tbody', {}, lines.slice(at + 2, end).map(row)),
  );
  const box = { class: 'table-box', tabindex: 0, role: 'region', 'aria-label': 'Table' };
  return [h('div', box, made), end];
}

/** @param {string} line */
function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.replaceAll('\\|', '|').trim());
}

/** @type {BlockReader} */
function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== '' && !beginsBlock(lines, end)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim().replace(/\\$/, ''));
  return [h('p', {}, inline(text.join('\n'))), end];
}

/**
 * @param {string[]} lines
 * @param {number} at
 */
function beginsBlock(lines, at) {
  return READERS.some(([begins]) => begins(lines, at));
}
