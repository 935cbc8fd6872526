// Days of UTC, as the books of the server are kept in: 2026-03-04.

const DAY = 86_400_000;

/** @returns {string} The day that it is. */
export function today() {
  return dayOf(Date.now());
}

/**
 * The ranges that people ask for most, each ending today.
 * @returns {{words: string, range: {from: string, to: string}}[]}
 */
export function presets() {
  return [7, 30, 90].map((days) => ({
    words: `${days} days`,
    range: { from: dayOf(Date.now() - (days - 1) * DAY), to: today() },
  }));
}

/**
 * Every day from one to another, both included.
 * @param {string} from
 * @param {string} to
 * @returns {string[]}
 */
export function daysBetween(from, to) {
  const [first, last] = [Date.parse(from), Date.parse(to)];
  const many = Math.floor((last - first) / DAY) + 1;
  return Array.from({ length: Math.max(0, many) }, (_, place) => dayOf(first + place * DAY));
}

/**
 * A day as people write it where there is little room.
 * @param {string} day
 * @returns {string}
 */
export function shortDay(day) {
  /** @type {Intl.DateTimeFormatOptions} */
  const form = { month: 'short', day: 'numeric', timeZone: 'UTC' };
  return new Date(`${day}T00:00:00Z`).toLocaleDateString(undefined, form);
}

/** @param {number} moment */
function dayOf(moment) {
  return new Date(moment).toISOString().slice(0, 10);
}
