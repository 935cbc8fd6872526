// From values to places in a picture, and the round values to write beside it. Nothing here draws.

/**
 * Round values, of which the first and the last embrace `low` and `high`.
 * @param {number} low
 * @param {number} high
 * @param {number} [about] How many, roughly.
 * @returns {number[]}
 */
export function ticks(low, high, about = 5) {
  const end = high > low ? high : low + 1;
  const rough = (end - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((each) => power * each > rough * 0.999) ?? 10;
  const apart = power * factor;
  const first = Math.floor(low / apart + 1e-9);
  const last = Math.ceil(end / apart - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) =>
    Number(((first + place) * apart).toPrecision(12)),
  );
}

/**
 * Where a value is, between two ends of a picture.
 * @param {number} low
 * @param {number} high
 * @param {number} begin
 * @param {number} end
 * @returns {(value: number) => number}
 */
export function scale(low, high, begin, end) {
  const extent = high - low || 1;
  return (value) => begin + ((value - low) / extent) * (end - begin);
}

/**
 * No more than so many of these, evenly, the last one among them.
 * @template Item
 * @param {Item[]} items
 * @param {number} most
 * @returns {Item[]}
 */
export function some(items, most) {
  const apart = Math.ceil(items.length / most);
  return apart < 2 ? items : items.filter((_, place) => (items.length - 1 - place) % apart === 0);
}

/** @param {number[]} values */
export function least(values) {
  return values.reduce((one, other) => Math.min(one, other), Infinity);
}

/** @param {number[]} values */
export function most(values) {
  return values.reduce((one, other) => Math.max(one, other), -Infinity);
}
