// Pages that stay true while they are looked at: what they show is asked for again and again, in
// place, and where the server goes away they say so and go on trying.

import { ApiError } from '../lib/api.js';
import { h, replace } from '../lib/dom.js';
import { when } from '../lib/format.js';
import { signIn } from '../lib/session.js';

/**
 * @typedef {(inBackground: boolean) => Promise<void>} Task `inBackground`: without the reader having
 *   done anything.
 */

/**
 * Do something now and every so many seconds, until the page is left. What fails the first time is
 * thrown.
 * @param {Task} task
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @param {(error: unknown) => void} troubled
 */
export async function loadAndPoll(task, seconds, signal, troubled) {
  await task(false);
  poll(task, seconds, signal, troubled);
}

/**
 * Run a task every `seconds`, one run after another, until the page is left; not while the tab is
 * hidden. `troubled` gets the error of a failed run, and null after a successful one.
 * @param {Task} task
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @param {(error: unknown) => void} troubled
 */
export function poll(task, seconds, signal, troubled) {
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        await task(true);
        troubled(null);
      } catch (error) {
        if (signal.aborted) return;
        troubled(error);
      }
    }
    setTimeout(again, seconds * 1000);
  };
  setTimeout(again, seconds * 1000);
}

/**
 * An element that shows the state of the connection; `tell` takes an error, or null if all is well.
 * @returns {{element: HTMLElement, tell: (error: unknown) => void}}
 */
export function connection() {
  const element = h('div', { role: 'status', hidden: true });
  let lastGood = new Date();
  let lastMessage = '';
  return {
    element,
    tell(error) {
      element.hidden = error === null;
      if (error === null) {
        lastGood = new Date();
        lastMessage = '';
        return;
      }
      const words = error instanceof Error ? error.message : String(error);
      if (words === lastMessage) return; // announce it once, and keep the focus on the button
      lastMessage = words;
      element.className = 'notice';
      const then = when(lastGood.toISOString());
      const onclick = () => signIn();
      const way = h('button', { type: 'button', class: 'small', onclick }, 'Sign in');
      const isSignedOut = error instanceof ApiError && error.status === 401;
      const sentence = [`${words} Last updated `, then, '; trying again. '];
      replace(element, sentence, isSignedOut && way);
    },
  };
}

/**
 * Put other children in place. The reader's focus stays on the element of the same id, and what was
 * unfolded stays so.
 * @param {Element} element
 * @param {...import('../lib/dom.js').Child} children
 */
export function refresh(element, ...children) {
  const active = document.activeElement;
  const id = active && element.contains(active) ? active.id : '';
  const unfolded = [...element.querySelectorAll('details[open][id]')].map((each) => each.id);
  replace(element, ...children);
  for (const each of unfolded) document.getElementById(each)?.setAttribute('open', '');
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
}
