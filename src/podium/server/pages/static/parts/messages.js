// What passed between Podium and a worker, message by message, word for word.

import { h, replace } from '../lib/dom.js';
import { count, countText } from '../lib/format.js';

const SHOWN_AT_ONCE = 20_000;
const ROLES = Object.freeze({
  system: 'system',
  user: 'Podium',
  assistant: 'the worker',
  tool: 'a tool',
});

/**
 * The messages of a request.
 * @param {{messages: any[], tools: {name: string, description: string}[], schema: unknown,
 *   effort: string | null, temperature: number | null, max_tokens: number | null}} request
 * @returns {HTMLElement}
 */
export function conversation(request) {
  return h(
    'div',
    { class: 'conversation' },
    h('ol', {}, request.messages.map(message)),
    terms(request),
  );
}

/**
 * Text as it is; of a very long one the beginning, and the rest when asked for.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function longText(text) {
  const box = h('pre', { class: 'said', tabindex: '0' }, text.slice(0, SHOWN_AT_ONCE));
  if (text.length <= SHOWN_AT_ONCE) return box;
  const rest = h(
    'button',
    {
      type: 'button',
      class: 'small',
      onclick: () => {
        replace(box, text);
        rest.remove();
      },
    },
    `Show all ${countText(text.length)} characters`,
  );
  return h('div', {}, box, rest);
}

/** @param {{role: string, parts: any[]}} message */
function message({ role, parts }) {
  const words = ROLES[/** @type {keyof typeof ROLES} */ (role)] ?? role;
  return h(
    'li',
    { class: 'message', 'data-role': role },
    h(
      'p',
      { class: 'message-role' },
      h('span', { class: 'badge' }, role),
      words === role ? null : ` ${words}`,
    ),
    parts.map(part),
  );
}

/** @param {any} said */
function part(said) {
  switch (said.kind) {
    case 'image':
      return picture(said);
    case 'tool_call':
      return [h('p', {}, 'calls ', h('code', {}, said.name)), longText(said.arguments)];
    case 'tool_result':
      return [
        h('p', {}, said.is_error ? 'the tool failed' : 'the tool answered'),
        longText(said.text),
        said.images.map(picture),
      ];
    case 'thinking':
      return [h('p', { class: 'quiet-text' }, 'thought'), longText(said.text)];
    default:
      return longText(said.text);
  }
}

/** @param {{media_type: string, url: string, bytes: number}} image */
function picture({ media_type: type, url, bytes }) {
  if (url) return h('p', { class: 'quiet-text' }, `a picture at ${url}`);
  return h('p', { class: 'quiet-text' }, `a picture (${type}, `, count(bytes), ' bytes)');
}

/** @param {any} request */
function terms(request) {
  const tools = request.tools.map((/** @type {any} */ tool) => tool.name).join(', ');
  const said = [
    tools ? `tools: ${tools}` : '',
    request.schema ? 'the reply had to fit a JSON Schema' : '',
    request.effort ? `effort ${request.effort}` : '',
    request.temperature === null ? '' : `temperature ${request.temperature}`,
    request.max_tokens === null ? '' : `at most ${countText(request.max_tokens)} tokens`,
  ].filter(Boolean);
  return said.length ? h('p', { class: 'quiet-text' }, `With it: ${said.join('; ')}.`) : null;
}
