// Server-sent events out of a stream of bytes, as the standard has them.

/**
 * @param {ReadableStream<Uint8Array>} bytes
 * @returns {AsyncGenerator<{event: string, data: string, id: string}>}
 */
export async function* events(bytes) {
  /** @type {ReadableWritablePair<string, any>} */
  const words = new TextDecoderStream();
  const reader = bytes.pipeThrough(words).getReader();
  let rest = '';
  let id = '';
  /** @type {{event: string, data: string[]}} */
  let upcoming = { event: '', data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line === '') {
          if (upcoming.data.length > 0) {
            yield { event: upcoming.event || 'message', data: upcoming.data.join('\n'), id };
          }
          upcoming = { event: '', data: [] };
          continue;
        }
        const [, name, said] = /^([^:]*):? ?([^]*)$/.exec(line) ?? [];
        if (name === 'event') upcoming.event = said;
        else if (name === 'data') upcoming.data.push(said);
        else if (name === 'id') id = said;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
