// What if a region had another policy? The layout is made by whoever has the program, and the rest by measured rates.

import { ask } from "./live.js";
import { at_moment, choose, state } from "./state.js";
import { bytes, count, html, seconds, wordsOf } from "./words.js";

/** Policies, and which options each has. */
const POLICIES = {
  Ephemeral: { every: false, logs: false },
  Batch: { every: false, logs: true },
  Lazy: { every: true, logs: true },
  LogHistory: { every: true, logs: true },
  Eager: { every: false, logs: false },
  Snapshot: { every: true, logs: false },
  AtLeastOnce: { every: false, logs: false },
};
const WRITTEN = new RegExp(`^(.*?)=((${Object.keys(POLICIES).join("|")})(?:\\(.*\\))?)$`, "s");
const OUTSIDE = "all that is in no region";

export class OtherPolicies {
  /**
   * @param {Job} job
   * @param {() => void} changed
   */
  constructor(job, changed) {
    this.job = job;
    this.changed = changed;
    /** @type {OtherPolicy | null} */
    this.answer = null;
    /** @type {string | null} */
    this.error = null;
    this.waiting = false;
    this.number = this.form = 0;
    this.draft = { region: "", policy: "Lazy", every: "1s", logs: false };
    this.take();
  }

  get on() {
    return state.policy !== null;
  }

