// What a death would cost now: a line for each worker and the monitor; how long work is unsafe, and the chain that binds, in the drawing.

import { ask } from "./live.js";
import { choose, state } from "./state.js";
import { count, html, seconds } from "./words.js";

const AGAIN = 2000;
const UNSAFE = 13;
const LOW = 2;

/** @param {Danger} danger */
export function who(danger) {
  return danger.who < 0 ? "the monitor" : `worker ${danger.who}`;
}

/**
 * The cost in words; what is not known is said to be.
 * @param {Danger} danger
 */
export function cost(danger) {
  if (danger.records === null || danger.redo === null) return "unknown";
  if (danger.who < 0) return danger.restore === null ? "0 records; time unknown" : `0 records, ${seconds(danger.restore)}`;
  const time = danger.seconds === null ? `${seconds(danger.redo)} and restoring, not measured yet` : seconds(danger.seconds);
  return `${count(danger.records)} records, ${time}`;
}

export class Exposure {
  /**
   * @param {HTMLElement} root
   * @param {Job} job
   * @param {() => void} changed
   */
  constructor(root, job, changed) {
    this.root = root;
    this.job = job;
    this.changed = changed;
    /** @type {Danger[]} */
    this.dangers = [];
    this.now = 0;
    /** @type {{operator: number, worker: number, by: string}[]} */
    this.path = [];
    this.asked = 0;
  }

  get on() {
    return state.exposed !== null;
  }

  /** @param {Danger[]} dangers */
  hear(dangers) {
    this.dangers = dangers;
    const worst = dangers.reduce((/** @type {Danger | null} */ most, one) => (one.records !== null && (most === null || one.records > (most.records ?? 0)) ? one : most), null);
    const shown = dangers.filter((one) => one.who < 0 || one === worst || dangers.length <= 5);
    this.root.hidden = !dangers.length;
    const lines = dangers.map((one) => `if ${who(one)} died now: ${cost(one)}${one.back === null ? "" : `; ${one.back} processors would go back`}`);
    const button = html("button", { id: "exposed", "aria-pressed": this.on, title: `${lines.join("\n")}\nShow what is unsafe, and what holds it back`, onclick: () => choose({ exposed: this.on ? null : "" }) });
    button.append(html("span", {}, "If it died now:"), ...shown.map((one) => html("span", { class: "danger", "data-who": one.who }, html("b", {}, who(one)), ` ${cost(one)}`)), dangers.length > shown.length ? html("span", {}, `${dangers.length - shown.length} more`) : "");
    if (this.root.firstElementChild?.outerHTML !== button.outerHTML) this.root.replaceChildren(button);
  }

  /**
   * What the drawing shows of it; null while it is not asked for.
   * @param {Picture} page
   * @param {(Row | null)[]} rows
   */
  shown(page, rows) {
    if (!this.on) return null;
    const ages = rows.map((row) => (row && Number(row[UNSAFE]) >= 0 ? Math.max(0, this.now - Number(row[UNSAFE])) : 0));
    const most = Math.max(1, ...ages);
    const steps = this.path.map((step) => step.operator);
    /** @type {Set<number>} */
    const path = new Set();
    this.job.edges.forEach((edge, index) => {
      const here = steps.some((operator, at) => at > 0 && ((edge.source === operator && edge.target === steps[at - 1]) || (edge.target === operator && edge.source === steps[at - 1])));
      if (here) path.add(index);
    });
    return { heat: ages.map((age) => age / most), words: ages.map((age) => (age ? `unsafe for ${seconds(age)}` : "safe")), path, nodes: new Set(steps.map((operator) => page.of[operator])) };
  }

  /**
   * Ask what holds back the chosen operator, or that which is furthest behind.
   * @param {Picture} page
   * @param {(Row | null)[]} rows
   */
  async refresh(page, rows) {
    if (!this.on || performance.now() < this.asked + AGAIN) return;
    this.asked = performance.now();
    let operator = this.job.operators.findIndex((each) => each.name === state.sel);
    if (operator < 0) {
      const lows = rows.map((row) => (row && row[LOW] >= 0 ? row[LOW] : Infinity));
      operator = page.of.indexOf(lows.indexOf(Math.min(...lows)));
    }
    if (operator < 0) return;
    try {
      const { rollback } = await ask(`api/why/${operator}/${state.worker ?? 0}`);
      this.path = rollback.path;
      this.changed();
    } catch {
      // it is asked again
    }
  }
}
