// The panel at the side: the job as a whole, or one operator, or one processor and what holds it back.

import { ask } from "./live.js";
import { Checkpoints } from "./checkpoints.js";
import { Errors } from "./errors.js";
import { Members, membersTable } from "./members.js";
import { Processes } from "./processes.js";
import { tookOver } from "./rollback.js";
import { at_moment, choose, state } from "./state.js";
import { bound, bytes, clock, count, dated, epochOr, html, linked, moment, morph, placeAt, placeOf, seconds, some, wordsOf, zone } from "./words.js";

const BAD = new Set(["failure", "failed", "error", "stuck", "killed", "monitor", "page"]);
/** @type {{[kind: string]: (event: any) => string}} */
const KINDS = {
  failure: (event) => `${placeOf(event)} failed: ${event.reason}`,
  failed: (event) => `the job failed: ${event.reason}`,
  error: (event) => event.text,
  began: (event) => `the job begins, with ${some(event.workers, "worker")}`,
  stuck: (event) => `stuck for ${seconds(event.seconds)} in ${event.name ? `${event.name}@${event.worker}` : `worker ${event.worker}`}, waiting for ${event.what}`,
  moves: (event) => `it moves again, after ${seconds(event.seconds)}`,
  saving: (event) => `a savepoint was asked for by ${event.by}: sources stop reading`,
  unsaved: (event) => event.why,
  stopped: (event) => `the job was stopped by ${event.by}${event.savepoint ? `: all before epoch ${event.epoch} is saved and published` : ""}`,
  killed: (event) => `the job was killed, some time after ${clock(event.last)}: nothing says why`,
  monitor: (event) => event.text,
  page: (event) => event.text,
  note: (event) => `${placeOf(event)}: ${event.text}`,
  round: (event) => `round ${event.round} of rollback begins, ${some(event.alive.length, "worker")} alive`,
  decided: (event) => `generation ${event.generation}: ${some(event.rolled_back, "processor")} to be restored`,
  restored: (event) => (event.start ? `all workers run, ${seconds(event.seconds)} after the start` : `all is restored, ${seconds(event.seconds)} after the failure${(event.rollback?.mates ?? []).map((mate) => `; ${tookOver(mate)}`).join("")}`),
  caught_up: (event) => `all is as far again as before the failure, ${seconds(event.seconds)} after that`,
  gap: (event) => `${event.output} is incomplete ${event.first === null ? "at the end" : `from epoch ${event.first}`}${event.last === null ? " on" : ` to ${event.last}`}`,
  mate: (event) => `the mate of worker ${event.worker} has its state, after ${seconds(event.seconds)}`,
  mate_lost: (event) => `the mate of worker ${event.worker} ${event.reason}${event.again ? "; another one begins anew" : ": the worker goes on without"}`,
  takeover: (event) => `the mate of worker ${event.worker} takes over`,
  standby: (event) =>
    event.there ? `the mate of worker ${event.worker} has all that is not durable` : `the mate of worker ${event.worker} is gone`,
  rescaled: (event) => `the state of ${some(event.from, "worker")} has moved to ${some(event.workers, "worker")}`,
  upgraded: (event) => `the program was changed: ${["added", "removed", "renamed", "changed"].filter((fate) => event[fate]).map((fate) => `${fate} ${event[fate].join(", ")}`).join("; ")}`,
  resumed: () => "a new monitor has taken over; nothing was rolled back",
  cut: (event) => `checkpoint of group ${event.group} at ${moment(event)} begins`,
  durable: (event) => `worker ${event.worker} has saved ${moment(event)}${event.bytes ? ` (${bytes(event.bytes)})` : ""}`,
  checkpoint: (event) => `checkpoint at ${moment(event)} is complete, after ${seconds(event.seconds)}`,
  checkpoints: (event) => `${some(event.count, "checkpoint")}, up to ${moment(event)}; the slowest took ${seconds(event.longest)}`,
  watermarks: (event) => `${some(event.risen, "low-watermark")} rose: what lies below is collected`,
  safe: (event) => `checkpoint at ${moment(event)} is safe, after ${seconds(event.seconds)}: no failure goes back behind it`,
  slow: (event) => `checkpoints take longer than they should: that at ${moment(event)} took ${seconds(event.seconds)}, on worker ${event.worker} above all`,
  finished: () => "the job is finished",
};

