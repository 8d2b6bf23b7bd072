// Errors of the job: equal ones once, with their number, operator, line, and traceback.

import { ask } from "./live.js";
import { choose, state } from "./state.js";
import { clock, count, html } from "./words.js";

export class Errors {
  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    /** @type {JobError[]} */
    this.all = [];
    this.known = "";
    /** @type {Set<string>} */
    this.open = new Set();
  }

  /**
   * Ask anew when something new went wrong.
   * @param {Happening[]} bad
   */
  async fetch(bad) {
    const key = `${bad.length} ${bad.at(-1)?.at ?? ""}`;
    if (key === this.known) return;
    this.known = key;
    try {
      this.all = (await ask("api/errors")).errors;
      this.changed();
    } catch {
      this.known = ""; // the stream says so
    }
  }

  /**
   * @param {Happening[]} bad
   * @param {(name: string) => any} named
   */
  list(bad, named) {
    this.fetch(bad);
    const upto = state.at === null ? Infinity : Number(state.at) / 1000;
    const shown = this.all.filter((error) => error.first <= upto);
    if (!shown.length) return [];
    return [html("h3", {}, "Errors"), html("div", { class: "errors" }, shown.map((error) => this.row(error, named)))];
  }

  /**
   * @param {JobError} error
   * @param {(name: string) => any} named
   */
  row(error, named) {
    const key = `${error.kind} ${error.operator} ${error.line} ${error.text}`;
    const open = this.open.has(key);
    const toggle = () => {
      if (open) this.open.delete(key);
      else this.open.add(key);
      this.changed();
    };
    const when = error.count > 1 ? `${count(error.count)} times, ${clock(error.first)} to ${clock(error.last)}` : clock(error.last);
    const where = error.workers.length ? `, worker ${error.workers.join(", ")}` : "";
    return html(
      "div",
      { class: "because error", "data-keep": `error ${key}` },
      html("b", {}, `${when}${where}`),
      html("span", { class: "text" }, error.text),
      html("div", { class: "soft" }, error.operator ? ["in ", named(error.operator), error.site ? `, made at ${error.site.split("/").slice(-2).join("/")}` : ""] : "", error.line ? ` · at ${error.line.split("/").slice(-2).join("/")}` : ""),
      html(
        "div",
        { class: "pair" },
        error.trace ? html("button", { "data-keep": `trace ${key}`, "aria-expanded": open, onclick: toggle }, open ? "Hide" : error.kind === "failure" ? "Last words" : "Traceback") : "",
        error.workers.length ? html("button", { "data-keep": `output ${key}`, onclick: () => choose({ view: "output", place: `worker-${error.workers[0]}` }) }, "Output") : "",
      ),
      open ? html("pre", { class: "trace" }, error.trace) : "",
    );
  }
}
