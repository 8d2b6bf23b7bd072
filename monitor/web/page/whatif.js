// What if these failed? The reader marks workers and operators; the monitor's own solver answers.

import { ask } from "./live.js";
import { at_moment, choose, state } from "./state.js";
import { bound, bytes, count, html, less, seconds, some, wordsOf } from "./words.js";

export class WhatIf {
  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    /** @type {Supposed | null} */
    this.answer = null;
    /** @type {string | null} */
    this.error = null;
    this.number = 0;
    this.waiting = false;
  }

  get on() {
    return state.ask !== null;
  }

  get failed() {
    return (state.ask ?? "").split("|").filter(Boolean).map((name) => name.replace(/%7C|%25/g, decodeURIComponent));
  }

  /** Mark or unmark "worker:1", or "operator:" with the name of one. */
  toggle(name) {
    const now = new Set(this.failed);
    if (!now.delete(name)) now.add(name);
    choose({ ask: [...now].map((each) => each.replace(/[%|]/g, encodeURIComponent)).join("|") });
  }

  /** Ask again: what is marked has changed, or time has passed. */
  async refresh() {
    const number = (this.number += 1);
    if (!this.on || !this.failed.length) {
      this.answer = this.error = null;
      this.waiting = false;
      this.changed();
      return;
    }
    this.waiting = true;
    this.changed();
    let answer = null;
    /** @type {string | null} */
    let error = null;
    try {
      answer = await ask(at_moment("api/whatif"), { failed: this.failed });
    } catch (problem) {
      error = wordsOf(problem);
    }
    if (number !== this.number) return;
    this.answer = answer;
    this.error = error;
    this.waiting = false;
    this.changed();
  }

  /**
   * A verdict for each node of the drawing; see `Graph.verdicts`.
   * @param {Picture} page
   */
  verdicts(page) {
    if (!this.on) return null;
    const names = new Set(this.failed);
    const list = page.nodes.map((node) => ({ text: "", failed: names.has(`operator:${node.key}`) && node.operator !== null }));
    if (!this.answer) return list;
    const seen = page.nodes.map(() => ({ keep: 0, all: 0, least: /** @type {Bound | null} */ (null) }));
    for (const one of this.answer.processors) {
      const about = seen[page.of[one.operator]];
      about.all += 1;
      if (one.keeps) about.keep += 1;
      else if (about.least === null || less(one.to, about.least)) about.least = one.to;
    }
    seen.forEach((about, index) => {
      const back = about.keep < about.all;
      const of = back && about.keep ? ` (${about.all - about.keep} of ${about.all})` : "";
      Object.assign(list[index], { back, keeps: !back, text: back ? `↺ ${bound(about.least)}${of}` : "keeps all" });
    });
    return list;
  }

  /**
   * The panel.
   * @param {Job} job
   */
  panel(job) {
    const failed = new Set(this.failed);
    const chips = Array.from({ length: job.workers }, (_, worker) =>
      html("button", { class: `chip ${failed.has(`worker:${worker}`) ? "failed" : ""}`, "aria-pressed": failed.has(`worker:${worker}`), onclick: () => this.toggle(`worker:${worker}`) }, `worker ${worker}`),
    );
    const operators = this.failed.filter((name) => !name.startsWith("worker:"));
    const parts = [
      html("div", { class: "head" }, html("h2", {}, "What if…"), html("span", { class: "pair" }, failed.size ? html("button", { "data-keep": "again", onclick: () => this.refresh() }, "Ask again") : "", html("button", { onclick: () => choose({ ask: null }) }, "Close"))),
      html("p", { class: "soft" }, "Mark workers here, or operators in the drawing, as failed. Nothing happens to the job: the page asks the solver that would decide."),
      html("div", { class: "chips" }, chips),
      operators.length ? html("div", { class: "chips" }, operators.map((name) => html("button", { class: "chip failed", onclick: () => this.toggle(name) }, name.replace(/^operator:/, "")))) : "",
    ];
    if (this.error) parts.push(html("div", { class: "because" }, html("b", {}, "No answer"), this.error));
    else if (this.waiting && !this.answer) parts.push(html("p", { class: "soft" }, "Asking…"));
    if (this.answer) parts.push(...this.result(job, this.answer));
    else if (!failed.size) parts.push(html("p", {}, "Nothing is marked yet."));
    return parts;
  }

  /**
   * @param {Job} job
   * @param {Supposed} answer
   */
  result(job, answer) {
    const { processors, resent, redone } = answer;
    const back = processors.filter((one) => !one.keeps);
    const messages = resent.reduce((sum, one) => sum + one.messages, 0);
    const size = resent.reduce((sum, one) => sum + one.bytes, 0);
    const parts = [
      answer.note ? html("div", { class: "because" }, html("b", {}, "A restart"), answer.note) : "",
      html(
        "div",
        { class: "big" },
        html("div", {}, html("b", {}, `${count(back.length)} of ${count(processors.length)}`), html("span", {}, "processors roll back")),
        html("div", {}, html("b", {}, count(processors.length - back.length)), html("span", {}, "keep all they have")),
        html("div", {}, html("b", {}, redone ? count(redone.records) : "–"), html("span", {}, "records done again, at most")),
        html("div", {}, html("b", {}, redone ? seconds(redone.seconds) : "–"), html("span", {}, "of work done again, about")),
      ),
    ];
    parts.push(...(answer.mates ?? []).map((mate) => html("p", { class: "mate" }, `${mate.text[0].toUpperCase()}${mate.text.slice(1)}.`)));
    parts.push(...answer.workers.map((one) => html("p", { class: "fate" }, fate(one))));
    parts.push(html("h3", {}, "Sent again from logs"));
    if (!messages) parts.push(html("p", { class: "soft" }, "No logged messages."));
    else {
      const byEdge = new Map();
      for (const one of resent) {
        const sum = byEdge.get(one.edge) ?? { messages: 0, bytes: 0 };
        sum.messages += one.messages;
        sum.bytes += one.bytes;
        byEdge.set(one.edge, sum);
      }
      const rows = [...byEdge].map(([edge, sum]) => {
        const { source, target } = job.edges[edge];
        return html("tr", {}, html("td", {}, `${job.operators[source].name} → ${job.operators[target].name}`), html("td", {}, some(sum.messages, "message")), html("td", {}, bytes(sum.bytes)));
      });
      parts.push(html("p", {}, `${some(messages, "message")}, ${bytes(size)}.`), html("table", {}, rows));
    }
    parts.push(html("h3", {}, "Where each goes back to"));
    const byOperator = new Map();
    for (const one of back) {
      const list = byOperator.get(one.operator) ?? [];
      list.push(one);
      byOperator.set(one.operator, list);
    }
    const rows = [...byOperator].map(([operator, list]) => {
      const name = job.operators[operator].name;
      return [...byBound(list)].map(([to, workers], at) =>
        html("tr", { class: "link", onclick: () => choose({ sel: name, ask: state.ask }) }, html("td", {}, at ? "" : html("button", { class: "jump", "data-keep": `to ${operator}` }, name)), html("td", {}, workers.length === job.workers ? "every worker" : `worker ${workers.join(", ")}`), html("td", {}, `before ${to}`)),
      );
    }).flat();
    parts.push(rows.length ? html("table", {}, rows) : html("p", {}, "Nobody loses anything."));
    return parts;
  }
}

/**
 * What becomes of a worker: of the same answer as the table, whatever is marked by now.
 * @param {Supposed["workers"][0]} one
 */
function fate({ worker, to, failed }) {
  if (to === null) return `Worker ${worker} keeps everything.`;
  return failed ? `Worker ${worker} comes back before ${bound(to)}.` : `Worker ${worker} keeps everything before ${bound(to)}.`;
}

/**
 * The workers of an operator, by the bound that each goes back to.
 * @param {Supposed["processors"]} list
 */
function byBound(list) {
  const found = new Map();
  for (const one of list) found.set(bound(one.to), [...(found.get(bound(one.to)) ?? []), one.worker]);
  return found;
}