/**
 * An event in words.
 * @param {Happening} event
 */
export function describe(event) {
  return (KINDS[event.kind] ?? (() => event.kind))(event);
}

/** Whether an event is bad news. */
export function isBad(event) {
  return BAD.has(event.kind);
}

/** The timeline for reading: checkpoints that follow each other are one line. */
function gathered(events) {
  const found = [];
  for (const event of events) {
    if (["cut", "durable", "watermarks", "safe"].includes(event.kind)) continue;
    const last = found[found.length - 1];
    if (event.kind === "checkpoint" && last?.kind === "checkpoints") {
      last.count += 1;
      last.at = event.at;
      last.epoch = event.epoch < 0 || last.epoch < 0 ? -1 : Math.max(last.epoch, event.epoch);
      last.longest = Math.max(last.longest, event.seconds);
    } else if (event.kind === "checkpoint") found.push({ kind: "checkpoints", at: event.at, since: event.at, count: 1, epoch: event.epoch, longest: event.seconds });
    else found.push(event);
  }
  return found;
}

/** What an output is promised: one grade, or two. */
function grades(promise) {
  return promise.one === promise.any ? promise.any : `${promise.one} if one process fails, ${promise.any} if any number do`;
}

export class Panel {
  /**
   * @param {Element} root
   * @param {Job} job
   * @param {import("./whatif.js").WhatIf} whatif
   * @param {import("./rollback.js").Rollbacks} rollbacks
   */
  constructor(root, job, whatif, rollbacks) {
    this.rollbacks = rollbacks;
    /** @type {import("./moments.js").Moments | null} */
    this.moments = null;
    /** @type {import("./policies.js").OtherPolicies | null} */
    this.policies = null;
    this.root = root;
    this.job = job;
    this.whatif = whatif;
    /** @type {WorkerRow[]} */
    this.workers = [];
    /** @type {Happening[]} */
    this.events = [];
    /** @type {Partial<Totals>} */
    this.totals = {};
    /** @type {{key: string, all?: any, one?: any, why?: any, error?: string} | null} */
    this.answers = null;
    this.shown = "";
    this.busy = false;
    /** @type {PictureNode | null} */
    this.node = null;
    /** @type {Verdict | null} */
    this.verdict = null;
    this.live = true;
    this.members = new Members();
    this.cuts = new Checkpoints(job);
    this.processes = new Processes(job, () => this.show());
    this.errors = new Errors(() => this.show());
    /** Called when an answer has come. */
    this.answered = () => {};
    /** Parts above all others. */
    this.offer = () => /** @type {Node[]} */ ([]);
    this.lost = false;
  }

  /** The operator that is chosen, by its number; null for none. */
  get operator() {
    const found = state.sel === null ? -1 : this.job.operators.findIndex((each) => each.name === state.sel);
    return found < 0 ? null : found;
  }

  /** What answers are about. */
  get key() {
    return `${state.sel}@${state.worker}@${state.epoch}@${state.at}`;
  }

  /** Show what is chosen now. */
  show() {
    if (this.policies?.on) this.put(this.policies.panel());
    else if (this.whatif.on) this.put(this.whatif.panel(this.job));
    else if (this.rollbacks.on) this.put(this.rollbacks.panel());
    else if (state.cut !== null) this.put(this.cuts.panel(this.events));
    else if (this.node && this.node.operator === null) this.put(this.group(this.node));
    else if (this.operator === null) this.put(this.overview());
    else {
      if (this.answers?.key !== this.key) this.answers = null;
      this.put(this.details());
      this.fetch();
    }
  }

