// Runs as rows of a table. Rows are kept by the run's id, so that one that changes does so in
// place, and what has the focus keeps it. Arrow keys go from run to run, Enter opens one; those that
// are selected are kept by their ids, whatever the list shows meanwhile.

import { h, replace } from '../lib/dom.js';
import { count, duration, snippet, usdShort, when } from '../lib/format.js';
import { TIERS } from './run-head.js';
import { isLikelyRunning, statusBadge } from './status.js';

const MOST_WORKERS = 3;
const COLUMNS = Object.freeze([
  ['Select', 'run-select'],
  ['Question', ''],
  ['Status', ''],
  ['Tier', 'wide-only'],
  ['Workers', 'wide-only'],
  ['Tokens', 'number wide-only'],
  ['Cost', 'number'],
  ['Time', 'number wide-only'],
  ['Asked', ''],
]);

/** @typedef {any} Summary What `GET /v1/runs` says of a run. */

/**
 * @param {(selected: string[]) => void} onSelect Called with the ids, in the order of selection.
 * @returns {{element: HTMLElement, show: (runs: Summary[]) => void,
 *   update: (run: Summary) => void, runs: () => Summary[], unselect: () => void}}
 */
export function runRows(onSelect) {
  /** @type {Set<string>} */
  const selected = new Set();
  /** @type {Map<string, {run: Summary, row: HTMLElement, written: string}>} */
  let kept = new Map();
  const body = h('tbody', { role: 'rowgroup', onkeydown: moveByArrows });
  const element = h(
    'div',
    { class: 'table-box run-table', tabindex: '-1' },
    h(
      'table',
      { role: 'table' },
      h('caption', { class: 'visually-hidden' }, 'Runs, the newest first'),
      h(
        'thead',
        { role: 'rowgroup' },
        h(
          'tr',
          { role: 'row' },
          COLUMNS.map(([name, kind]) =>
            h(
              'th',
              { scope: 'col', role: 'columnheader', class: kind },
              name === 'Select' ? h('span', { class: 'visually-hidden' }, name) : name,
            ),
          ),
        ),
      ),
      body,
    ),
  );

  /** @param {Summary} run */
  function entry(run) {
    const written = JSON.stringify(run);
    const before = kept.get(run.run_id);
    if (before?.written === written) return before;
    const row = before?.row ?? h('tr', { role: 'row', onclick: openRow });
    fill(row, run, selected.has(run.run_id), (isSelected) => {
      if (isSelected) selected.add(run.run_id);
      else selected.delete(run.run_id);
      onSelect([...selected]);
    });
    return { run, row, written };
  }

  return {
    element,
    show(runs) {
      const now = new Map(runs.map((run) => [run.run_id, entry(run)]));
      kept = now;
      const rows = [...now.values()].map(({ row }) => row);
      const { children } = body;
      const areThere = rows.every((row, at) => row === children[at]);
      if (!areThere || rows.length !== children.length) replace(body, rows);
    },
    update(run) {
      if (kept.has(run.run_id)) kept.set(run.run_id, entry(run));
    },
    runs: () => [...kept.values()].map(({ run }) => run),
    unselect() {
      selected.clear();
      for (const box of body.querySelectorAll('input')) box.checked = false;
      onSelect([]);
    },
  };
}

/**
 * @param {HTMLElement} row
 * @param {Summary} run
 * @param {boolean} isSelected
 * @param {(isSelected: boolean) => void} onSelect
 */
function fill(row, run, isSelected, onSelect) {
  const old = /** @type {HTMLElement | null} */ (row.querySelector('a'));
  const hadFocus = old !== null && old === document.activeElement;
  const box = /** @type {HTMLInputElement | null} */ (row.querySelector('input')) ?? selectBox();
  box.checked = isSelected;
  box.onchange = () => onSelect(box.checked);
  box.ariaLabel = `Select: ${snippet(run.question)}`;
  const isOver = run.status !== 'running';
  const words = snippet(run.question) || 'no words';
  const link = h('a', { href: `/runs/${encodeURIComponent(run.run_id)}` }, words);
  const answer = snippet(run.answer ?? '');
  const owner = run.owner_name ?? run.owner;
  replace(
    row,
    cell('run-select', box),
    cell('run-question', link, answer ? h('p', { class: 'quiet-text' }, answer) : null),
    cell('run-status', statusBadge(isOver || isLikelyRunning(run) ? run.status : 'interrupted')),
    cell('wide-only', TIERS[/** @type {'mini'} */ (run.tier)] ?? run.tier),
    cell('wide-only run-workers', workersOf(run)),
    cell('number wide-only', isOver ? count(run.total_tokens) : '…'),
    cell('number run-cost', isOver ? usdShort(run.cost_usd) : '…'),
    cell('number wide-only', isOver ? duration(run.seconds) : '…'),
    cell(
      'run-when',
      when(run.created_at),
      owner ? h('p', { class: 'quiet-text', title: run.owner }, owner) : null,
    ),
  );
  row.dataset.run = run.run_id;
  if (hadFocus) link.focus({ preventScroll: true });
}

function selectBox() {
  return /** @type {HTMLInputElement} */ (h('input', { type: 'checkbox' }));
}

/**
 * A cell. What it is, is said in so many words: on small screens rows are laid out otherwise, and
 * browsers then forget that this is a table.
 * @param {string} kind
 * @param {...import('../lib/dom.js').Child} children
 */
function cell(kind, ...children) {
  return h('td', { role: 'cell', class: kind }, children);
}

/** @param {Summary} run */
function workersOf({ workers = [] }) {
  const shown = workers.slice(0, MOST_WORKERS).join(', ');
  const rest = workers.length - MOST_WORKERS;
  if (rest <= 0) return shown || h('span', { class: 'unknown', title: 'none yet' }, '–');
  return h('span', { title: workers.join(', ') }, `${shown} and ${rest} more`);
}

/** A click on a row follows its link, except while text is selected in it. @param {MouseEvent} event */
function openRow(event) {
  if (event.target instanceof Element && event.target.closest('a, .run-select')) return;
  if (getSelection()?.type === 'Range') return;
  const row = /** @type {HTMLElement} */ (event.currentTarget);
  const { ctrlKey, metaKey } = event;
  const click = new MouseEvent('click', { bubbles: true, cancelable: true, ctrlKey, metaKey });
  row.querySelector('a')?.dispatchEvent(click);
}

/** @param {KeyboardEvent} event */
function moveByArrows(event) {
  const row = event.target instanceof Element ? event.target.closest('tr') : null;
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = {
    ArrowDown: row.nextElementSibling,
    ArrowUp: row.previousElementSibling,
    Home: row.parentElement?.firstElementChild,
    End: row.parentElement?.lastElementChild,
  }[event.key];
  if (target === undefined) return;
  event.preventDefault();
  target?.querySelector('a')?.focus();
}
