// Few at a time: a browser opens six connections to a server, and what it cannot connect for it
// keeps waiting without a word.

export class Turns {
  #free;
  /** @type {(() => void)[]} */
  #waiting = [];

  /** @param {number} most how many may have their turn at once */
  constructor(most) {
    this.#free = most;
  }

  /** True if a new question has to wait. */
  get areTaken() {
    return this.#free === 0;
  }

  /**
   * Wait for one's turn, in order. Rejects with the signal's reason.
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  take(signal) {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const mine = () => {
        signal.removeEventListener('abort', giveUp);
        resolve();
      };
      const giveUp = () => {
        this.#waiting = this.#waiting.filter((each) => each !== mine);
        reject(signal.reason);
      };
      signal.addEventListener('abort', giveUp);
      this.#waiting.push(mine);
    });
  }

  /** One's turn is over, and the next one's begins. */
  give() {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free += 1;
  }
}
