// The drawing: built when the layout or what is folded changes, then only touched where rows differ.

import { magnified } from "./camera.js";
import { fitted, wide } from "./fitting.js";
import { bytes, count, epoch, lag, policy, some, svg } from "./words.js";

const EACH = 20;
const SLOW = 1000;
/** Nodes are touched at most once in so many milliseconds each, and not less often than once in so many. */
const SLACK = 150;
/** A message within so many milliseconds more is waited for: what it changes is laid out and painted with the nodes. */

const ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz";

/** Letters of nodes as page.css has them: size in pixels, and weight. */
const NAME = /** @type {const} */ ([12, 620]);
const SMALL_NAME = /** @type {const} */ ([11.5, 550]);
const LETTER = /** @type {const} */ ([11, 750]);
const FIGURES = 11;
/** Room between two texts in a line. */
const APART = 8;
/** Height of name and figures from afar, at no magnification; a card grows to it, by so much at most: more room there is not below. */
const LINES = 27.4;
const GROWS = 28;
const GROWS_ACROSS = 22;
/** Magnification at which the name of a small node is higher than its node. */
const SMALL_HIGH = 2.2;

/**
 * Both frontiers and the lag of a node, in `room`: what does not fit is said shorter, and the lag last of all.
 * @param {Row} row
 * @param {number} behind
 * @param {number} room
 * @param {(text: string, at: number) => number} wideness
 * @returns {[string, string, string]}
 */
export function figures([progress, inner, low, lowInner], behind, room, wideness) {
  const first = `▸ ${epoch(progress, inner)}`;
  const kept = low < 0 ? "↺ all" : `↺ ${epoch(low, lowInner)}`;
  const less = low >= 0 && progress >= low ? `↺ −${count(progress - low)}` : kept;
  const brief = progress < 0 ? first : `▸ ${count(progress)}`;
  const end = progress === -1 ? "✓ end" : progress < 0 ? "?" : behind ? `−${count(behind)}` : "";
  const tries = /** @type {[string, string, string][]} */ ([[first, kept, end], [first, less, end], [first, kept, ""], [first, less, ""], [brief, less, end], [brief, less, ""], [first, "", ""], [brief, "", ""]]);
  const fits = (/** @type {string[]} */ parts) => parts.reduce((sum, part, at) => sum + (part ? wideness(part, at) + APART : 0), -APART) <= room;
  return tries.find(fits) ?? ["", "", ""];
}

export class Graph {
  /**
   * @param {SVGElement} layer
   * @param {SVGElement} stage
   * @param {{choose: (index: number) => void, open: (index: number) => void, fold: (key: string) => void}} events
   */
  constructor(layer, stage, events) {
    this.layer = layer;
    this.stage = stage;
    this.events = events;
    /** @type {Picture} */
    this.page = { width: 0, across: false, height: 0, nodes: [], boxes: [], edges: [], of: [] };
    /** @type {(Row | null)[]} */
    this.rows = [];
    /** @type {any[]} */
    this.parts = [];
    /** @type {SVGPathElement[]} */
    this.edges = [];
    /** @type {number | null} */
    this.chosen = null;
    /** @type {string | null} */
    this.region = null;
    /** @type {number | null} */
    this.newest = null;
    this.shifted = false;
    this.scale = { top: 1, from: 0 };
    /** @type {Set<number>} */
    this.late = new Set();
    this.k = 1;
    this.far = false;
    /** @type {number | undefined} */
    this.timer = undefined;
    this.touched = 0;
  }

