// Processes of the workers, settings of the job, and orders to it: stop, checkpoint now, restart a worker.

import { stacksTable } from "./flames.js";
import { ask } from "./live.js";
import { choose } from "./state.js";
import { bytes, clock, html, seconds, some, wordsOf } from "./words.js";

const EVERY_MS = 1000;
/** @type {{[what: string]: (worker: number) => string}} */
const QUESTIONS = {
  stop: () => "Stop the job? It goes on from its store when it is run again.",
  checkpoint: () => "Make a checkpoint of every group now?",
  restart: (worker) => `End the process of worker ${worker}, for another one to take its place?`,
};

export class Processes {
  /**
   * @param {Job} job
   * @param {() => void} changed
   */
  constructor(job, changed) {
    this.job = job;
    this.changed = changed;
    /** @type {{processes: any[], mates: Mate[], settings: {[name: string]: string}} | null} */
    this.answer = null;
    this.asked = 0;
    /** @type {{what: string, worker: number} | null} */
    this.order = null;
    this.said = "";
    /** Stacks that were asked for last. @type {StackOf[]} */
    this.stacks = [];
  }

  /** Ask anew, at most once a second: called as long as the overview is shown. */
  async fetch() {
    if (performance.now() - this.asked < EVERY_MS) return;
    this.asked = performance.now();
    try {
      this.answer = await ask("api/processes");
    } catch {
      // the stream says so
    }
  }

  list() {
    this.fetch();
    const { processes, mates, settings } = this.answer ?? { processes: [], mates: [], settings: {} };
    const rows = processes.map((each) => html("tr", { "data-worker": each.worker }, html("td", {}, `worker ${each.worker}`), html("td", {}, `${each.pid}`), html("td", {}, bytes(each.memory)), html("td", {}, seconds(each.cpu)), html("td", { title: `generation ${each.generation}` }, clock(each.began)), html("td", {}, each.host), this.can("stacks") ? html("td", {}, html("button", { "data-keep": `stacks ${each.worker}`, "data-act": "stacks", onclick: () => this.look(`worker-${each.worker}`) }, "Stacks")) : "", this.can("restart") ? html("td", {}, this.button("restart", "Restart", each.worker)) : ""));
    const heads = ["", "process", "memory", "CPU", "since", "host", ...(this.can("stacks") ? [""] : []), ...(this.can("restart") ? [""] : [])];
    const facts = Object.entries(settings).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]);
    return [
      html("h3", {}, "Processes"),
      rows.length ? html("table", { class: "tight processes" }, html("tr", {}, heads.map((text) => html("th", {}, text))), rows) : "",
      ...matesTable(mates),
      html("div", { class: "chips" }, html("button", { "data-keep": "flames", "data-view": "flames", onclick: () => choose({ view: "flames" }) }, "Flame graph"), html("button", { "data-keep": "output", "data-view": "output", onclick: () => choose({ view: "output" }) }, "Output")),
      this.stacks.length ? html("div", { id: "stacks", "data-keep": "stacks" }, stacksTable(this.stacks)) : "",
      ...this.orders(),
      facts.length ? html("h3", {}, "Settings") : "",
      facts.length ? html("dl", { class: "facts settings" }, facts) : "",
    ];
  }

  can(what) {
    return this.job.acts.includes(what);
  }

  button(what, text, worker = -1) {
    return html("button", { "data-keep": `act ${what} ${worker}`, "data-act": what, onclick: () => this.confirm({ what, worker }) }, text);
  }

  /**
   * Ask for the stacks of a process.
   * @param {string} place
   */
  async look(place) {
    this.order = null;
    this.said = "";
    try {
      this.stacks = (await ask(`api/stacks/${place}`, {})).stacks;
    } catch (problem) {
      this.stacks = [];
      this.said = `There are no stacks: ${wordsOf(problem)}`;
    }
    this.changed();
    document.getElementById("stacks")?.scrollIntoView({ block: "nearest" });
  }

  orders() {
    if (!this.job.acts.length) return [];
    const buttons = html("div", { class: "chips" }, this.can("checkpoint") ? this.button("checkpoint", "Checkpoint now") : "", this.can("stop") ? this.button("stop", "Stop…") : "");
    const order = this.order;
    const asking = order ? html("div", { class: "because", id: "confirm", role: "alertdialog", "aria-label": "Confirm" }, html("b", {}, QUESTIONS[order.what](order.worker)), html("div", { class: "pair" }, html("button", { "data-keep": "yes", onclick: () => this.act() }, "Yes"), html("button", { "data-keep": "no", onclick: () => this.confirm(null) }, "No"))) : "";
    return [html("h3", {}, "Orders"), buttons, asking, this.said ? html("p", { id: "answer", role: "status" }, this.said) : ""];
  }

  /** @param {{what: string, worker: number} | null} order */
  confirm(order) {
    this.order = order;
    this.said = "";
    this.changed();
    document.getElementById("confirm")?.scrollIntoView({ block: "nearest" });
  }

  async act() {
    const order = this.order;
    this.order = null;
    if (!order) return;
    try {
      this.said = (await ask("api/act", order)).text;
    } catch (problem) {
      this.said = `This was not done: ${wordsOf(problem)}`;
    }
    this.changed();
  }
}

/**
 * Mates of the workers, a row each; nothing in a job without.
 * @param {Mate[]} mates
 */
function matesTable(mates) {
  if (!mates.length) return [];
  const heads = ["mate of", "process", "memory", "state", "up to", "behind", "to read", "begun"];
  const rows = mates.map((one) => {
    const upto = one.epoch === null ? "–" : one.epoch < 0 ? "the end" : `epoch ${one.epoch}`;
    const known = [`${one.pid}`, bytes(one.memory), one.state, upto, some(one.behind, "checkpoint"), bytes(one.left)];
    const cells = [`worker ${one.worker}`, ...(one.pid ? known : ["–", "–", one.state, "–", "–", "–"]), one.begun === 1 ? "once" : `${one.begun} times`];
    return html("tr", { "data-mate": one.worker }, cells.map((text) => html("td", {}, text)));
  });
  return [html("table", { class: "tight mates" }, html("tr", {}, heads.map((text) => html("th", {}, text))), rows)];
}
