// The connection to the monitor: what it says when it is asked, and the stream of what changes.

/**
 * Ask for JSON. Throws an Error with the server's words.
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  /** @type {any} */
  let answer = null;
  try {
    answer = await response.json();
  } catch {
    // an answer without words
  }
  if (!response.ok) throw new Error(answer?.error ?? `the monitor answered ${response.status}`);
  return answer;
}

const SILENCE = 4000;
const AGAIN = 700;

/**
 * The stream. `address()` gives where it is now; `hear(message)` is called for each message, `lost(yes)` when the monitor
 * falls silent or is back. A monitor that is replaced listens at the same address, so trying again is all there is to do.
 */
export class Stream {
  /**
   * @param {() => string} address
   * @param {(message: Message) => void} hear
   * @param {(lost: boolean) => void} lost
   */
  constructor(address, hear, lost) {
    this.address = address;
    this.hear = hear;
    this.lost = lost;
    /** @type {EventSource | null} */
    this.source = null;
    this.isLost = false;
    /** Who does not answer; null while all do. @type {"monitor" | "page" | null} */
    this.gone = null;
    /** The page answers, and its monitor does not. */
    this.silent = false;
    this.heard = performance.now();
    /** @type {number | undefined} */
    this.timer = undefined;
    setInterval(() => this.watch(), 1000);
  }

  /** Connect, or connect anew because something else is wanted. */
  connect() {
    clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource(this.address());
    this.source = source;
    this.heard = performance.now();
    this.silent = false;
    source.onmessage = (event) => {
      if (source !== this.source) return;
      this.heard = performance.now();
      const message = JSON.parse(event.data);
      this.silent = message.lost ?? this.silent;
      this.set(this.silent);
      this.hear(message);
    };
    source.onerror = () => {
      if (source !== this.source) return;
      source.close();
      this.set(true);
      this.timer = setTimeout(() => this.connect(), AGAIN);
    };
  }

  /** Leave the connection to others: nobody looks. */
  rest() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  watch() {
    if (performance.now() - this.heard > SILENCE && this.source) {
      this.set(true);
      this.connect();
    }
  }

  set(lost) {
    const gone = lost ? (this.silent ? "monitor" : "page") : null;
    if (gone === this.gone) return;
    this.gone = gone;
    this.isLost = lost;
    this.lost(lost);
  }
}
