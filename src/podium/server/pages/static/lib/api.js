// The server's API, as every other client sees it. Who is not signed in where keys are asked for is
// asked to sign in, and the request is made again.

import { events } from './events.js';
import { needKey } from './session.js';

/** What the server, or the way to it, said no with. `status` is 0 where no answer came. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string} hint How to go on.
   */
  constructor(status, message, hint) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.hint = hint;
  }
}

const HINTS = /** @type {Record<number, string>} */ ({
  400: 'Change what is asked, and try again.',
  401: 'Sign in with an API key of this server.',
  402: 'The budget is spent: raise it, or wait until it resets.',
  403: 'The operator of this server creates API keys.',
  404: 'It may have been deleted, or belong to another key.',
  409: 'Reload the page to see the current state.',
  413: 'Send less at a time.',
  429: 'Wait a moment, and try again.',
  502: 'No worker could answer; the page Workers shows how they are.',
  503: 'The server is busy or stopping; try again in a moment.',
});

/** Browsers send no more than 64 KiB once a page is left. */
const MOST_KEPT_ALIVE = 15_000;

/** The server's own words for this are meant for programs. */
const NOBODY = 'Not signed in.';

/**
 * `onHeaders` gets the headers of the response, also of one that says no: which run it was, what
 * it cost. Nobody is asked to sign in for what is had `inBackground`, without the reader having
 * done anything.
 * @typedef {{signal?: AbortSignal, onHeaders?: (headers: Headers) => void}} Options
 */

/**
 * What is at that address.
 * @param {string} path
 * @param {Options & {inBackground?: boolean}} [options]
 * @returns {Promise<any>}
 */
export async function get(path, { signal, onHeaders, inBackground } = {}) {
  return read(await ask(path, { signal }, onHeaders, inBackground));
}

/**
 * Send a JSON document, and return what is answered.
 * @param {string} path
 * @param {unknown} body
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function post(path, body, { signal, onHeaders } = {}) {
  return read(await ask(path, { ...withBody(body), signal }, onHeaders));
}

/**
 * Change what is at that address.
 * @param {string} path
 * @param {unknown} body
 * @returns {Promise<any>}
 */
export async function patch(path, body) {
  return read(await ask(path, { ...withBody(body), method: 'PATCH' }, undefined));
}

/**
 * Put a JSON document at that address.
 * @param {string} path
 * @param {unknown} body
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function put(path, body, { signal } = {}) {
  const sent = withBody(body);
  const keepalive = sent.body.length < MOST_KEPT_ALIVE; // it may be sent as the page is left
  return read(await ask(path, { ...sent, method: 'PUT', keepalive, signal }, undefined));
}

/**
 * Delete what is at that address.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function remove(path, { signal, onHeaders } = {}) {
  return read(await ask(path, { method: 'DELETE', signal }, onHeaders));
}

/**
 * The events that the server sends: of a POST where there is a body. Ends when the server has
 * ended the stream, and throws `ApiError` with status 0 where the server went away in its middle.
 * @param {string} path
 * @param {Options & {body?: unknown, last?: string, inBackground?: boolean}} [options] `last` is
 *   the id of the last event that was seen.
 * @returns {AsyncGenerator<{event: string, data: string, id: string}>}
 */
export async function* stream(path, { body, signal, last, onHeaders, inBackground } = {}) {
  const headers = { Accept: 'text/event-stream', ...(last ? { 'Last-Event-ID': last } : {}) };
  const sent = body === undefined ? { headers: {} } : withBody(body);
  const request = { ...sent, signal, headers: { ...sent.headers, ...headers } };
  const response = await ask(path, request, onHeaders, inBackground);
  if (response.body === null) return;
  try {
    yield* events(response.body);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable('The connection to the server broke off.');
  }
}

/** @param {unknown} body */
function withBody(body) {
  return {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  };
}

/**
 * @param {string} path
 * @param {RequestInit} request
 * @param {((headers: Headers) => void) | undefined} onHeaders
 * @param {boolean} [inBackground]
 * @returns {Promise<Response>}
 */
async function ask(path, request, onHeaders, inBackground = false) {
  for (;;) {
    const response = await fetched(path, request);
    onHeaders?.(response.headers);
    if (response.ok) return response;
    const error = await refused(response);
    if (response.status !== 401) throw error;
    if (inBackground || !(await needKey(request.signal))) throw new ApiError(401, NOBODY, HINTS[401]);
  }
}

/**
 * @param {string} path
 * @param {RequestInit} request
 */
async function fetched(path, request) {
  try {
    return await fetch(path, { credentials: 'same-origin', ...request });
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw unreachable('The server cannot be reached.');
  }
}

/**
 * No answer came from the server, or not all of it.
 * @param {string} message
 */
export function unreachable(message) {
  return new ApiError(0, message, 'Is podium serve still running? Then try again.');
}

/** @param {Response} response */
async function read(response) {
  return response.status === 204 ? null : response.json();
}

/** @param {Response} response */
async function refused(response) {
  const document = await response.json().catch(() => null);
  const said = document?.error?.message ?? document?.message;
  const wait = response.headers.get('Retry-After');
  const hint = wait ? `Try again in ${wait} s.` : (HINTS[response.status] ?? 'Try again.');
  return new ApiError(response.status, said ?? `The server answered ${response.status}.`, hint);
}