  put(parts) {
    morph(this.root, parts.filter((part) => part !== ""));
  }

  /** Ask about what is chosen; called again as long as it is. */
  async fetch() {
    const operator = this.operator;
    if (operator === null || this.busy) return;
    this.busy = true;
    const worker = state.worker === null ? null : Number(state.worker);
    const { key } = this;
    const about = state.epoch === null ? "" : `?epoch=${state.epoch}`;
    try {
      const asked = [ask(at_moment(`api/operator/${operator}`))];
      if (worker !== null) asked.push(ask(at_moment(`api/processor/${operator}/${worker}`)), ask(at_moment(`api/why/${operator}/${worker}${about}`)));
      const [all, one, why] = await Promise.all(asked);
      this.members.take(state.sel ?? "", all.workers);
      if (key === this.key) this.answers = { key, all, one, why };
      this.answered();
    } catch (problem) {
      if (!this.answers) this.answers = { key, error: wordsOf(problem) };
    }
    this.busy = false;
    if (key !== this.key) {
      this.show();
      return;
    }
    if (!this.whatif.on && !this.policies?.on && !this.rollbacks.on && this.operator === operator) this.put(this.details());
  }

  overview() {
    const rows = this.workers.map(([presence, , failures, newest, rate, busy, age], at) =>
      html("tr", {}, html("td", {}, placeAt(at, this.job.workers)), html("td", {}, this.lost ? "unknown" : presence), html("td", { class: newest === -1 ? "wraps" : "" }, newest === -1 && this.verdict?.state !== "ended" ? "no open source" : epochOr(newest)), html("td", {}, count(rate)), html("td", {}, busy === null ? "–" : `${Math.round(busy * 100)} %`), html("td", {}, failures ? `${failures}` : ""), html("td", {}, age === null ? "never" : age < 2 ? "now" : `${seconds(age)} ago`)),
    );
    const bad = this.events.filter(isBad);
    const recent = gathered(this.events);
    const every = this.job.groups.map((group) => (group.every_epochs ? `${group.every_epochs} epochs` : group.every_seconds ? `${group.every_seconds} s` : "epoch, by each worker"));
    return [
      ...this.offer(),
      ...(this.moments?.parts() ?? []),
      html("h2", {}, this.job.name),
      html("p", { class: "soft" }, `${some(this.job.operators.length, "operator")} on ${some(this.job.workers, "worker")}; ${some(this.job.groups.length, "group")} of checkpoints, every ${[...new Set(every)].join(", ") || "–"}.`),
      html("h3", {}, "Workers"),
      html("table", { class: "tight" }, html("tr", {}, ["", "", "epoch", "records/s", "busy", "failed", "heard"].map((text) => html("th", {}, text))), rows),
      this.job.promises.length ? html("h3", {}, "Outputs under failures") : "",
      this.promises(),
      html("h3", {}, "Policies"),
      html("table", { class: "tight" }, [...this.job.regions, { name: "", policy: "" }].map((each) => html("tr", {}, html("td", {}, each.name || "in no region"), html("td", {}, each.policy), html("td", {}, this.policies?.button(each.name) ?? "")))),
      html("h3", {}, "Held"),
      html("dl", { class: "facts" }, html("dt", {}, "state of operators"), html("dd", {}, bytes(this.totals.state)), html("dt", {}, "logged messages"), html("dd", {}, bytes(this.totals.logged)), html("dt", {}, "kept for survivors"), html("dd", {}, this.totals.kept === null ? "–" : `${bytes(this.totals.kept)}, ${Math.round(100 * (this.totals.covered ?? 0))} % of the epochs since the last cut`)),
      ...this.processes.list(),
      ...this.rollbacks.list(),
      ...this.cuts.list(this.events),
      this.verdict?.trace ? html("h3", {}, "Traceback") : "",
      this.verdict?.trace ? html("pre", { class: "trace" }, this.verdict.trace) : "",
      ...this.errors.list(bad, (name) => this.named(name)),
      html("h3", { title: `Times are of the zone ${zone()}` }, `What happened (${zone()})`),
      recent.length ? this.list(recent.slice(-40)) : html("p", { class: "soft" }, "Nothing yet."),
    ];
  }

