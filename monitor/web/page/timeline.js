// The strip below: frontiers over time with what happened, throughput, latency, what is kept.

import { describe, isBad } from "./panel.js";
import { bytes, clock, count, dated, html, morph, seconds, some, svg } from "./words.js";

const WINDOW = 180;
const WIDE = 600;
const HIGH = 96;

export class Timeline {
  /** @param {Element} root */
  constructor(root) {
    this.root = root;
    /** @type {Point[]} */
    this.points = [];
    /** @type {Happening[]} */
    this.events = [];
    this.figures = {
      epochs: this.figure("Epochs: read, complete, safe", "frontiers over time, and what happened"),
      rate: this.figure("Records a second", "records that sources read"),
      latency: this.figure("Latency of epochs", "from the end of reading to complete: median and 99th percentile"),
      kept: this.figure("State and logs", "bytes that operators and logs hold"),
      exposed: this.figure("Exposure", "records that would be handled again if the worker with most of them died"),
    };
    root.replaceChildren(...Object.values(this.figures).map((each) => each.root));
  }

  figure(title, description) {
    const value = html("b", {}, "");
    const drawing = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": description });
    return { root: html("figure", {}, html("figcaption", {}, html("span", { title: description }, title), value), drawing), value, drawing };
  }

  add(point) {
    const last = this.points[this.points.length - 1];
    if (last && point.at < last.at + 0.95) return;
    this.points.push(point);
    if (this.points.length > 900) this.points.shift();
    this.draw();
  }

  draw() {
    const now = this.points[this.points.length - 1]?.at;
    if (now === undefined) return;
    const oldest = this.points.length > 1 ? this.points[0].at : Math.min(this.points[0].at, this.events[0]?.at ?? now);
    const from = Math.max(now - WINDOW, Math.min(oldest, now - 20));
    const points = withHoles(this.points.filter((point) => point.at >= from));
    const x = (at) => ((at - from) / (now - from)) * WIDE;
    const last = points[points.length - 1];
    this.epochs(points, from, now, x);
    this.curves(this.figures.rate, points, x, [["rate", "--accent", true]], count(last.rate));
    this.curves(this.figures.latency, points, x, [["p99", "--history", false], ["p50", "--accent", true]], last.p50 === null ? "–" : `${seconds(last.p50)} · ${seconds(last.p99)}`);
    this.curves(this.figures.kept, points, x, [["logged", "--batch", false], ["state", "--lazy", true]], `${bytes(last.state)} · ${bytes(last.logged)}`);
    this.curves(this.figures.exposed, points, x, [["exposed", "--danger", true]], last.exposed === null || last.exposed === undefined ? "unknown" : some(last.exposed, "record"));
  }

  epochs(points, from, now, x) {
    const { drawing, value } = this.figures.epochs;
    const known = points.flatMap((point) => [point.newest, point.open, point.low]).filter((each) => each >= 0 && each !== null);
    const least = Math.min(...known, Infinity);
    const most = Math.max(...known, least + 1);
    const y = (epoch) => 78 - ((epoch - least) / (most - least)) * 70;
    const parts = [];
    /** @type {number | null} */
    let failed = null;
    for (const event of this.events) {
      if (event.kind === "failure") failed ??= event.at;
      if (event.kind === "restored" && failed !== null) {
        if (event.at >= from) parts.push(svg("rect", { x: x(Math.max(from, failed)), y: 2, width: Math.max(2, x(event.at) - x(Math.max(from, failed))), height: 78, style: "fill: var(--danger); opacity: .16" }, svg("title", {}, `rollback: ${seconds(event.at - failed)}`)));
        failed = null;
      }
    }
    if (failed !== null && Number.isFinite(least)) parts.push(svg("rect", { x: x(Math.max(from, failed)), y: 2, width: Math.max(2, WIDE - x(Math.max(from, failed))), height: 78, style: "fill: var(--danger); opacity: .16" }));
    const lines = [["newest", "--soft", "2 3"], ["open", "--accent", ""], ["low", "--lazy", ""]];
    for (const [name, colour, dash] of lines) {
      const path = line(points.map((point) => [x(point.at), (point[name] ?? -1) < 0 ? null : y(point[name])]));
      parts.push(svg("path", { class: "line", d: path, style: `stroke: var(${colour})`, "stroke-dasharray": dash }));
    }
    for (const event of this.events) {
      if (event.at < from || event.at > now) continue;
      const at = x(event.at);
      const title = svg("title", {}, `${clock(event.at)}  ${describe(event)}`);
      if (event.kind === "checkpoint") parts.push(svg("path", { d: `M${at} 83v5`, style: "stroke: var(--lazy); stroke-width: 1.6" }, title));
      else if (event.kind === "watermarks") parts.push(svg("path", { d: `M${at} 90v4`, style: "stroke: var(--soft); stroke-width: 1.2" }, title));
      else if (isBad(event)) parts.push(svg("path", { d: `M${at - 5} 80l5 -9 5 9z`, style: "fill: var(--danger)" }, title));
      else if (event.kind === "restored" || event.kind === "resumed") parts.push(svg("path", { d: `M${at} 68v12`, style: "stroke: var(--good); stroke-width: 3" }, title));
    }
    morph(drawing, [svg("path", { class: "axis", d: `M0 80.5H${WIDE}M0 88.8H${WIDE}` }), ...parts]);
    value.textContent = `${clock(from)} – ${clock(now).split(", ").at(-1)}`;
    value.title = `${dated(1000 * from)} – ${dated(1000 * now)}`;
  }

  curves(figure, points, x, lines, text) {
    const top = Math.max(1e-9, ...points.flatMap((point) => lines.map(([name]) => point[name] ?? 0)));
    const y = (value) => HIGH - 3 - (value / top) * (HIGH - 14);
    const parts = [svg("path", { class: "axis", d: `M0 ${HIGH - 2.5}H${WIDE}M0 ${y(top)}H${WIDE}` })];
    for (const [name, colour, filled] of lines) {
      const places = points.map((point) => [x(point.at), point[name] === null || point[name] === undefined ? null : y(point[name])]);
      const path = line(places);
      const known = places.filter(([, at]) => at !== null);
      if (filled && known.length) parts.push(svg("path", { class: "area", d: areas(places), style: `fill: var(${colour})` }));
      parts.push(svg("path", { class: "line", d: path, style: `stroke: var(${colour})` }));
    }
    morph(figure.drawing, parts);
    figure.value.textContent = text;
  }
}

const HOLE = 5;

function areas(places) {
  let path = "";
  let run = [];
  for (const place of [...places, [0, null]]) {
    if (place[1] !== null) run.push(place);
    else if (run.length) {
      path += `${line(run)}L${run[run.length - 1][0]} ${HIGH - 3}L${run[0][0]} ${HIGH - 3}z`;
      run = [];
    }
  }
  return path;
}

/**
 * Points that nobody looked at leave a hole, not a straight line.
 * @param {Point[]} points
 * @returns {any[]}
 */
function withHoles(points) {
  const found = [];
  /** @type {Point | null} */
  let before = null;
  for (const point of points) {
    if (before && point.at - before.at > HOLE) found.push({ at: before.at });
    found.push(point);
    before = point;
  }
  return found;
}

function line(places) {
  let path = "";
  let open = false;
  for (const [x, y] of places) {
    if (y === null) open = false;
    else {
      path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      open = true;
    }
  }
  return path;
}