  /** The form says what the address says. */
  take() {
    this.form += 1; // fields that the reader has touched would stay as they are
    const found = WRITTEN.exec(state.policy ?? "");
    if (!found) {
      if (this.on) this.draft.region = (state.policy ?? "").replace(/=$/, "");
      return;
    }
    const every = /every=(?:"([^"]*)"|([0-9.]+))/.exec(found[2]);
    this.draft = { region: found[1], policy: found[3], every: every ? (every[1] ?? every[2]) : "1s", logs: /log_outputs=True/.test(found[2]) };
  }

  /** The policy of the form, as a program has it. */
  get text() {
    const { policy, every, logs } = this.draft;
    const given = [];
    if (POLICIES[policy].every) given.push(/^[0-9.]+$/.test(every) ? `every=${every}` : `every=${JSON.stringify(every)}`);
    if (POLICIES[policy].logs && logs) given.push("log_outputs=True");
    return `${policy}(${given.join(", ")})`;
  }

  /** Ask again: the address has changed, or the moment. */
  async refresh() {
    const number = (this.number += 1);
    const found = WRITTEN.exec(state.policy ?? "");
    this.answer = this.error = null;
    this.waiting = found !== null;
    this.changed();
    if (!found) return;
    let answer = null;
    /** @type {string | null} */
    let error = null;
    try {
      answer = await ask(at_moment("api/policies"), { policies: { [found[1]]: found[2] } });
    } catch (problem) {
      error = wordsOf(problem);
    }
    if (number !== this.number) return;
    Object.assign(this, { answer, error, waiting: false });
    this.changed();
  }

  /** Ask what the form says. */
  submit() {
    const asked = `${this.draft.region}=${this.text}`;
    if (asked === state.policy) this.refresh();
    else choose({ policy: asked });
  }

  /** A button that opens the form for a region; null for what is in none. */
  button(region) {
    return html("button", { "data-keep": `policy of ${region ?? ""}`, onclick: () => choose({ policy: `${region ?? ""}=`, ask: null, card: null }) }, "Another policy…");
  }

  /** The panel. */
  panel() {
    const { draft } = this;
    const regions = ["", ...this.job.regions.map((each) => each.name)];
    const has = POLICIES[draft.policy];
    const set = (/** @type {object} */ change) => {
      Object.assign(this.draft, change);
      this.changed();
    };
    const option = (value, text, chosen) => html("option", { value, selected: value === chosen }, text);
    return [
      html("div", { class: "head" }, html("h2", {}, "Another policy"), html("button", { "data-keep": "close", onclick: () => choose({ policy: null }) }, "Close")),
      html("p", { class: "soft" }, "What it would change, by rates of the last half minute. Nothing happens to the job."),
      html(
        "form",
        { id: "policy", class: "fields", "data-keep": `form ${this.form}`, onsubmit: (event) => { event.preventDefault(); this.submit(); } },
        html("label", { "data-keep": "region" }, "region ", html("select", { id: "policy-region", onchange: (event) => set({ region: event.target.value }) }, regions.map((name) => option(name, name || OUTSIDE, draft.region)))),
        html("label", { "data-keep": "policy" }, "policy ", html("select", { id: "policy-name", onchange: (event) => set({ policy: event.target.value }) }, Object.keys(POLICIES).map((name) => option(name, name, draft.policy)))),
        has.every ? html("label", { "data-keep": "every" }, "every ", html("input", { id: "policy-every", value: draft.every, size: 8, title: "A duration such as 500ms or 2s, a number with a point in seconds, or a number of epochs", oninput: (event) => { this.draft.every = event.target.value; } })) : "",
        has.logs ? html("label", { "data-keep": "logs" }, html("input", { id: "policy-logs", type: "checkbox", checked: draft.logs, onchange: (event) => set({ logs: event.target.checked }) }), " log outputs") : "",
        html("button", { "data-keep": "ask policy" }, "Ask"),
      ),
      ...this.found(),
    ];
  }

  found() {
    if (this.error) return [html("div", { class: "because" }, html("b", {}, "No answer"), this.error)];
    if (this.waiting) return [html("p", { class: "soft" }, "Asking…")];
    return this.answer ? this.result(this.answer) : [];
  }

  /** @param {OtherPolicy} answer */
  result(answer) {
    const { before, after } = answer;
    const saved = (plan) => plan.groups.filter((group) => group.saved);
    const cells = (...texts) => html("tr", {}, texts.map((text) => html("td", {}, text)));
    const rows = [cells("groups that are cut", "", String(saved(before).length), String(saved(after).length)), cells("edges that are logged", "", String(before.logs.length), String(after.logs.length))];
    for (const one of answer.workers ?? []) {
      rows.push(cells(`if worker ${one.worker} died`, one.now ? cost(one.now) : "unknown", cost(one.before.typical), cost(one.after.typical)));
      rows.push(cells("at worst", "", cost(one.before.worst), cost(one.after.worst)));
    }
    if (answer.bytes) rows.push(cells("to the store", `${bytes(answer.bytes.measured)}/s`, `${bytes(answer.bytes.before)}/s`, `${bytes(answer.bytes.after)}/s`));
    if (answer.cpu) rows.push(cells("processor time a second", seconds(answer.cpu.measured), `${seconds(answer.cpu.before)} to persist`, seconds(answer.cpu.after)));
    const [asked] = answer.policies;
    return [
      html("h3", {}, `If ${asked.region || OUTSIDE} were ${asked.policy}`),
      html("table", { class: "tight", id: "policy-answer" }, html("tr", {}, ["", "measured", "now, by the model", "then"].map((text) => html("th", {}, text))), rows),
      ...answer.promises.map((one) => html("p", {}, `${one.output} would be promised ${grades(one.after)}, where it is ${grades(one.before)} now.`)),
      html("h3", {}, "Saved together, then"),
      html("ul", {}, saved(after).map((group) => html("li", {}, `${group.operators.join(", ")}: ${often(group)}`))),
      ...answer.unknown.map((text) => html("p", { class: "soft" }, text)),
    ];
  }
}

/** A number of records, and how long they take. */
function cost(one) {
  return one.records === null ? "unknown" : `${count(one.records)} records, ${seconds(one.seconds)}`;
}

/** What an output is promised if one process fails, and if any number do. */
function grades(of) {
  return of.one === of.any ? of.any : `${of.one} if one process fails, ${of.any} if any number do`;
}

/** How often a group is cut. */
function often(group) {
  if (group.eager) return "each epoch, by each worker";
  return [group.seconds === null ? "" : `every ${group.seconds} s`, group.epochs === null ? "" : `every ${group.epochs} epochs`].filter(Boolean).join(" or ");
}