  promises() {
    if (!this.job.promises.length) return "";
    const rows = this.job.promises.map((promise) => html("tr", {}, html("td", {}, this.named(promise.output)), html("td", { title: promise.causes.map((cause) => cause.reason).join("; ") }, grades(promise))));
    return html("table", { class: "tight", id: "promises" }, rows);
  }

  /** Why an output promises no more, and what would mend it. */
  causes(promise) {
    return promise.causes.map((cause) => html("div", { class: "because" }, html("b", {}, cause.grade), html("span", {}, `${cause.reason}. To mend it, ${cause.mend}.`), cause.name === promise.output ? "" : [" ", this.named(cause.name)]));
  }

  /** A link to an operator, if it is one by itself. */
  named(name) {
    const operator = this.job.operators.findIndex((each) => each.name === name);
    return operator < 0 ? name : this.jump(operator, null);
  }

  list(events) {
    return html("ul", { class: "events" }, events.toReversed().map((event) => html("li", { class: isBad(event) ? "bad" : "", "data-keep": `event ${event.n ?? `${event.kind} ${event.since}`}` }, this.when(event), html("span", {}, ...linked(describe(event))))));
  }

  /** The time of an event, which leads to that moment if it is recorded. */
  when(event) {
    if (!this.job.history) return html("span", { class: "soft", title: dated(1000 * event.at) }, clock(event.at));
    return html("button", { class: "jump", title: `${dated(1000 * event.at)}. Show that moment`, onclick: () => choose({ at: String(Math.round(event.at * 1000) + 1) }) }, clock(event.at));
  }

  group(node) {
    return [
      html("div", { class: "head" }, html("h2", {}, node.name), html("button", { onclick: () => choose({ sel: null, worker: null }) }, "Close")),
      html("p", { class: "soft" }, `${some(node.count, "operator")} folded into one (${node.kind}). Double-click it, or press Enter, to open it.`),
      html("button", { onclick: () => choose({ open: [...new Set([...state.open, node.key])], close: state.close.filter((key) => key !== node.key) }) }, "Open"),
    ];
  }

  details() {
    const operator = this.operator ?? 0;
    const info = this.job.operators[operator];
    const parts = [
      html("div", { class: "head" }, html("h2", {}, info.name), html("button", { "data-keep": "close", onclick: () => choose({ sel: null, worker: null }) }, "Close")),
      html("p", { class: "soft" }, `${info.kind}, made at `, html("code", { title: info.site }, info.site.split("/").slice(-2).join("/"))),
      html("dl", { class: "facts" }, ...this.facts(info)),
      ...this.job.promises.filter((promise) => promise.output === info.name).flatMap((promise) => this.causes(promise)),
    ];
    if (this.verdict?.processor === operator && this.verdict.alarm) {
      parts.push(html("div", { class: "because" }, html("b", {}, this.verdict.state), this.verdict.text));
      if (this.verdict.trace) parts.push(html("pre", { class: "trace" }, this.verdict.trace));
    }
    parts.push(...(this.moments?.difference(operator) ?? []));
    const answers = this.answers;
    if (answers?.error) return [...parts, html("div", { class: "because" }, html("b", {}, "No answer"), answers.error)];
    if (!answers) return [...parts, html("p", { class: "soft" }, "Asking…")];
    parts.push(html("h3", {}, "On each worker"), this.workersTable(answers.all.workers), ...this.membersOf(answers.all.workers), ...this.working(answers.all.workers));
    if (state.worker === null) parts.push(html("p", { class: "soft" }, "Choose a worker to see what it can be restored to, and what holds it back."));
    else if (answers.one) parts.push(...this.processor(answers.one, answers.why));
    return parts;
  }

