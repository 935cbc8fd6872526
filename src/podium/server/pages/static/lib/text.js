// Make untrusted text safe to display. Nothing here touches the DOM.

// C0 and C1 controls but for tab and line feed, and what changes the direction of writing from
// afar: a reply must not be able to hide what it says.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/**
 * The text with characters that do something instead of showing something made visible: controls
 * as their symbols, so that an escape sequence reads as ␛[31m.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(/\r\n/g, '\n').replace(HIDDEN, symbol);
}

/** @param {string} character */
function symbol(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return '\u2421';
  return `[U+${code.toString(16).toUpperCase().padStart(4, '0')}]`;
}

const SAFE_SCHEMES = new Set(['http:', 'https:', 'mailto:']);

/**
 * Whether an address may become a link: relative, or of a scheme that runs nothing.
 * @param {string} address
 * @returns {boolean}
 */
export function isSafeAddress(address) {
  try {
    return SAFE_SCHEMES.has(new URL(address, 'https://relative.invalid/').protocol);
  } catch {
    return false;
  }
}

const BRACKETS = ['()', '[]', '{}'];

/**
 * What ends a sentence, or closes a bracket that was opened before it, is no part of an address.
 * @param {string} address
 * @returns {string}
 */
export function withoutEnd(address) {
  const more = BRACKETS.map(([open, close]) => [close, times(address, close) - times(address, open)]);
  const unopened = /** @type {Record<string, number>} */ (Object.fromEntries(more));
  let length = address.length;
  for (; ; length -= 1) {
    const last = address[length - 1];
    if (unopened[last] > 0) unopened[last] -= 1;
    else if (!/[.,;:!?*_~]/.test(last)) return address.slice(0, length);
  }
}

/**
 * @param {string} text
 * @param {string} character
 */
function times(text, character) {
  return text.split(character).length - 1;
}
