// Members of fused chains: rates and shares from two observations, drawn inside the chain's node, and as a table.

import { count, html, svg } from "./words.js";

const ROW = 17;

/** What each member of a chain did between the last two observations of each worker. */
export class Members {
  constructor() {
    this.key = "";
    /** @type {Map<string, {at: number, taken: number, busy: number}>} */
    this.before = new Map();
    /** @type {Map<string, {rate: number, busy: number}>} */
    this.now = new Map();
  }

  /**
   * Take an answer of api/operator. Counters that went back are those of another process: they begin anew.
   * @param {string} key
   * @param {any[]} workers
   */
  take(key, workers) {
    if (key !== this.key) {
      this.key = key;
      this.before.clear();
      this.now.clear();
    }
    for (const one of workers) {
      for (const each of one.members ?? []) {
        const id = `${one.worker} ${each.name}`;
        const last = this.before.get(id);
        if (last && last.at === one.at) continue;
        this.before.set(id, { at: one.at, taken: each.taken, busy: each.busy });
        const passed = last ? one.at - last.at : 0;
        if (!last || passed <= 0 || each.taken < last.taken || each.busy < last.busy) continue;
        this.now.set(id, { rate: (each.taken - last.taken) / passed, busy: Math.min(1, (each.busy - last.busy) / 1e6 / passed) });
      }
    }
  }

  /**
   * A row for each member: all workers together, and how uneven they are (busiest over mean; 1: even).
   * @param {any[]} workers
   * @returns {MemberRow[]}
   */
  rows(workers) {
    /** @type {Map<string, MemberRow>} */
    const found = new Map();
    for (const one of workers) {
      for (const each of one.members ?? []) {
        /** @type {MemberRow} */
        const row = found.get(each.name) ?? { name: each.name, taken: 0, spent: 0, share: 0, rate: null, busy: null, skew: null, on: [] };
        row.taken += each.taken;
        row.spent += each.busy;
        row.on.push(each.busy);
        const now = this.now.get(`${one.worker} ${each.name}`);
        if (now) {
          row.rate = (row.rate ?? 0) + now.rate;
          row.busy = (row.busy ?? 0) + now.busy;
        }
        found.set(each.name, row);
      }
    }
    const all = [...found.values()].reduce((sum, row) => sum + row.spent, 0);
    for (const row of found.values()) {
      row.share = all ? row.spent / all : 0;
      if (row.spent && row.on.length > 1) row.skew = (Math.max(...row.on) * row.on.length) / row.spent;
    }
    return [...found.values()];
  }
}

/**
 * The slowest member: the one with the largest share of the chain's time.
 * @param {MemberRow[]} rows
 */
export function slowest(rows) {
  const most = Math.max(0, ...rows.map((row) => row.share));
  return (most && rows.find((row) => row.share === most)?.name) || null;
}

/**
 * The table in the panel. What waits, waits in front of the chain: between its members there is no queue.
 * @param {MemberRow[]} rows
 * @param {number} queued
 * @param {string | null} marked
 */
export function membersTable(rows, queued, marked) {
  if (!rows.length) return [];
  const worst = slowest(rows);
  const lines = rows.map((row, at) => {
    const names = [row.name === worst && "slowest", marked && row.name.split(", ").includes(marked) && "chosen"].filter(Boolean);
    return html("tr", { class: names.join(" "), "data-member": row.name }, html("td", {}, row.name), html("td", {}, count(row.taken)), html("td", {}, row.rate === null ? "–" : count(Math.round(row.rate))), html("td", {}, `${Math.round(100 * row.share)} %`), html("td", {}, row.busy === null ? "–" : `${Math.round(100 * row.busy)} %`), html("td", {}, at ? "" : count(queued)), html("td", {}, row.skew === null ? "–" : `${row.skew.toFixed(1)} ×`));
  });
  const heads = [["", ""], ["records in", ""], ["a second", ""], ["of its time", "share of the chain's time"], ["busy", "of a processor, all workers together"], ["waits", "batches queued in front of the chain"], ["skew", "the busiest worker, compared with the mean"]];
  return [html("h3", {}, "Fused into it"), html("table", { class: "tight members" }, html("tr", {}, heads.map(([text, title]) => html("th", { title }, text))), lines)];
}

/**
 * Members inside the node of their chain, below what it says of itself. What had been drawn is replaced.
 * @param {SVGElement} group
 * @param {PictureNode} node
 * @param {string[]} names
 * @param {MemberRow[]} rows
 * @param {string | null} marked
 */
export function drawMembers(group, node, names, rows, marked) {
  const worst = slowest(rows);
  const wide = node.w - 26;
  const lines = names.map((name, at) => {
    const row = rows.find((each) => each.name.split(", ").includes(name));
    const own = row?.name === name;
    const y = node.h + 14 + at * ROW;
    const said = row ? `${Math.round(100 * row.share)} %${row.rate === null ? "" : `  ${count(Math.round(row.rate))}/s`}` : "";
    const most = Math.floor((wide - said.length * 6.2) / 6.4);
    return svg(
      "g",
      { class: ["member", row?.name === worst && row && "slowest", name === marked && "marked"].filter(Boolean).join(" "), "data-member": name },
      svg("rect", { class: "share", x: 13, y: y - 12, width: ((row?.share ?? 0) * wide).toFixed(1), height: ROW - 2, rx: 3 }),
      svg("text", { x: 16, y }, name.length > most ? `${name.slice(0, most - 1)}…` : name),
      svg("text", { class: "figures", x: node.w - 13, y, "text-anchor": "end" }, said),
      svg("title", {}, `${name}${row ? `: ${said} of the chain's time${own ? "" : `, together with ${row.name}`}` : ""}`),
    );
  });
  group.querySelector(".inside")?.remove();
  if (lines.length) group.append(svg("g", { class: "inside" }, svg("rect", { class: "card", x: 0, y: node.h - 4, width: node.w, height: lines.length * ROW + 10, rx: 9 }), lines));
}
