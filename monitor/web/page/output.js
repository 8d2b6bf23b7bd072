// What processes wrote: the last lines of each, followed while the job runs, and kept for those that are gone.

import { ask } from "./live.js";
import { choose, state } from "./state.js";
import { clock, count, html, morph, wordsOf } from "./words.js";

const EVERY_MS = 1000;
const MOST = 3000;
const NEAR = 40;
/** @type {{[stream: string]: string}} */
const STREAMS = { o: "standard output", e: "standard error", s: "its supervisor" };

export class Output {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** @type {string[]} */
    this.places = [];
    /** @type {Line[]} */
    this.lines = [];
    this.of = "";
    this.problem = "";
    this.find = "";
    this.asked = -Infinity;
    this.list = html("ol", { class: "output", role: "log", "aria-live": "off", "aria-label": "Lines, the newest below", tabindex: 0 });
    this.bar = html("div", { class: "bar" });
    this.line = html("p", { class: "line", role: "status" });
    root.append(this.bar, this.line, this.list);
  }

  get on() {
    return state.view === "output";
  }

  /** The place that is shown: the chosen one, else the first. */
  get place() {
    return state.place !== null && (this.places.includes(state.place) || !this.places.length) ? state.place : (this.places[0] ?? null);
  }

  /** Called each second, and when something was chosen. */
  async turn() {
    this.root.hidden = !this.on;
    if (!this.on || document.hidden || (performance.now() - this.asked < EVERY_MS && this.place === this.of)) return;
    this.asked = performance.now();
    try {
      this.places = (await ask("api/logs")).places;
      const place = this.place;
      if (place !== this.of) {
        this.of = place ?? "";
        this.lines = [];
        this.list.replaceChildren();
      }
      this.problem = place === null ? "Nothing was written yet, or nothing is kept of it." : "";
      if (place !== null) {
        const { lines } = await ask(`api/logs/${encodeURIComponent(place)}?since=${this.lines.at(-1)?.n ?? 0}`);
        if (place === this.of) this.add(lines);
      }
    } catch (wrong) {
      this.problem = `There are no lines: ${wordsOf(wrong)}`;
    }
    this.head();
  }

  /** @param {Line[]} lines */
  add(lines) {
    const below = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < NEAR;
    const from = this.lines.at(-1)?.n ?? 0;
    const fresh = lines.filter((line) => line.n > from);
    this.lines.push(...fresh);
    this.list.append(...fresh.map((line) => this.row(line)));
    const many = this.lines.length - MOST;
    if (many > 0) {
      this.lines.splice(0, many);
      for (let left = many; left; left -= 1) this.list.firstChild?.remove();
    }
    if (fresh.length && below) this.list.scrollTop = this.list.scrollHeight;
  }

  /** @param {Line} line */
  row(line) {
    return html("li", { class: `of-${line.stream}`, hidden: !this.shows(line), title: `${STREAMS[line.stream] ?? ""} of process ${line.pid}` }, html("time", {}, clock(line.at)), html("span", { class: "stream" }, line.stream === "e" ? "err" : line.stream === "o" ? "out" : "—"), html("span", { class: "text" }, line.text));
  }

  /** @param {Line} line */
  shows(line) {
    return !this.find || line.text.toLowerCase().includes(this.find);
  }

  seek(text) {
    this.find = text.trim().toLowerCase();
    this.lines.forEach((line, at) => {
      /** @type {any} */ (this.list.children[at]).hidden = !this.shows(line);
    });
    this.head();
  }

  head() {
    morph(this.bar, [
      html("label", { "data-keep": "of" }, "Of ", html("select", { "data-of": "output", "aria-label": "Of which process", onchange: (event) => choose({ place: event.target.value }) }, this.places.map((place) => html("option", { value: place, selected: place === this.of }, place.replace("-", " "))))),
      html("input", { type: "search", "data-keep": "find", placeholder: "Show lines with…", "aria-label": "Show lines with a text", oninput: (event) => this.seek(event.target.value) }),
      html("button", { "data-keep": "end", onclick: () => (this.list.scrollTop = this.list.scrollHeight) }, "Newest"),
      html("button", { "data-keep": "leave", onclick: () => choose({ view: null }) }, "Close"),
    ]);
    const shown = this.lines.filter((line) => this.shows(line)).length;
    this.line.textContent = this.problem || `${count(shown)} of the last ${count(this.lines.length)} lines that are kept of this place, of all processes that it had${state.at === null ? "" : "; up to now, not to the moment that is shown"}`;
  }
}
