// Waiting for a while, or until the page is left.

/**
 * Ends after so many seconds, when what `begin` was given is called, or when the signal says so.
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @param {(goOn: () => void) => void} [begin]
 * @returns {Promise<void>}
 */
export function pause(seconds, signal, begin) {
  return new Promise((resolve) => {
    const goOn = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', goOn);
      resolve();
    };
    const timer = setTimeout(goOn, seconds * 1000);
    signal.addEventListener('abort', goOn);
    begin?.(goOn);
  });
}