  /**
   * Build the drawing of `page`.
   * @param {Picture} page
   */
  draw(page) {
    this.page = page;
    this.rows = page.nodes.map(() => null);
    this.parts = [];
    const boxes = page.boxes.map((box) => this.box(box));
    const edges = page.edges.map((edge) => {
      const names = ["edge", edge.back && "back", edge.logged && "logged", edge.spread && "spread"].filter(Boolean);
      const path = svg("path", { class: names.join(" "), d: edge.path, "marker-end": `url(#arrow${edge.logged ? "-logged" : ""})` });
      const kinds = [edge.spread ? "exchanged between workers" : "within each worker", edge.logged && "logged", edge.back && "leads back", edge.count > 1 && some(edge.count, "edge")];
      path.append(svg("title", {}, `${page.nodes[edge.source].name} → ${page.nodes[edge.target].name}: ${kinds.filter(Boolean).join(", ")}`));
      return path;
    });
    this.edges = edges;
    const nodes = page.nodes.map((node, index) => this.node(node, index));
    const frames = page.boxes.findIndex((one) => !one.key);
    const split = frames < 0 ? boxes.length : frames;
    this.layer.replaceChildren(...boxes.slice(0, split), ...edges, ...boxes.slice(split), ...nodes);
    this.mark();
  }

  /**
   * Another scale: what is written in nodes is as large on the screen as before, so that less or more of it fits.
   * @param {number} scale
   * @param {boolean} far
   */
  scaled(scale, far) {
    const k = magnified(scale);
    if (Math.abs(k - this.k) < 0.04 * this.k && far === this.far) return;
    this.k = k;
    this.far = far;
    this.parts.forEach((_, index) => this.name(index));
    this.rows.forEach((_, index) => this.touch(index));
    this.layer.querySelectorAll(".box > text").forEach((text, at) => set(text, this.label(this.page.boxes[at])));
  }

  /** Height of a node's card: from afar the room of its two lines, if there is as much. */
  height(node) {
    const most = node.h + (this.page.across ? GROWS_ACROSS : GROWS);
    const lines = LINES * this.k;
    return this.far && !node.small && lines <= most ? Math.max(node.h, lines) : node.h;
  }

  /** Write the name of a node, as much as there is room for beside what else is in its line. */
  name(index) {
    const node = this.page.nodes[index];
    const parts = this.parts[index];
    const [size, weight] = node.small ? SMALL_NAME : NAME;
    const fit = (room) => fitted(node.name, room, size * this.k, weight);
    if (node.small) {
      if (this.k > SMALL_HIGH) set(parts.name, "");
      else set(parts.name, fit(node.w - (this.far ? 12 : 24)));
      return;
    }
    const high = this.height(node).toFixed(1);
    for (const card of [parts.card, parts.behind]) card?.setAttribute("height", high);
    const { letter } = policy(node.policy);
    const several = node.count > 1 ? (this.k > 1.1 ? `×${node.count} ${letter}` : `${node.count} operators  ${letter}`) : letter;
    set(parts.letter, several);
    set(parts.name, fit(this.far ? node.w - 16 : node.w - 23 - APART - wide(several, LETTER[0] * this.k, LETTER[1])));
  }

  /** Write the only figure of a small node, if there is room for it beside the whole name. */
  beside(index, text) {
    const node = this.page.nodes[index];
    const parts = this.parts[index];
    const room = wide(text.replace(/[0-9]/g, "0"), FIGURES * this.k, 700);
    const [size, weight] = SMALL_NAME;
    set(parts.lag, this.far || wide(node.name, size * this.k, weight) + APART + room > node.w - 24 ? "" : text);
  }

  /** @param {PictureBox} box */
  label(box) {
    const word = { scope: "scope ", region: "region ", frame: "region " }[box.kind] ?? "";
    return fitted(this.far || box.label.startsWith(word) ? box.label : word + box.label, box.w - (box.key ? 50 : 20), 12 * this.k, 600);
  }

