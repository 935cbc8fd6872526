// What two texts have in common, by words.

/** A longer text is compared by lines. */
const MOST_WORDS = 1500;

/** @typedef {{kind: 'same' | 'removed' | 'added', text: string}} Piece */

/**
 * @param {string} before
 * @param {string} after
 * @returns {Piece[]}
 */
export function diff(before, after) {
  const [one, other] = [parts(before, /\s+/), parts(after, /\s+/)];
  const isLong = Math.max(one.length, other.length) > MOST_WORDS;
  return isLong ? compared(parts(before, /\n/), parts(after, /\n/)) : compared(one, other);
}

/**
 * The text cut after each match, with nothing lost.
 * @param {string} text
 * @param {RegExp} end
 */
function parts(text, end) {
  return text.match(new RegExp(`[^]*?(?:${end.source}|$)`, 'g'))?.filter(Boolean) ?? [];
}

/**
 * By the longest common subsequence.
 * @param {string[]} one
 * @param {string[]} other
 * @returns {Piece[]}
 */
function compared(one, other) {
  const rows = Math.min(one.length, MOST_WORDS);
  const columns = Math.min(other.length, MOST_WORDS);
  const width = columns + 1;
  const longest = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      longest[at] =
        one[i] === other[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  /** @type {Piece[]} */
  const pieces = [];
  const add = (/** @type {Piece['kind']} */ kind, /** @type {string} */ text) => {
    const last = pieces.at(-1);
    if (last?.kind === kind) last.text += text;
    else pieces.push({ kind, text });
  };
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      add('same', one[i]);
      i += 1;
      j += 1;
    } else if (j >= other.length || (i < rows && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      add('removed', one[i]);
      i += 1;
    } else {
      add('added', other[j]);
      j += 1;
    }
  }
  return pieces;
}
