// The form of a new worker, and the TOML that it needs: a server reads its workers when it starts.

import { copyButton } from '../lib/copy.js';
import { h, replace } from '../lib/dom.js';
import { field, formDialog } from './dialog.js';

const PROVIDERS = [
  'openai', 'anthropic', 'google', 'azure', 'bedrock', 'vertex', 'openrouter', 'deepseek', 'together',
  'groq', 'mistral', 'xai', 'fireworks', 'ollama', 'lmstudio', 'vllm', 'openai-compatible', 'llamacpp',
];

export async function addWorker() {
  const code = h('code');
  /** @param {string} id @param {object} [more] */
  const input = (id, more) => h('input', { id: `worker-${id}`, name: id, autocomplete: 'off', ...more });
  const money = { type: 'number', min: 0, step: 'any' };
  const form = h(
    'div',
    { class: 'keys', oninput: () => replace(code, toml(values(form))) },
    field('Name', input('name')),
    field(
      'Provider',
      h('select', { id: 'worker-provider', name: 'provider' }, PROVIDERS.map((each) => h('option', {}, each))),
    ),
    field('Model', input('model'), 'The vendor\'s id; by default the name.'),
    field('Description', input('description'), 'What it is good at: the conductor chooses by it.'),
    field('Address', input('base_url'), 'Only where it is not the vendor\'s own.'),
    field('Environment variable of its key', input('key_env')),
    field('Input price', input('input', money), 'USD per million tokens; for known models the catalogue has it.'),
    field('Output price', input('output', money)),
  );
  replace(code, toml(values(form)));
  await formDialog(
    'Add a worker',
    { cancel: 'Close', wide: true },
    form,
    h('p', {}, 'Add this to podium.toml, set the key in the environment, and restart the server. A file that names workers uses only those:'),
    h('pre', { tabindex: 0 }, code),
    h('div', {}, copyButton('Copy', () => code.textContent ?? '')),
  );
}

/** @param {Element} form */
function values(form) {
  const controls = /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll('input, select'));
  return Object.fromEntries([...controls].map(({ name, value }) => [name, value.trim()]));
}

/** @param {Record<string, string>} values */
function toml({ name, provider, model, description, base_url: url, key_env: key, input, output }) {
  const text = (/** @type {string} */ id, /** @type {string} */ value) => value && `${id} = ${JSON.stringify(value)}`;
  return [
    '[[worker]]',
    `name = ${JSON.stringify(name || 'my-worker')}`,
    text('provider', provider),
    text('model', model),
    text('description', description),
    text('base_url', url),
    text('key_env', key),
    input && output && `price = { input = ${Number(input)}, output = ${Number(output)} }`,
  ]
    .filter(Boolean)
    .join('\n');
}