  /** @param {PictureBox} box */
  box(box) {
    if (!box.key) return svg("g", { class: `box ${box.kind}` }, svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 10 }), svg("text", { x: box.x + 10, y: box.y + 16 }, this.label(box)));
    const fold = svg(
      "g",
      { class: "fold", role: "button", tabindex: 0, "aria-label": `Fold ${box.label}`, transform: `translate(${box.x + box.w - 26} ${box.y + 7})` },
      svg("rect", { width: 18, height: 18, rx: 4 }),
      svg("path", { d: "M5 9h8", stroke: "currentColor", "stroke-width": 1.6 }),
      svg("title", {}, "Fold into one node"),
    );
    const act = (event) => {
      if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      this.events.fold(box.key);
    };
    fold.addEventListener("click", act);
    fold.addEventListener("keydown", act);
    return svg(
      "g",
      { class: `box ${box.kind}`, "data-key": box.key },
      svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 10 }),
      svg("text", { x: box.x + 13, y: box.y + 21 }, this.label(box)),
      fold,
    );
  }

  /**
   * @param {PictureNode} node
   * @param {number} index
   */
  node(node, index) {
    const { hue } = policy(node.policy);
    const group = svg("g", {
      class: `node ${node.small ? "small" : ""}`,
      hue,
      tabindex: -1,
      role: "button",
      transform: `translate(${node.x} ${node.y})`,
      "data-node": index,
      "data-name": node.name,
      "aria-label": node.name,
    });
    /** @type {any} */
    const parts = { group };
    if (node.count > 1) group.append((parts.behind = svg("rect", { class: "behind", x: 5, y: 5, width: node.w, height: node.h, rx: 9 })));
    parts.card = svg("rect", { class: "card", width: node.w, height: node.h, rx: node.small ? 15 : 9 });
    group.append(
      parts.card,
      node.small ? "" : svg("rect", { class: "stripe", x: 0, y: 10, width: 4, height: node.h - 20, rx: 2 }),
    );
    parts.title = svg("title", {}, node.name);
    group.append(parts.title);
    parts.name = svg("text", { class: "name", x: node.small ? 12 : 13, y: 20 }, "");
    group.append(parts.name);
    parts.progress = svg("tspan", {}, "");
    parts.low = svg("tspan", { class: "soft", dx: 8 }, "");
    parts.lag = svg("text", { class: "figures lag", x: node.w - (node.small ? 12 : 10), y: node.small ? 20 : 37, "text-anchor": "end" }, "");
    if (node.small) {
      group.append(parts.lag);
    } else {
      parts.letter = svg("text", { class: "letter", x: node.w - 10, y: 19 }, "");
      group.append(parts.letter);
      group.append(svg("text", { class: "figures", x: 13, y: 37 }, parts.progress, parts.low), parts.lag);
      const line = node.w - 23;
      parts.done = svg("rect", { class: "done", x: 13, y: 43, width: 0, height: 4, rx: 2 });
      parts.kept = svg("rect", { class: "kept", x: 13, y: 43, width: 0, height: 4, rx: 2 });
      group.append(svg("g", { class: "gauge" }, svg("rect", { class: "track", x: 13, y: 43, width: line, height: 4, rx: 2 }), parts.done, parts.kept));
      parts.workers = svg("path", { class: "workers" });
      group.append(svg("path", { class: "floor", d: `M13 65.5h${line}` }), parts.workers);
    }
    parts.verdict = svg("g", { class: "verdict", transform: `translate(${node.w / 2} ${node.h - 3})` }, svg("rect", { x: -58, y: 0, width: 116, height: 19, rx: 9 }), svg("text", { x: 0, y: 13.5, "text-anchor": "middle" }));
    group.append(parts.verdict);
    group.addEventListener("click", () => this.events.choose(index));
    for (const name of ["pointerenter", "focus"]) group.addEventListener(name, () => this.tell(index));
    for (const name of ["pointerleave", "blur"]) group.addEventListener(name, () => (parts.told = false));
    group.addEventListener("dblclick", () => this.events.open(index));
    this.parts.push(parts);
    this.name(index);
    return group;
  }

  /**
   * Rows that differ, by node.
   * @param {{[node: number]: Row}} rows
   * @param {number | null} newest
   */
  update(rows, newest) {
    const shifted = newest !== this.newest;
    this.newest = newest;
    for (const [index, row] of Object.entries(rows)) this.rows[Number(index)] = row;
    for (const index of Object.keys(rows)) this.late.add(Number(index));
    this.shifted = this.shifted || shifted;
    const wait = this.touched + Math.min(SLOW, EACH * this.rows.length) - performance.now();
    if (wait <= 0) this.catchUp();
    else if (!this.timer) this.timer = setTimeout(() => this.catchUp(), wait + SLACK);
  }

  /** Show the rows that have come. */
  catchUp() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.touched = performance.now();
    const { newest, shifted } = this;
    const lows = this.rows.flatMap((row) => (row && row[2] >= 0 ? [row[2]] : []));
    const all = this.rows.flatMap((row) => (row && row[0] >= 0 ? [row[0]] : []));
    const top = Math.max(newest ?? 0, ...all, ...lows, 1);
    const least = Math.min(...lows, top);
    const scale = { top, from: least - Math.max(1, top - least) * 0.18 };
    const moved = shifted || scale.from !== this.scale.from || scale.top !== this.scale.top;
    this.scale = scale;
    const touched = moved ? this.rows.keys() : this.late;
    for (const index of touched) this.touch(index);
    this.late.clear();
    this.shifted = false;
  }

  touch(index) {
    const node = this.page.nodes[index];
    const parts = this.parts[index];
    const row = this.rows[index];
    if (!row) return;
    const [progress, inner, low, , , , , , , , , , , , bars] = row;
    const behind = lag(progress, this.newest);
    const size = FIGURES * this.k;
    const room = this.far ? (LINES * this.k > this.height(node) + 0.1 ? 0 : node.w - 13) : node.w - 23;
    // Of digits each is as wide as any other.
    const [first, kept, end] = node.small ? ["", "", ""] : figures(row, behind, room, (text, at) => wide(text.replace(/[0-9]/g, "0"), size, at === 2 ? 700 : 400));
    if (node.small) this.beside(index, progress < -1 ? "?" : progress < 0 ? "✓ end" : epoch(progress, inner));
    else set(parts.lag, end);
    if (parts.far !== behind > 8) parts.group.classList.toggle("behind-others", (parts.far = behind > 8));
    if (parts.told) this.tell(index);
    if (node.small) return;
    set(parts.progress, first);
    set(parts.low, kept);
    const line = node.w - 23;
    const { from, top } = this.scale;
    const at = (value) => (value < 0 ? line : Math.max(0, Math.min(line, ((value - from) / (top - from)) * line)));
    width(parts.done, at(progress));
    width(parts.kept, Math.min(at(low), at(progress)));
    if (bars !== parts.bars) {
      parts.bars = bars;
      const step = line / bars.length;
      let path = "";
      for (let w = 0; w < bars.length; w += 1) {
        const height = (ALPHABET.indexOf(bars[w]) / 35) * 13;
        if (height) path += `M${(13 + (w + 0.5) * step).toFixed(1)} 65v${-height.toFixed(1)}`;
      }
      parts.workers.setAttribute("d", path);
      parts.workers.style.strokeWidth = Math.max(1.4, Math.min(9, step * 0.62)).toFixed(1);
    }
  }

  /** Say of a node what can be said: only of one that somebody points at, or has come to by keys. */
  tell(index) {
    const node = this.page.nodes[index];
    const parts = this.parts[index];
    const row = this.rows[index];
    parts.told = true;
    if (!row) return;
    const [progress, inner, low, lowInner, taken, sent, busy, pending, held, queued, , size, logged] = row;
    const words = [`${node.name} (${node.kind}, ${node.policy}${node.region ? `, region ${node.region}` : ""})`, `progress frontier: ${progress === -1 ? "at its end" : progress < 0 ? "unknown" : `epoch ${epoch(progress, inner)}`}`, `rollback frontier: ${low < 0 ? "everything is kept" : `epoch ${epoch(low, lowInner)}`}`, `${count(taken)} records/s in, ${count(sent)} out`, busy === null ? "" : `busy ${Math.round(busy * 100)} % of a processor`, `${pending === null ? "–" : some(pending, "notification")} pending, ${count(held)} capabilities, ${count(queued)} batches queued`, `state ${bytes(size)}, logged ${bytes(logged)}`];
    const unsafe = parts.group.getAttribute("data-unsafe");
    set(parts.title, [...words, ...(unsafe ? [unsafe] : [])].filter(Boolean).join("\n"));
    parts.group.setAttribute("aria-label", words.slice(0, 3).join(", "));
  }

  /** The node in which the job is stuck, or has failed; null for none. */
  mark_verdict(index, verdict) {
    this.parts.forEach(({ group }, at) => {
      group.classList.toggle("stuck", at === index && verdict.state === "stuck");
      group.classList.toggle("broken", at === index && verdict.state === "failed");
    });
  }

  /** Which node is chosen; which region stands out, if any. */
  select(index) {
    this.chosen = index;
    this.mark();
  }

  only(region) {
    this.region = region;
    this.mark();
  }

  mark() {
    this.parts.forEach(({ group }, index) => {
      const node = this.page.nodes[index];
      group.classList.toggle("chosen", index === this.chosen);
      group.classList.toggle("dim", Boolean(this.region) && this.region !== node.region && this.region !== node.policy);
      group.setAttribute("tabindex", index === (this.chosen ?? 0) ? 0 : -1);
    });
    this.page.edges.forEach((edge, index) => {
      this.edges[index].classList.toggle("lit", this.chosen !== null && (edge.source === this.chosen || edge.target === this.chosen));
      this.edges[index].classList.toggle("dim", Boolean(this.region));
    });
  }

  /**
   * How much of each node is unsafe, from 0 to 1, and the edges of a chain that binds; null: neither is shown.
   * @param {{heat: number[], words: string[], path: Set<number>, nodes: Set<number>} | null} shown
   */
  expose(shown) {
    this.stage.classList.toggle("exposed", Boolean(shown));
    this.parts.forEach(({ group }, index) => {
      group.style.setProperty("--heat", `${Math.round((shown?.heat[index] ?? 0) * 100)}%`);
      group.classList.toggle("binds", Boolean(shown?.nodes.has(index)));
      if (shown) group.setAttribute("data-unsafe", shown.words[index]);
      else group.removeAttribute("data-unsafe");
    });
    this.page.edges.forEach((edge, index) => this.edges[index].classList.toggle("binds", Boolean(shown && edge.edges.some((one) => shown.path.has(one)))));
  }

  /** The next node in the direction (dx, dy), seen from the chosen one. */
  toward(dx, dy) {
    if (this.chosen === null) return 0;
    const middle = (node) => [node.x + node.w / 2, node.y + node.h / 2];
    const [x, y] = middle(this.page.nodes[this.chosen]);
    let best = this.chosen;
    let least = Infinity;
    this.page.nodes.forEach((node, index) => {
      const [nx, ny] = middle(node);
      const along = (nx - x) * dx + (ny - y) * dy;
      const aside = Math.abs((nx - x) * dy) + Math.abs((ny - y) * dx);
      if (index !== this.chosen && along > 4 && along + 2 * aside < least) {
        least = along + 2 * aside;
        best = index;
      }
    });
    return best;
  }

  /**
   * Edges that stand out, by their number in the job.
   * @param {Set<number>} edges
   */
  light(edges) {
    this.page.edges.forEach((edge, index) => this.edges[index].classList.toggle("resent", edge.edges.some((one) => edges.has(one))));
  }

  /** A verdict {text, back, keeps, failed} for each node, or null for none: of what would be, or of a rollback that was. */
  verdicts(list) {
    this.stage.classList.toggle("asking", Boolean(list));
    this.parts.forEach(({ group, verdict }, index) => {
      const found = list?.[index];
      for (const name of ["back", "keeps", "failed"]) group.classList.toggle(name, Boolean(found?.[name]));
      verdict.style.display = list && !found?.text ? "none" : "";
      set(verdict.querySelector("text"), found?.text ?? "");
    });
  }
}

function width(element, value) {
  const text = value.toFixed(1);
  if (element.getAttribute("width") !== text) element.setAttribute("width", text);
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Arrow heads. */
export function markers() {
  return ["", "-logged"].map((kind) =>
    svg("marker", { id: `arrow${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 .8 7.4 4 0 7.2z", style: `fill: var(--${kind ? "batch" : "edge"})` })),
  );
}
