// Numbers and times as people read them, in the reader's own language of numbers and time zone.
// What is unknown is shown as a dash that says so, and never as 0.

import { h } from './dom.js';

const UNKNOWN = '–';

/** @returns {HTMLElement} The dash for an unknown value. */
function unknown() {
  return h('span', { class: 'unknown', title: 'unknown' }, UNKNOWN);
}

/**
 * @param {unknown} value
 * @returns {value is number}
 */
function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

/**
 * Dollars. Small amounts keep two digits that say something: $0.0042.
 * @param {number | null | undefined} amount
 * @returns {Node}
 */
export function usd(amount) {
  return isNumber(amount) ? figure(usdText(amount)) : unknown();
}

const LEAST_USD = 0.0001;

/**
 * Dollars where there is little room: less than a hundredth of a cent is said to be so, and the
 * amount is shown on hovering.
 * @param {number | null | undefined} amount
 * @returns {Node}
 */
export function usdShort(amount) {
  if (!isNumber(amount) || amount <= 0 || amount >= LEAST_USD) return usd(amount);
  return h('span', { class: 'figure', title: usdText(amount) }, `< ${usdText(LEAST_USD)}`);
}

/**
 * Dollars as plain text, for places that take no element.
 * @param {number | null | undefined} amount
 * @returns {string}
 */
export function usdText(amount) {
  if (!isNumber(amount)) return UNKNOWN;
  const size = Math.abs(amount);
  const digits = size === 0 || size >= 1 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(size)));
  return new Intl.NumberFormat(undefined, {
    style: 'currency',
    currency: 'USD',
    currencyDisplay: 'narrowSymbol',
    minimumFractionDigits: 2,
    maximumFractionDigits: Math.max(2, digits),
  }).format(amount);
}

/**
 * A length of time: 340 ms, 2.4 s, 3 min 12 s, 2 h 5 min.
 * @param {number | null | undefined} seconds
 * @returns {Node}
 */
export function duration(seconds) {
  return isNumber(seconds) ? figure(durationText(seconds)) : unknown();
}

/**
 * A length of time as plain text.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function durationText(seconds) {
  if (!isNumber(seconds)) return UNKNOWN;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  if (hours > 0) return `${hours} h ${minutes} min`;
  return `${minutes} min ${whole % 60} s`;
}

/**
 * A moment in the reader's zone, with how long ago it was on hovering.
 * @param {string | null | undefined} iso
 * @returns {Node}
 */
export function when(iso) {
  const moment = new Date(iso ?? NaN);
  if (Number.isNaN(moment.getTime())) return unknown();
  const thisYear = moment.getFullYear() === new Date().getFullYear();
  const shown = new Intl.DateTimeFormat(undefined, {
    year: thisYear ? undefined : 'numeric',
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
  }).format(moment);
  return h('time', { datetime: moment.toISOString(), title: ago(moment), class: 'figure' }, shown);
}

const UNITS = /** @type {const} */ ([
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
]);

/** @param {Date} moment */
function ago(moment) {
  const seconds = (moment.getTime() - Date.now()) / 1000;
  const words = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return words.format(Math.round(seconds / length), unit);
  }
  return words.format(Math.round(seconds), 'second');
}

/**
 * How many: 1,204, or 1.2M where it is large.
 * @param {number | null | undefined} number
 * @returns {Node}
 */
export function count(number) {
  return isNumber(number) ? figure(countText(number), number >= 1e6 ? number : null) : unknown();
}

/**
 * How many, as plain text.
 * @param {number | null | undefined} number
 * @returns {string}
 */
export function countText(number) {
  if (!isNumber(number)) return UNKNOWN;
  const compact = Math.abs(number) >= 1e6;
  return new Intl.NumberFormat(undefined, {
    notation: compact ? 'compact' : 'standard',
    maximumFractionDigits: compact ? 2 : 0,
  }).format(number);
}

/**
 * A share, given as a fraction: 0.125 is 12.5 %.
 * @param {number | null | undefined} fraction
 * @returns {Node}
 */
export function percent(fraction) {
  return isNumber(fraction) ? figure(percentText(fraction)) : unknown();
}

/**
 * A share as plain text.
 * @param {number | null | undefined} fraction
 * @returns {string}
 */
export function percentText(fraction) {
  if (!isNumber(fraction)) return UNKNOWN;
  return new Intl.NumberFormat(undefined, { style: 'percent', maximumFractionDigits: 1 }).format(
    fraction,
  );
}

/**
 * The text on one line, cut off after so many characters.
 * @param {string} text
 * @param {number} length
 * @returns {string}
 */
export function shorten(text, length) {
  const line = text.replace(/\s+/g, ' ').trim();
  const characters = Array.from(line);
  return characters.length <= length ? line : `${characters.slice(0, length - 1).join('')}…`;
}

/**
 * @param {string} text
 * @param {number | null} [exact]
 */
function figure(text, exact = null) {
  const title = exact === null ? null : new Intl.NumberFormat().format(exact);
  return h('span', { class: 'figure', title }, text);
}

const LONGEST_SNIPPET = 180;

/**
 * The beginning of a text, without the marks of Markdown that mean nothing on one line.
 * @param {string} text
 * @returns {string}
 */
export function snippet(text) {
  const plain = text
    .slice(0, 10 * LONGEST_SNIPPET)
    .replace(/^ *```.*$|^[ :|-]*--[ :|-]*$/gm, '')
    .replace(/^ *\|(.*)\| *$/gm, (_, row) => row.replaceAll('|', ' '))
    .replace(/!?\[([^\]\n]{0,200})\]\([^)\s]{0,500}\)/g, '$1')
    .replace(/^\s*(#{1,6}|[-*+]|>|\d+\.) +/gm, '')
    .replace(/(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?=[\s.,;:!?)]|$)|`+/g, '');
  return shorten(plain, LONGEST_SNIPPET);
}
