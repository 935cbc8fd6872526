// Files that go with a message: images, made smaller where they are large, and texts in UTF-8.

import { h, replace } from '../lib/dom.js';

/** @typedef {{name: string, kind: 'image' | 'text', data: string}} Attachment An image's data URL. */

const MEGABYTE = 1_000_000;
const MOST_FILES = 6;
const LARGEST_IMAGE = 10 * MEGABYTE;
const LARGEST_TEXT = MEGABYTE / 5;

/** What is smaller is sent as it is. */
const SMALL_IMAGE = MEGABYTE / 4;
const LONGEST_SIDE = 1280;
const SENDABLE = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

export class Attachments {
  /** @type {Attachment[]} */
  #files = [];
  #list = h('ul', { class: 'files', 'aria-label': 'Attached files', hidden: true });
  #problem = h('p', { class: 'field-error', role: 'alert' });
  #input = /** @type {HTMLInputElement} */ (
    h('input', {
      type: 'file',
      multiple: true,
      hidden: true,
      'aria-label': 'Files to attach',
      onchange: () => {
        this.add([...(this.#input.files ?? [])]);
        this.#input.value = '';
      },
    })
  );

  constructor() {
    this.element = h('div', { class: 'attachments' }, this.#list, this.#problem, this.#input);
  }

  /** Have the reader choose files. */
  choose() {
    this.#input.click();
  }

  /**
   * Attach what can be sent; say of each other file why not.
   * @param {File[]} files
   */
  async add(files) {
    /** @type {string[]} */
    const problems = [];
    for (const file of files) {
      try {
        if (this.#files.length >= MOST_FILES) throw new Error(`A message has at most ${MOST_FILES} files.`);
        this.#files.push(await read(file));
      } catch (error) {
        problems.push(/** @type {Error} */ (error).message);
      }
    }
    replace(this.#problem, [...new Set(problems)].join(' '));
    this.#draw();
  }

  /** @returns {Attachment[]} What is attached; nothing is afterwards. */
  take() {
    const taken = this.#files;
    this.files = [];
    return taken;
  }

  get isEmpty() {
    return !this.#files.length;
  }

  /** @param {Attachment[]} files */
  set files(files) {
    this.#files = [...files];
    replace(this.#problem);
    this.#draw();
  }

  #draw() {
    this.#list.hidden = !this.#files.length;
    const chips = this.#files.map((file) => {
      const onRemove = () => {
        this.#files = this.#files.filter((each) => each !== file);
        this.#draw();
      };
      return fileChip(file, onRemove);
    });
    replace(this.#list, chips);
  }
}

/**
 * @param {Attachment} file
 * @param {() => void} [onRemove]
 */
export function fileChip({ name, kind, data }, onRemove) {
  const picture = /** @type {HTMLImageElement} */ (h('img', { alt: '', width: 40, height: 40 }));
  if (kind === 'image' && data.startsWith('data:image/')) picture.src = data;
  return h(
    'li',
    { class: 'file' },
    kind === 'image' && picture,
    h('span', { title: name }, name),
    onRemove &&
      h(
        'button',
        { type: 'button', class: 'small quiet', 'aria-label': `Remove ${name}`, onclick: onRemove },
        '×',
      ),
  );
}

/**
 * The message as an item of the Responses API.
 * @param {string} question
 * @param {Attachment[]} files
 */
export function messageItem(question, files) {
  const content = files.map(({ name, kind, data }) =>
    kind === 'image'
      ? { type: 'input_image', image_url: data }
      : { type: 'input_text', text: `File ${name}:\n\n${data}\n` },
  );
  return { role: 'user', content: [...content, { type: 'input_text', text: question }] };
}

/**
 * @param {File} file
 * @returns {Promise<Attachment>}
 */
async function read(file) {
  const { name } = file;
  if (file.type.startsWith('image/') && file.type !== 'image/svg+xml') {
    check(file, LARGEST_IMAGE, 'an image');
    return { name, kind: 'image', data: await imageData(file) };
  }
  check(file, LARGEST_TEXT, 'a text file');
  try {
    const words = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    if (!words.includes('\0')) return { name, kind: 'text', data: words };
  } catch {
    // It is said below.
  }
  throw new Error(`${name} is neither an image nor text in UTF-8.`);
}

/**
 * @param {File} file
 * @param {number} most
 * @param {string} what
 */
function check({ name, size }, most, what) {
  if (size <= most) return;
  const [is, limit] = [size, most].map((bytes) => `${(bytes / MEGABYTE).toFixed(1)} MB`);
  throw new Error(`${name} has ${is}; the limit for ${what} is ${limit}.`);
}

/** @param {File} file */
async function imageData(file) {
  if (file.size <= SMALL_IMAGE && SENDABLE.has(file.type)) return dataUrl(file);
  const picture = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} cannot be read as an image.`);
  });
  const scale = Math.min(1, LONGEST_SIDE / Math.max(picture.width, picture.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  pen.fillStyle = 'white'; // JPEG has no transparency
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  picture.close();
  return canvas.toDataURL('image/jpeg', 0.85);
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
