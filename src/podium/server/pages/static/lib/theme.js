// Light, dark, or as the system has it; the choice is kept for the next visit.

import { replace, s } from './dom.js';

const KEPT = 'theme';

/** @returns {boolean} */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

/**
 * Have the button switch between light and dark.
 * @param {HTMLButtonElement} button
 */
export function themeButton(button) {
  const label = () => {
    const words = isDark() ? 'Switch to light' : 'Switch to dark';
    button.setAttribute('aria-label', words);
    button.title = words;
    replace(button, isDark() ? sun() : moon());
  };
  button.addEventListener('click', () => {
    const chosen = isDark() ? 'light' : 'dark';
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem(KEPT, chosen);
    } catch {
      // Storage is closed to us: the choice lasts as long as this page.
    }
    label();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', label);
  label();
}

function sun() {
  const rays = 'M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4';
  return icon(s('circle', { cx: 12, cy: 12, r: 4 }), s('path', { d: rays }));
}

function moon() {
  return icon(s('path', { d: 'M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z' }));
}

/** @param {...SVGElement} shapes */
function icon(...shapes) {
  return s('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true' }, ...shapes);
}