  facts(info) {
    const kept = info.history ? "every event that is delivered" : info.chain ? "checkpoints" : "nothing: it is made again from its input";
    const pairs = [
      ["policy", info.policy],
      ["region", [info.region ?? "–", " ", this.policies?.button(info.region) ?? ""]],
      ["scope", info.scope.join(" / ") || "–"],
      ["persists", kept],
      ...this.job.promises.filter((promise) => promise.output === info.name).map((promise) => ["under failures", grades(promise)]),
    ];
    return pairs.flatMap(([name, text]) => [html("dt", {}, name), html("dd", {}, text)]);
  }

  workersTable(workers) {
    const rows = workers.map((one) => {
      const chosen = String(one.worker) === String(state.worker);
      const pick = () => choose({ worker: chosen ? null : String(one.worker) });
      const link = html("button", { class: "jump", "data-keep": `worker ${one.worker}`, onclick: (event) => { event.stopPropagation(); pick(); } }, `worker ${one.worker}`);
      return html("tr", { class: `link ${chosen ? "chosen" : ""}`, onclick: pick }, html("td", {}, link), html("td", {}, bound(one.progress)), html("td", {}, bound(one.low)), html("td", {}, count(one.pending)), html("td", {}, count(one.queued)), html("td", {}, bytes(one.bytes)));
    });
    return html("table", { class: "tight" }, html("tr", {}, ["", "progress", "rollback", "pending", "queued", "state"].map((text) => html("th", {}, text))), rows);
  }

  /** The operators of a fused chain: how much each does, and which of them is slow. */
  membersOf(workers) {
    const queued = workers.reduce((sum, one) => sum + (one.queued ?? 0), 0);
    return membersTable(this.members.rows(workers), queued, state.member ?? (this.verdict?.alarm ? this.verdict.name : null));
  }

  /** How far jobs of the operator are, and what a source has others read. */
  working(workers) {
    const rows = workers.flatMap((one) => (one.working ?? []).map((each) => {
      const share = each.total ? ` ${count(each.done)} of ${count(each.total)}` : "";
      return html("tr", {}, html("td", {}, `worker ${one.worker}`), html("td", {}, moment(each)), html("td", {}, `${each.what}${share}`), html("td", {}, `${each.seconds.toFixed(0)} s`));
    }));
    return rows.length ? [html("h3", {}, "At work for it"), html("table", { class: "working" }, rows)] : [];
  }

  processor(one, why) {
    /** @type {HTMLElement[]} */
    const parts = [html("h3", {}, state.epoch === null ? `Why worker ${one.worker} is where it is` : `Why worker ${one.worker} does not keep epoch ${state.epoch} for good, or does`)];
    if (why) {
      parts.push(this.because("Rollback frontier", bound(one.low), why.rollback.text, why.rollback.culprit, why.rollback.constraint));
      if (this.live) parts.push(this.because("Progress frontier", (why.progress.frontier ?? []).map(bound).join(", ") || "–", why.progress.text, why.progress.culprit));
      if (why.progress.holds.length > 1) {
        const rows = why.progress.holds.map((hold) => html("tr", {}, html("td", {}, `${hold.what} at `, this.jump(hold.operator, hold.workers[0] ?? null)), html("td", {}, bound(hold.time)), html("td", {}, hold.workers.length ? `worker ${hold.workers.join(", ")}` : "")));
        parts.push(html("h3", {}, "All that holds its progress"), html("table", {}, rows));
      }
      if (why.rollback.path.length > 1) {
        const rows = why.rollback.path.map((step) => html("tr", {}, html("td", {}, this.jump(step.operator, step.worker)), html("td", {}, `needs ${bound(step.bound)}`), html("td", {}, html("code", {}, step.by))));
        parts.push(html("h3", {}, "From here to what holds it"), html("table", {}, rows));
      }
      if (why.rollback.culprits.length > 1) {
        const more = why.rollback.culprits.slice(1).map((each) => html("tr", {}, html("td", {}, this.jump(each.operator, each.worker)), html("td", {}, `must reach ${bound(each.bound)}`)));
        parts.push(html("h3", {}, `Also missing${why.rollback.more ? `, and ${why.rollback.more} more` : ""}`), html("table", {}, more));
      }
      if (!why.rollback.whole) parts.push(html("p", { class: "soft" }, "There may be more that hold it back: the search was given up, for there is much to look at."));
    }
    parts.push(html("h3", {}, "Holds"), this.holds(one), html("h3", {}, one.kind === "chain" ? "F*(p): what it can be restored to" : "F*(p): all frontiers up to"), this.checkpoints(one));
    return parts;
  }

