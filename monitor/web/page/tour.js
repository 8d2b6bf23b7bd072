// A tour of the page in seven steps, offered to who is here for the first time; and the help, from which it can be started again.

import { wordList } from "./glossary.js";
import { html } from "./words.js";

const SEEN = "falkirk.tour";

/**
 * What each step points at (the first that is shown), its title, and its text.
 * @type {[string[], string, string][]}
 */
const STEPS = [
  [["#phase"], "How the job is", "The verdict comes first: running, stuck and in which operator, rolling back, failed and why. Beside it: how much is read, complete, and safe."],
  [["#graph", "#spacetime"], "The dataflow", "Each box is an operator. ▸ is how far it is, ↺ where it would go back to after any failure. A click, or arrow keys, choose one."],
  [["#panel"], "Why it is where it is", "Of the chosen operator and a worker the panel says what holds it back, and leads to the culprit. With nothing chosen it shows workers, rollbacks, and what happened."],
  [["#exposure", "#ask"], "If it died now", "What the death of a worker would cost at this moment. With What if… you mark workers or operators as failed; the solver answers, and nothing happens to the job."],
  [["#moments"], "The past", "Each second is recorded. Drag, or write a time (15:50) or an epoch (epoch 12): all of the page is then of that moment. Live returns."],
  [["#times"], "Space-time", "Epochs across, operators down: what is complete, what a restart would keep, what is safe for good."],
  [["#help"], "Words and keys", "Dotted words explain themselves when pressed. Help has all of them, the keys, and this tour."],
];

const KEYS = [
  ["← ↑ → ↓", "from operator to operator"],
  ["Enter", "open what is chosen"],
  ["/", "find an operator"],
  ["f, +, −", "show all, zoom"],
  ["s", "space-time"],
  ["w", "what if"],
  ["d", "light or dark"],
  ["?", "this help"],
  ["Escape", "close"],
];

/** Whether the tour was taken or refused before; true where nothing can be remembered. */
function seen() {
  try {
    return localStorage.getItem(SEEN) !== null;
  } catch {
    return true;
  }
}

function remember() {
  try {
    localStorage.setItem(SEEN, "yes");
  } catch {
    // it is offered again
  }
}

export class Tour {
  /** @param {HTMLElement} button which opens the help */
  constructor(button) {
    this.button = button;
    this.at = -1;
    this.ring = html("div", { class: "ring", hidden: true });
    this.card = html("div", { id: "tour", role: "dialog", "aria-labelledby": "tour-title", "aria-describedby": "tour-text", tabindex: -1, hidden: true });
    this.dialog = html("dialog", { id: "helping", "aria-label": "Help" });
    document.body.append(this.ring, this.card, this.dialog);
    button.addEventListener("click", () => this.help());
    addEventListener("resize", () => this.place());
    this.card.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) this.go(this.at + by);
      else if (event.key === "Escape") this.close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** Whether to offer it: to who was never here, and has not been sent to a place of the page. */
  get offered() {
    return !seen() && this.at < 0;
  }

  /** @param {() => void} changed */
  offer(changed) {
    if (!this.offered) return [];
    const refuse = () => {
      remember();
      changed();
    };
    return [html("p", { class: "offer", "data-keep": "offer" }, "New here? ", html("button", { "data-keep": "take tour", onclick: () => { this.start(); changed(); } }, "One-minute tour"), " ", html("button", { "data-keep": "no tour", onclick: refuse }, "No, thanks"))];
  }

  start() {
    this.dialog.close();
    remember();
    this.back = /** @type {HTMLElement | null} */ (document.activeElement);
    this.card.hidden = this.ring.hidden = false;
    this.go(0);
  }

  close() {
    this.at = -1;
    this.card.hidden = this.ring.hidden = true;
    (this.back?.isConnected && this.back !== document.body ? this.back : this.button).focus();
  }

  /** @param {number} at */
  go(at) {
    if (at >= STEPS.length) {
      this.close();
      return;
    }
    this.at = Math.max(0, at);
    const [, title, text] = STEPS[this.at];
    const last = this.at === STEPS.length - 1;
    this.card.replaceChildren(
      html("div", { class: "soft" }, `Step ${this.at + 1} of ${STEPS.length}`),
      html("strong", { id: "tour-title" }, title),
      html("div", { id: "tour-text", "aria-live": "polite" }, text),
      html("div", { class: "pair" }, html("button", { onclick: () => this.go(this.at - 1), disabled: this.at === 0 }, "Back"), html("button", { class: "next", onclick: () => this.go(this.at + 1) }, last ? "Done" : "Next"), html("button", { onclick: () => this.close() }, "Close")),
    );
    this.target()?.scrollIntoView({ block: "nearest" });
    this.place();
    /** @type {HTMLElement | null} */ (this.card.querySelector(".next"))?.focus();
  }

  target() {
    const shown = STEPS[Math.max(0, this.at)][0].map((name) => document.querySelector(name)).filter((one) => one?.getClientRects().length);
    return shown[0] ?? null;
  }

  place() {
    if (this.at < 0) return;
    const box = this.target()?.getBoundingClientRect() ?? new DOMRect(8, 8, 0, 0);
    Object.assign(this.ring.style, { left: `${box.left - 3}px`, top: `${box.top - 3}px`, width: `${box.width + 6}px`, height: `${box.height + 6}px` });
    const { width, height } = this.card.getBoundingClientRect();
    const below = box.bottom + 12 + height < innerHeight;
    const above = box.top - 12 - height > 0;
    const top = below ? box.bottom + 12 : above ? box.top - 12 - height : Math.max(8, box.top + (box.height - height) / 2);
    const left = below || above || box.width > innerWidth / 2 ? box.left + 12 : box.left - width - 16;
    Object.assign(this.card.style, { left: `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`, top: `${Math.min(top, innerHeight - height - 8)}px` });
  }

  help() {
    this.dialog.replaceChildren(
      html("div", { class: "head" }, html("strong", {}, "Help"), html("button", { onclick: () => this.dialog.close() }, "Close")),
      html("div", {}, html("button", { id: "start-tour", onclick: () => this.start() }, "One-minute tour")),
      html("h2", {}, html("span", {}, "Keys")),
      html("dl", { class: "keys" }, KEYS.flatMap(([key, what]) => [html("dt", {}, html("kbd", {}, key)), html("dd", {}, what)])),
      html("h2", {}, html("span", {}, "Words")),
      wordList(),
    );
    this.dialog.showModal();
  }
}
