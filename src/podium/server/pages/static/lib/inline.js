// What stands within a line of Markdown: emphasis, code, links, mathematics. Whatever is not
// understood stays the text that it is. Time is linear in the length of the text.

import { h, nodes } from './dom.js';
import { formula } from './math.js';
import { isSafeAddress, withoutEnd } from './text.js';

const DEEPEST = 8;
const ESCAPED = /^\\([!-/:-@[-`{-~])/;
const BARE_ADDRESS = /^https?:\/\/[^\s<>"'`]+/;
const ANGLED_ADDRESS = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/;
const BREAK = /^<br\s*\/?>/i;
const ENTITY = /^&(amp|lt|gt|quot|nbsp|#39);/;
const ENTITIES = /** @type {Record<string, string>} */ ({
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  nbsp: '\u00a0',
  '#39': "'",
});
// Where something may begin; the text between is passed over at one go.
const SPECIAL = /[\\`*_~[!<$&\n]|https?:\/\//g;

/** @type {[string, string[]][]} Longer signs first. */
const EMPHASES = [
  ['***', ['strong', 'em']],
  ['**', ['strong']],
  ['__', ['strong']],
  ['~~', ['del']],
  ['*', ['em']],
  ['_', ['em']],
];

/** @type {[string, string, boolean][]} What opens a formula, what closes it, and its form. */
const FORMULAS = [
  ['$$', '$$', true],
  ['\\[', '\\]', true],
  ['\\(', '\\)', false],
];

/**
 * @param {string} text
 * @returns {Node[]}
 */
export function inline(text) {
  return new Reader(text, 0).read();
}

class Reader {
  /**
   * @param {string} text
   * @param {number} depth
   */
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    /** @type {Node[]} */
    this.made = [];
    this.plain = '';
    // Where each sign is next, so that none is looked for twice; -1 where it is not ahead.
    /** @type {Map<string, number>} */
    this.ahead = new Map();
  }

  /** @returns {Node[]} */
  read() {
    while (this.at < this.text.length) {
      SPECIAL.lastIndex = this.at;
      const next = SPECIAL.exec(this.text);
      if (next === null) {
        this.take(this.text.length - this.at);
        break;
      }
      this.take(next.index - this.at);
      if (!this.special()) this.take(1);
    }
    this.flush();
    return this.made;
  }

  /** @param {number} length Characters that are text. */
  take(length) {
    this.plain += this.text.slice(this.at, this.at + length);
    this.at += length;
  }

  flush() {
    if (this.plain === '') return;
    this.made.push(...nodes([this.plain]));
    this.plain = '';
  }

  /**
   * @param {Node} node
   * @param {number} length How much of the text it stands for.
   */
  put(node, length) {
    this.flush();
    this.made.push(node);
    this.at += length;
    return true;
  }

  /** @returns {boolean} Whether something was found here. */
  special() {
    const rest = this.text.slice(this.at, this.at + 12);
    switch (rest[0]) {
      case '\n':
        return this.put(h('br'), 1);
      case '`':
        return this.code();
      case '&':
        return this.entity(rest);
      case '<':
        return this.angled();
      case '[':
        return this.link(0);
      case '!':
        return rest[1] === '[' && this.link(1);
      case 'h':
        return this.bareAddress();
      case '$':
      case '\\':
        return this.mathematics() || this.escaped(rest);
      default:
        return this.emphasis();
    }
  }

  /** @param {string} rest */
  escaped(rest) {
    const found = ESCAPED.exec(rest);
    if (found === null) return false;
    this.plain += found[1];
    this.at += 2;
    return true;
  }

  /** @param {string} rest */
  entity(rest) {
    const found = ENTITY.exec(rest);
    if (found === null) return false;
    this.plain += ENTITIES[found[1]];
    this.at += found[0].length;
    return true;
  }

  code() {
    const signs = /^`+/.exec(this.text.slice(this.at, this.at + 100))?.[0] ?? '`';
    const end = this.find(signs, this.at + signs.length);
    if (end < 0) {
      this.take(signs.length);
      return true;
    }
    const inner = this.text.slice(this.at + signs.length, end).replaceAll('\n', ' ');
    const trimmed = /^ .*[^ ].* $/.test(inner) ? inner.slice(1, -1) : inner;
    return this.put(h('code', {}, trimmed), end + signs.length - this.at);
  }

  angled() {
    const rest = this.text.slice(this.at, this.at + 2000);
    const broken = BREAK.exec(rest);
    if (broken) return this.put(h('br'), broken[0].length);
    const address = ANGLED_ADDRESS.exec(rest);
    return address !== null && this.put(anchor(address[1], [address[1]]), address[0].length);
  }

  bareAddress() {
    const found = BARE_ADDRESS.exec(this.text.slice(this.at, this.at + 2000))?.[0];
    if (!found) return false;
    const address = withoutEnd(found);
    return this.put(anchor(address, [address]), address.length);
  }

  /** @param {0 | 1} picture Whether it is one: pictures are links, nothing is loaded. */
  link(picture) {
    const start = this.at + picture + 1;
    const close = this.find('](', start);
    if (close < 0 || close - start > 2000) return false;
    const words = this.text.slice(start, close);
    if (!picture && /(?<!\\)\[[^\]]*$/.test(words.slice(-500))) return false;
    const target = /^\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+["'(][^"'()]*["')])?\s*\)/.exec(
      this.text.slice(close + 2, close + 2002),
    );
    if (target === null) return false;
    const length = close + 2 + target[0].length - this.at;
    if (!isSafeAddress(target[1])) {
      this.take(length); // shown as it was written
      return true;
    }
    const inner = picture ? [`Picture: ${words || target[1]}`] : this.within(words);
    return this.put(anchor(target[1], inner), length);
  }

  mathematics() {
    for (const [open, close, display] of FORMULAS) {
      if (!this.text.startsWith(open, this.at)) continue;
      const end = this.find(close, this.at + open.length);
      if (end < 0) return false;
      const source = this.text.slice(this.at + open.length, end);
      if (source.trim() === '') return false;
      return this.put(formula(source.trim(), display), end + close.length - this.at);
    }
    return this.text[this.at] === '$' && this.dollars();
  }

  /** `$x$`, but not prices: the first sign is before something, the next one after something. */
  dollars() {
    const end = this.find('$', this.at + 1);
    if (end < 0) return false;
    const source = this.text.slice(this.at + 1, end);
    if (/^\s|[\s\\]$|^$/.test(source) || /[0-9]/.test(this.text[end + 1] ?? '')) return false;
    return this.put(formula(source, false), end + 1 - this.at);
  }

  emphasis() {
    for (const [sign, tags] of EMPHASES) {
      if (!this.text.startsWith(sign, this.at)) continue;
      const start = this.at + sign.length;
      const inWord = sign[0] === '_' && /\w/.test(this.text[this.at - 1] ?? '');
      if (inWord || /\s/.test(this.text[start] ?? ' ')) continue;
      const end = this.closing(sign, start + 1);
      if (end < 0) continue;
      const inner = this.within(this.text.slice(start, end));
      const [made] = tags.reduceRight((children, tag) => [h(tag, {}, children)], inner);
      return this.put(made, end + sign.length - this.at);
    }
    this.take(/^(\*+|_+|~+)/.exec(this.text.slice(this.at, this.at + 200))?.[0].length ?? 1);
    return true;
  }

  /**
   * Where the emphasis ends: its sign after something, and no part of a longer run of it.
   * @param {string} sign
   * @param {number} from
   */
  closing(sign, from) {
    for (let at = from, tries = 0; tries < 20; tries += 1) {
      const end = this.find(sign, at);
      if (end < 0) return -1;
      const before = this.text[end - 1];
      const after = this.text[end + sign.length] ?? '';
      const inWord = sign[0] === '_' && /\w/.test(after);
      const longer = sign.length === 1 && (after === sign || before === sign);
      if (!/\s/.test(before) && !inWord && !longer) return end;
      at = end + sign.length + (longer && after === sign ? 1 : 0);
    }
    return -1;
  }

  /**
   * @param {string} sign
   * @param {number} from
   */
  find(sign, from) {
    const known = this.ahead.get(sign);
    if (known !== undefined && (known < 0 || known >= from)) return known;
    const found = this.text.indexOf(sign, from);
    this.ahead.set(sign, found);
    return found;
  }

  /** @param {string} text */
  within(text) {
    return this.depth >= DEEPEST ? nodes([text]) : new Reader(text, this.depth + 1).read();
  }
}

/**
 * @param {string} address
 * @param {import('./dom.js').Child[]} children
 */
function anchor(address, children) {
  // As a browser reads it: also //somewhere and /\somewhere are other sites.
  const isOwn = new URL(address, location.href).origin === location.origin;
  const away = isOwn ? {} : { target: '_blank', rel: 'noopener noreferrer' };
  return h('a', { href: address, ...away }, children);
}