  because(what, where, text, culprit, constraint) {
    /** @type {(HTMLElement | string)[]} */
    const body = [html("b", {}, `${what} ${where}`), html("span", {}, text)];
    if (culprit) body.push(" ", this.jump(culprit.operator, culprit.worker));
    if (constraint) body.push(html("div", { class: "soft" }, "constraint ", html("code", {}, constraint)));
    return html("div", { class: "because" }, body);
  }

  jump(operator, worker) {
    const name = this.job.operators[operator].name;
    const keep = `jump ${operator} ${worker}`;
    return html("button", { class: "jump", "data-keep": keep, onclick: () => choose({ sel: name, worker: worker === null ? null : String(worker) }) }, worker === null ? name : `${name} @ ${worker}`);
  }

  holds(one) {
    const facts = [
      ["state", one.bytes === undefined ? "–" : `${bytes(one.bytes)}, ${some(one.rows, "row")}`],
      ["logged output", one.logged === undefined ? "–" : `${bytes(one.logged_bytes)}, ${some(one.logged, "message")}`],
      ["kept of what exchanges sent", one.kept_messages === undefined ? "–" : `${bytes(one.kept_bytes)}, ${some(one.kept_messages, "message")}${one.kept_from > 0 ? `, all from epoch ${count(one.kept_from)} on` : ""}`],
      ["notifications pending", count(one.pending)],
      ["capabilities", count(one.held)],
      ["batches queued", count(one.queued)],
      ["records in / out, since this page looks", this.live && one.taken !== undefined ? `${count(one.taken)} / ${count(one.sent)}` : "–"],
      ["checkpoints: taken, kept, collected", one.kind === "chain" ? `${count(one.taken_checkpoints)}, ${count(one.kept)}, ${count(one.collected)}` : "none"],
    ];
    return html("dl", { class: "facts" }, facts.flatMap(([name, text]) => [html("dt", {}, name), html("dd", {}, text)]));
  }

  checkpoints(one) {
    if (!one.checkpoints.length) return html("p", { class: "soft" }, "Only ∅: nothing is saved yet, or needed.");
    const name = (operator) => this.job.operators[operator].name;
    const each = (list, key, mark = (/** @type {any} */ _entry) => "") => list.map((entry) => html("div", {}, `${name(entry[key])}: ${bound(entry.bound)}${mark(entry)}`));
    const rows = one.checkpoints.map((xi) =>
      html("tr", {}, html("td", {}, bound(xi.f)), html("td", {}, bound(xi.notified)), html("td", {}, each(xi.delivered, "from")), html("td", {}, each(xi.discarded, "to", (entry) => (entry.logged ? " (logged)" : ""))), html("td", {}, each(xi.projected, "to"))),
    );
    return html("table", {}, html("tr", {}, ["f", "N̄", "M̄", "D̄", "φ"].map((text) => html("th", {}, text))), rows);
  }
}
