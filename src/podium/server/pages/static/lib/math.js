// Mathematics: TeX as MathML, by a converter that is loaded when the first formula is met. Until it
// is there, and where a formula cannot be read, its source is shown.

import { h, replace } from './dom.js';

const LONGEST = 5000;
const MATHML = 'http://www.w3.org/1998/Math/MathML';

/** @type {any} */
let converter = null;
/** @type {Promise<any> | null} */
let coming = null;

/**
 * A formula.
 * @param {string} source TeX, without the signs around it.
 * @param {boolean} display On lines of its own.
 * @returns {HTMLElement}
 */
export function formula(source, display) {
  const element = h('span', { class: display ? 'math math-display' : 'math' }, source);
  if (display) element.setAttribute('tabindex', '0');
  if (source.length > LONGEST) return element;
  if (converter !== null) convert(element, source, display);
  else void loaded().then(() => convert(element, source, display));
  return element;
}

/** The converter, and the style of what it makes. */
function loaded() {
  coming ??= import('../vendor/temml.js')
    .then((module) => {
      const style = document.createElement('link');
      style.rel = 'stylesheet';
      style.href = new URL('../vendor/temml.css', import.meta.url).href;
      document.head.append(style);
      converter = module.default;
    })
    .catch(() => {
      coming = null; // the server is away: sources are shown, and the next formula tries again
    });
  return coming;
}

/**
 * @param {HTMLElement} element
 * @param {string} source
 * @param {boolean} display
 */
function convert(element, source, display) {
  if (converter === null) return;
  const room = document.createElement('div');
  try {
    converter.render(source, room, {
      displayMode: display,
      throwOnError: true,
      trust: false, // nothing that links, loads or names classes
      maxExpand: 500,
      maxSize: [20, 200],
    });
  } catch {
    return; // not TeX that can be read: its source stands
  }
  const made = room.firstElementChild;
  if (made !== null && isHarmless(made)) replace(element, made);
}

/**
 * Whether it is mathematics and nothing else; the converter was told to make no more, and this
 * does not rely on it.
 * @param {Element} root
 * @returns {boolean}
 */
function isHarmless(root) {
  return [root, ...root.querySelectorAll('*')].every(
    (element) =>
      element.namespaceURI === MATHML &&
      element.localName !== 'annotation-xml' &&
      [...element.attributes].every(
        ({ name }) => !/^on/i.test(name) && !/href|src|action/i.test(name),
      ),
  );
}
