// Checkpoints of the timeline: a table, and one of them drawn over time, a line a worker.

import { choose, state } from "./state.js";
import { bytes, clock, count, html, moment, seconds, some, svg } from "./words.js";

const MOST = 12;
const MOST_NAMES = 40;
const WIDE = 372;
const LEFT = 62;
const ROW = 20;
const PARTS = /** @type {const} */ (["waited", "made", "written"]);

/** @param {Happening} event */
function keyOf(event) {
  return [event.group, event.epoch, event.iteration ?? "", ...(event.iterations ?? [])].join(".");
}

/**
 * The cuts of the timeline, in order.
 * @param {Happening[]} events
 * @returns {CutShown[]}
 */
export function cutsOf(events) {
  /** @type {Map<string, CutShown>} */
  const found = new Map();
  for (const event of events) {
    if (event.kind === "cut") found.set(keyOf(event), { key: keyOf(event), event, at: event.at, workers: [], durable: null, safe: null });
    const cut = found.get(keyOf(event));
    if (!cut) continue;
    if (event.kind === "durable") cut.workers.push(event);
    else if (event.kind === "checkpoint") cut.durable = event.seconds;
    else if (event.kind === "safe") cut.safe = event.seconds;
  }
  return [...found.values()];
}

export class Checkpoints {
  /** @param {Job} job */
  constructor(job) {
    this.job = job;
  }

  /**
   * Why it was made.
   * @param {CutShown} cut
   */
  trigger(cut) {
    if (cut.event.epoch < 0) return "end of input";
    const group = this.job.groups[cut.event.group];
    const every = [group?.every_epochs && some(group.every_epochs, "epoch"), group?.every_seconds && `${group.every_seconds} s`].filter(Boolean);
    return every.length ? `every ${every.join(" or ")}` : "each epoch";
  }

  /** @param {Happening[]} events */
  list(events) {
    const cuts = cutsOf(events);
    if (!cuts.length) return [];
    const rows = cuts.slice(-MOST).toReversed().map((cut) => {
      const size = cut.workers.reduce((sum, each) => sum + (each.bytes ?? 0), 0);
      const name = moment(cut.event).replace("epoch ", "");
      const open = html("button", { class: "jump", "data-keep": `cut ${cut.key}`, title: `group ${cut.event.group}, begun ${clock(cut.at)}`, onclick: () => choose({ cut: cut.key, sel: null, worker: null }) }, name);
      return html("tr", { "data-cut": cut.key }, html("td", {}, open), html("td", {}, this.trigger(cut)), html("td", {}, cut.workers.length ? bytes(size) : "–"), html("td", {}, seconds(cut.durable)), html("td", {}, seconds(cut.safe)));
    });
    const heads = [["", ""], ["trigger", ""], ["size", "of what was written, all workers together"], ["durable", "seconds until all workers had saved it"], ["in W", "seconds until no failure goes back behind it"]];
    return [html("h3", {}, "Checkpoints"), html("table", { class: "tight cuts" }, html("tr", {}, heads.map(([text, title]) => html("th", { title }, text))), rows)];
  }

  /** @param {Happening[]} events */
  panel(events) {
    const cut = cutsOf(events).find((each) => each.key === state.cut);
    const head = html("div", { class: "head" }, html("h2", {}, cut ? `Checkpoint at ${moment(cut.event)}` : "Checkpoint"), html("button", { "data-keep": "close", onclick: () => choose({ cut: null }) }, "Close"));
    if (!cut) return [head, html("p", { class: "soft" }, "The timeline does not reach back to it.")];
    const members = this.job.operators.flatMap((each, operator) => (each.group === cut.event.group ? [operator] : []));
    const names = members.slice(0, MOST_NAMES).map((operator) => html("li", {}, html("button", { class: "jump", onclick: () => choose({ sel: this.job.operators[operator].name, worker: null }) }, this.job.operators[operator].name), html("span", { class: "soft" }, this.job.operators[operator].chain ? " saves" : " keeps nothing")));
    const rows = cut.workers.map((each) => html("tr", {}, html("td", {}, `worker ${each.worker}`), ...PARTS.map((part) => html("td", {}, seconds(each[part]))), html("td", {}, bytes(each.bytes))));
    return [
      head,
      html("p", { class: "soft" }, `Begun ${clock(cut.at)}, ${this.trigger(cut)}; durable after ${seconds(cut.durable)}, in W after ${seconds(cut.safe)}.`),
      gantt(cut),
      html("table", { class: "tight" }, html("tr", {}, ["", "waited", "made", "written", "size"].map((text) => html("th", {}, text))), rows),
      html("p", { class: "soft" }, "Waited: until its first piece; made: in pieces, between other work; written: until its segment was durable."),
      html("h3", {}, `Group ${cut.event.group}: ${some(members.length, "operator")} cut together`),
      html("ul", { class: "events" }, names, members.length > MOST_NAMES ? html("li", {}, `and ${count(members.length - MOST_NAMES)} more`) : ""),
    ];
  }
}

/** @param {CutShown} cut */
function gantt(cut) {
  const ends = cut.workers.map((each) => PARTS.reduce((sum, part) => sum + each[part], 0));
  const total = Math.max(cut.safe ?? 0, cut.durable ?? 0, ...ends, 1e-6);
  const scale = (WIDE - LEFT) / total;
  const bar = (kind, from, length, y, title) => svg("rect", { class: kind, "data-seconds": length.toFixed(6), x: (LEFT + from * scale).toFixed(1), y: y + 4, width: Math.max(length * scale, 0.8).toFixed(1), height: ROW - 8 }, svg("title", {}, title));
  const lines = cut.workers.flatMap((each, at) => {
    let from = 0;
    const bars = PARTS.map((part) => {
      from += each[part];
      return bar(part, from - each[part], each[part], at * ROW, `${part} ${seconds(each[part])}`);
    });
    return [svg("text", { x: 0, y: at * ROW + 14 }, `worker ${each.worker}`), ...bars];
  });
  const y = cut.workers.length * ROW;
  if (cut.safe !== null) lines.push(svg("text", { x: 0, y: y + 14 }, "to W"), bar("safe", cut.durable ?? 0, Math.max(0, cut.safe - (cut.durable ?? 0)), y, `in W after ${seconds(cut.safe)}`));
  const height = y + ROW;
  return svg("svg", { class: "gantt", viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": `The checkpoint over ${seconds(total)}` }, lines);
}
