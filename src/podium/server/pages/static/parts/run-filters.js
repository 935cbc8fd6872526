// Which runs are wanted: the fields, the address that holds them, and what the API is asked. The
// address is the only place where they are kept, so that a link shows what its sender saw.

import { h, replace } from '../lib/dom.js';
import { STATUSES } from './status.js';

/** The names of the filters, in the address and in the API alike. */
const NAMES = Object.freeze(
  /** @type {const} */ ([
    'text',
    'status',
    'tier',
    'worker',
    'cost_from',
    'cost_to',
    'since',
    'until',
    'owner',
  ]),
);

const TIERS = Object.freeze([
  ['mini', 'podium-mini'],
  ['podium', 'podium'],
  ['ultra', 'podium-ultra'],
]);

/**
 * The filters that an address holds; what it holds besides is left out.
 * @param {URLSearchParams} query
 * @returns {Record<string, string>}
 */
export function filtersIn(query) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const name of NAMES) {
    const value = query.get(name)?.trim();
    if (value) found[name] = value;
  }
  return found;
}

/**
 * The address that shows these runs.
 * @param {Record<string, string>} filters
 * @param {string} [before] The last run of the page before.
 * @returns {string}
 */
export function addressOf(filters, before) {
  const query = new URLSearchParams(filters);
  if (before) query.set('before', before);
  return query.size ? `/runs?${query}` : '/runs';
}

/**
 * The same with whom they mean: a key by its name, and a worker by a part of its name, where that
 * is one of those known.
 * @param {Record<string, string>} filters
 * @param {{workers: Set<string>, owners: Map<string, string>}} known
 * @returns {Record<string, string>}
 */
export function meant(filters, { workers, owners }) {
  const found = { ...filters };
  const { worker, owner } = filters;
  if (worker && !workers.has(worker)) {
    const part = worker.toLowerCase();
    const like = [...workers].filter((name) => name.toLowerCase().includes(part));
    if (like.length === 1) [found.worker] = like;
  }
  const [id] = [...owners].find(([, name]) => name === owner) ?? [];
  if (owner && id) found.owner = id;
  return found;
}

/**
 * What the API is asked for. Days are the reader's own, from their first moment to their last.
 * @param {Record<string, string>} filters
 * @param {{limit: number, before?: string | null}} page
 * @returns {string}
 */
export function requestOf(filters, { limit, before }) {
  const query = new URLSearchParams({ ...filters, limit: String(limit) });
  if (before) query.set('before', before);
  for (const [name, time] of [['since', '00:00:00.000'], ['until', '23:59:59.999']]) {
    const day = query.get(name);
    if (day && /^\d{4}-\d{2}-\d{2}$/.test(day)) {
      const moment = new Date(`${day}T${time}`);
      if (!Number.isNaN(moment.getTime())) query.set(name, moment.toISOString());
    }
  }
  return `/v1/runs?${query}`;
}

/**
 * The filter form. `onChange` gets the current filters, and whether the user is still typing.
 * @param {Record<string, string>} filters
 * @param {{onChange: (filters: Record<string, string>, change: {isTyping: boolean}) => void,
 *   onClear: () => void}} listeners
 * @returns {{element: HTMLElement,
 *   suggest: (known: {workers: string[], owners: Map<string, string>}) => void}} `owners` are the
 *   names of keys by their ids.
 */
export function filterForm(filters, { onChange, onClear }) {
  const workers = h('datalist', { id: 'known-workers' });
  const owners = h('datalist', { id: 'known-owners' });
  const worker = { list: 'known-workers', placeholder: 'any', autocomplete: 'off' };
  const key = { list: 'known-owners', placeholder: 'name or id', autocomplete: 'off' };
  const owner = field('owner', 'Key', input('owner', filters, key));
  owner.hidden = !filters.owner;
  const more = /** @type {HTMLDetailsElement} */ (
    h(
      'details',
      { class: 'more-filters' },
      h('summary', {}, 'More filters'),
      h(
        'div',
        { class: 'run-filters' },
        field('status', 'Status', choice('status', filters, STATUSES)),
        field('tier', 'Tier', choice('tier', filters, TIERS)),
        field('worker', 'Worker', input('worker', filters, worker)),
        range('Cost, $', costs('from'), costs('to')),
        range('Asked', days('since', 'from'), days('until', 'until')),
        owner,
        h('button', { type: 'button', class: 'small', onclick: () => onClear() }, 'Clear'),
      ),
    )
  );
  // On a small screen the runs come first, unless a filter would be at work unseen.
  const isWide = matchMedia('(min-width: 40rem)').matches;
  more.open = isWide || Object.keys(filters).some((name) => name !== 'text');
  const words = { type: 'search', placeholder: 'in questions and answers', maxlength: '1000' };
  const form = /** @type {HTMLFormElement} */ (
    h(
      'form',
      { class: 'run-search', role: 'search', 'aria-label': 'Runs' },
      field('text', 'Search', input('text', filters, words)),
      more,
      workers,
      owners,
    )
  );

  /** @param {'from' | 'to'} end */
  function costs(end) {
    const label = { 'aria-label': `Cost ${end}, in dollars`, placeholder: end };
    return input(`cost_${end}`, filters, { type: 'number', min: '0', step: 'any', ...label });
  }

  /** @param {string} name @param {string} end */
  function days(name, end) {
    return input(name, filters, { type: 'date', 'aria-label': `Asked ${end}` });
  }

  const notify = (/** @type {boolean} */ isTyping) => {
    const fields = new URLSearchParams(/** @type {any} */ (new FormData(form)));
    onChange(filtersIn(fields), { isTyping });
  };
  form.addEventListener('input', ({ target }) => notify(target instanceof HTMLInputElement));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    notify(false);
  });
  return {
    element: form,
    suggest(known) {
      replace(workers, known.workers.map((name) => h('option', { value: name })));
      const keys = [...known.owners];
      replace(owners, keys.map(([id, name]) => h('option', { value: id, label: name || null })));
      owner.hidden = !keys.length && !filters.owner;
    },
  };
}

/**
 * @param {string} name
 * @param {string} words
 * @param {HTMLElement} control
 */
function field(name, words, control) {
  const label = h('label', { for: `filter-${name}` }, words);
  return h('div', { class: `field filter-${name}` }, label, control);
}

/**
 * @param {string} words
 * @param {HTMLElement} from
 * @param {HTMLElement} to
 */
function range(words, from, to) {
  return h(
    'fieldset',
    { class: 'field filter-range' },
    h('legend', {}, words),
    h('div', { class: 'filter-both' }, from, h('span', { 'aria-hidden': 'true' }, '–'), to),
  );
}

/**
 * @param {string} name
 * @param {Record<string, string>} filters
 * @param {Record<string, string>} more
 */
function input(name, filters, more) {
  return h('input', { id: `filter-${name}`, name, value: filters[name] ?? '', ...more });
}

/**
 * @param {string} name
 * @param {Record<string, string>} filters
 * @param {readonly (readonly string[])[]} options
 */
function choice(name, filters, options) {
  return h(
    'select',
    { id: `filter-${name}`, name },
    h('option', { value: '' }, 'any'),
    options.map(([value, words]) => {
      const selected = filters[name] === value;
      return h('option', { value, selected }, words);
    }),
  );
}
