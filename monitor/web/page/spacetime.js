// The space-time view: epochs across, operators down; frontiers as contours, checkpoints as marks; a rollback step by step.

import { automatic, columns, complete, edge, held, ITERATIONS, place, runs } from "./cells.js";
import { band, checkpoint, Colours, contour, CONTOURS, hatched, words } from "./ink.js";
import { ask } from "./live.js";
import { each, STEPS } from "./rollback.js";
import { choose, folds, state } from "./state.js";
import { bound, html, less, policy, some, whole, wordsOf } from "./words.js";

const EVERY_MS = 1000;
const TABLE_MS = 3000;
const SUPPOSED_MS = 3000;
const MOVE_MS = 700;
const NAMES = 196;
const HEAD = 24;
const LEAST_COLUMN = 24;
const PAD = 3;

/** @typedef {{from: Bound, to: Bound | null, dead: boolean}} Undone */
/** @typedef {{row: TimesRow, y: number, high: number, seen: string}} Line */

const GLOSSARY = [
  ["complete", "Complete", "No message of these times can reach the operator any more: they are before its progress frontier (▸ thin line)."],
  ["restorable", "Kept by a restart", "What would be restored if all processes died now: before the rollback frontier (↺ dashed line). With What if… it is that of the failure that is marked."],
  ["safe", "Safe", "No failure will ever take it back: before the low-watermark W (thick line)."],
  ["kept", "◆ checkpoint", "It is durable, and the operator can be restored to it: it is in F*(p)."],
  ["cut", "◇ cut", "It was ordered, and is not durable yet."],
  ["gone", "○ collected", "It is below W: nothing needs it any more."],
];

const COLUMNS = ["operator", "workers", "complete before", "a restart keeps all before", "safe before", "checkpoints", "under way", "collected"];
const REPLAYED = ["operator", "workers", "was at", "goes back to", "step"];

export class SpaceTime {
  /**
   * @param {Element} root
   * @param {Job} job
   * @param {import("./whatif.js").WhatIf} whatif
   * @param {import("./rollback.js").Rollbacks} rollbacks
   * @param {() => Picture} picture
   */
  constructor(root, job, whatif, rollbacks, picture) {
    this.root = root;
    this.job = job;
    this.whatif = whatif;
    this.rollbacks = rollbacks;
    this.picture = picture;
    this.colours = new Colours();
    /** @type {SpaceTimes | null} */
    this.times = null;
    /** @type {Line[]} */
    this.lines = [];
    /** @type {import("./cells.js").Cell[]} */
    this.cells = [];
    this.window = { from: 0, span: 1 };
    this.shape = "";
    this.top = 0;
    this.cursor = { line: 0, lane: 0, cell: 0 };
    this.step = -1;
    this.moved = 1;
    this.began = 0;
    this.tabled = 0;
    this.busy = false;
    this.supposedAt = -SUPPOSED_MS;
    const button = (text, title, act) => html("button", { title, onclick: act }, text);
    this.canvas = html("canvas", { tabindex: 0, role: "application", "aria-label": "Epochs across, operators down. Arrow keys go from cell to cell, Enter asks why, page keys scroll, I unfolds iterations. The same is in the table that follows." });
    this.said = html("p", { class: "said", role: "status" }, "");
    this.follow = button("Follow", "Follow the frontiers", () => choose({ epochs: null, unfold: null }));
    this.inner = button("Iterations", "Unfold the epoch that loops are in into its iterations (i)", () => this.unfold(state.unfold === null ? "auto" : null));
    this.shown = button("Table", "The same as a table", () => {
      this.table.classList.toggle("unseen");
      this.shown.setAttribute("aria-pressed", String(!this.table.classList.contains("unseen")));
      this.tell(true);
    });
    this.head = html("tr", {});
    this.body = html("tbody", {});
    this.table = html("div", { class: "times unseen" }, html("table", {}, html("caption", {}, "Frontiers and checkpoints of the operators in view"), html("thead", {}, this.head), this.body));
    const key = GLOSSARY.map(([name, term, meaning]) => html("div", {}, html("dt", {}, html("span", { class: `mark ${name}` }), term), html("dd", {}, meaning)));
    const bar = html("div", { class: "bar" }, button("◀", "Earlier epochs", () => this.shift(-1)), button("▶", "Later epochs", () => this.shift(1)), this.follow, this.inner, this.shown, this.said);
    root.append(bar, this.canvas, this.table, html("details", { class: "glossary" }, html("summary", {}, "Legend"), html("dl", {}, key)));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => this.draw(true)).observe(this.canvas);
    setInterval(() => this.ask(), EVERY_MS);
  }

  get on() {
    return state.view === "spacetime";
  }

  /** Operators whose whole frontiers are needed: those in loops, while iterations are shown. */
  get closely() {
    if (!this.on || state.unfold === null) return [];
    return this.job.operators.flatMap((operator, at) => (operator.depth > 1 ? [at] : [])).slice(0, 15);
  }

  /** Ask for the newest, as long as somebody looks. */
  async ask() {
    if (!this.on || document.hidden || this.busy) return;
    const supposed = this.whatif.on && this.whatif.failed.length > 0;
    if (supposed && performance.now() - this.supposedAt < SUPPOSED_MS) return;
    this.busy = true;
    try {
      const times = await ask(`api/spacetime?${folds()}`);
      if (supposed) {
        this.supposedAt = performance.now();
        await this.whatif.refresh(); // after the times: an answer that is older than W could be behind it
      }
      this.times = times;
      this.draw();
    } catch (problem) {
      this.say(wordsOf(problem));
    }
    this.busy = false;
  }

  /** What is chosen has changed, or a step of a rollback. */
  changed() {
    /** @type {any} */ (this.root).hidden = !this.on;
    if (!this.on) return;
    this.follow.setAttribute("aria-pressed", String(state.epochs === null));
    this.inner.setAttribute("aria-pressed", String(state.unfold !== null));
    const step = this.rollbacks.card && !this.whatif.on ? this.rollbacks.step : -1;
    const stepped = step !== this.step;
    if (stepped) {
      this.step = step;
      this.began = performance.now();
      this.moved = step < 0 || this.rollbacks.calm.matches ? 1 : 0;
      if (this.moved < 1) requestAnimationFrame(() => this.move());
    }
    if (this.times) this.draw(true);
    else this.ask();
    if (stepped) this.tell(true);
  }

  /** The next picture of a step that is played. */
  move() {
    this.moved = Math.min(1, (performance.now() - this.began) / MOVE_MS);
    this.draw(true);
    if (this.on && this.moved < 1) requestAnimationFrame(() => this.move());
  }

  /** @param {string | null} epoch */
  unfold(epoch) {
    choose({ unfold: epoch });
  }

  shift(pages) {
    const step = Math.max(1, Math.floor(this.cells.length / 2)) * this.window.span;
    choose({ epochs: String(Math.max(0, this.window.from + pages * step)) });
  }

  // ------------------------------------------------------------------------------------------ what is shown

  /**
   * What each lane of a line lost in the rollback whose card is open.
   * @returns {Map<number, (Undone | null)[]> | null}
   */
  undone() {
    const card = this.step >= 0 ? this.rollbacks.card : null;
    if (!card || !this.times) return null;
    const { lanes } = this.times;
    const { of } = this.picture();
    /** @type {Map<number, (Undone | null)[]>} */
    const found = new Map();
    for (const { operator, worker, from, to } of each(card)) {
      const node = of[operator];
      const row = found.get(node) ?? lanes.map(() => null);
      found.set(node, row);
      const lane = lanes.findIndex(([first, last]) => first <= worker && worker <= last);
      const before = row[lane];
      const dead = card.failed.includes(worker);
      if (!before) row[lane] = { from, to, dead };
      else {
        if (less(from, before.from)) before.from = from;
        if (to !== null && (before.to === null || less(to, before.to))) before.to = to;
        before.dead ||= dead;
      }
    }
    return found;
  }

  /**
   * What would be restored in each lane of a line after the failure that is marked; null where nothing is.
   * @returns {Map<number, (Bound | null | undefined)[]> | null}
   */
  supposed() {
    const answer = this.whatif.on ? this.whatif.answer : null;
    if (!answer || !this.times) return null;
    const { lanes } = this.times;
    const { of } = this.picture();
    /** @type {Map<number, (Bound | null | undefined)[]>} */
    const found = new Map();
    for (const { operator, worker, to } of answer.processors) {
      const row = found.get(of[operator]) ?? lanes.map(() => undefined);
      found.set(of[operator], row);
      const lane = lanes.findIndex(([first, last]) => first <= worker && worker <= last);
      const before = row[lane];
      if (before === undefined || before === null || (to !== null && less(to, before))) row[lane] = to ?? before ?? null;
    }
    return found;
  }

  /**
   * @param {Map<number, (Undone | null)[]> | null} undone
   * @param {Map<number, (Bound | null | undefined)[]> | null} supposed
   */
  columnsOf(undone, supposed, count) {
    const { cases, newest } = this.times ?? { cases: [], newest: null };
    /** @type {Bound[]} */
    const places = undone ? [...undone.values()].flat().flatMap((one) => (one ? [one.from, one.to ?? one.from] : [])) : [...cases.flatMap((one) => [one.progress ?? one.low, one.low, ...(one.frontier ?? [])]), ...[...(supposed?.values() ?? [])].flat().filter((limit) => limit)];
    const epochs = places.filter((limit) => limit[0] !== -1).map((limit) => limit[0]);
    if (!undone && newest !== null) epochs.push(newest);
    for (const one of undone ? [] : cases) if (one.progress?.[0] === -1) epochs.push(...(one.kept ?? []).slice(-1).map((limit) => limit[0]));
    const inside = places.filter((limit) => limit.length > 1 && limit[1] !== 0);
    const unfold = state.unfold === null ? null : state.unfold === "auto" ? Math.min(...inside.map((limit) => limit[0]), Math.max(0, ...epochs)) : Number(state.unfold);
    const want = automatic(epochs, count);
    if (state.epochs !== null) this.window = { from: Number(state.epochs), span: unfold === null ? want.span : 1 };
    else if (unfold !== null) this.window = { from: Math.max(0, unfold - 3), span: 1 };
    else {
      const { from, span } = this.window;
      const end = from + count * span;
      const stays = span === want.span && from <= want.from && want.from - from < (count / 4) * span && Math.max(0, ...epochs) + span < end;
      if (!stays) this.window = want;
    }
    const asked = [...(supposed?.values() ?? [])].flat().flatMap((limit) => (limit && limit.length > 1 ? [limit] : []));
    const reached = (asked.length ? asked : inside).filter((limit) => limit[0] === unfold).map((limit) => limit[1]);
    const last = Math.max(0, ...reached) + 3;
    const begin = last - Math.min(last, ...reached) < ITERATIONS ? Math.min(last, ...reached) - 3 : last - ITERATIONS;
    // Few epochs have wide columns; by fours, so that a new epoch seldom moves all.
    const most = Math.floor((Math.max(0, ...epochs) - this.window.from) / this.window.span) + 2 + (unfold === null ? 0 : ITERATIONS);
    const many = state.epochs === null ? Math.min(count, Math.max(8, Math.ceil(most / 4) * 4)) : count;
    return columns(this.window.from, many, this.window.span, unfold, last < ITERATIONS ? 0 : Math.max(0, begin));
  }

  // ------------------------------------------------------------------------------------------ painting

  /** Paint what differs; everything if the shape of the picture is another one. */
  draw(all = false) {
    const times = this.times;
    const wide = this.canvas.clientWidth;
    const high = this.canvas.clientHeight;
    if (!this.on || !times || !wide || !high) return;
    const undone = this.undone();
    const supposed = this.supposed();
    const count = Math.max(6, Math.floor((wide - NAMES) / LEAST_COLUMN));
    this.cells = this.columnsOf(undone, supposed, count);
    const scale = devicePixelRatio;
    if (this.canvas.width !== Math.round(wide * scale) || this.canvas.height !== Math.round(high * scale)) {
      this.canvas.width = Math.round(wide * scale);
      this.canvas.height = Math.round(high * scale);
    }
    const lane = Math.max(4, Math.min(16, 28 / times.lanes.length));
    let y = HEAD;
    const before = this.lines;
    this.lines = times.rows.map((row) => {
      const line = { row, y, high: row[0] < 0 ? 20 : Math.max(22, lane * times.lanes.length + 2 * PAD), seen: "" };
      y += line.high;
      return line;
    });
    this.top = Math.max(0, Math.min(this.top, y - high + 8));
    const shape = JSON.stringify([wide, high, scale, this.cells, this.top, times.rows.map((row) => row[1])]);
    const anew = this.colours.read() || shape !== this.shape || all;
    this.shape = shape;
    const pen = this.canvas.getContext("2d");
    if (!pen) return;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const cases = times.cases.map((one) => JSON.stringify(one));
    if (anew) {
      pen.fillStyle = this.colours.of.surface;
      pen.fillRect(0, 0, wide, high);
    }
    const known = new Map();
    this.lines.forEach((line, at) => {
      line.seen = `${line.row[5].map((one) => cases[one]).join()}${state.sel === line.row[1]}${this.cursor.line === at ? JSON.stringify(this.cursor) : ""}`;
      if (line.y - this.top + line.high < HEAD || line.y - this.top > high) return;
      if (anew || before[at]?.seen !== line.seen) this.line(pen, line, at, wide, lane, known, undone?.get(line.row[0]) ?? null, supposed?.get(line.row[0]) ?? null);
    });
    if (anew) this.heads(pen, wide);
    this.tell();
  }

  /** The number of each column. */
  heads(pen, wide) {
    pen.fillStyle = this.colours.of.surface;
    pen.fillRect(0, 0, wide, HEAD - 1);
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillStyle = this.colours.of.soft;
    pen.fillText(this.window.span > 1 ? `epoch, ${this.window.span} a column` : "epoch", 10, 15);
    let free = NAMES;
    this.cells.forEach((cell, at) => {
      const x = this.x(at, wide);
      const text = cell.inner === null ? whole(cell.epoch) : `${at && this.cells[at - 1].inner !== null ? "" : `${cell.epoch}:`}${cell.inner}${cell.rest ? "+" : ""}`;
      if (x < free) return;
      pen.fillStyle = cell.inner === null ? this.colours.of.text : this.colours.of.accent;
      pen.fillText(text, x + 2, 15);
      free = x + pen.measureText(text).width + 8;
    });
  }

  x(at, wide) {
    return NAMES + (at * (wide - NAMES - 6)) / this.cells.length;
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Line} line
   * @param {(Undone | null)[] | null} undone
   * @param {(Bound | null | undefined)[] | null} supposed
   */
  line(pen, line, number, wide, lane, known, undone, supposed) {
    const [node, key, label, kind, depth, lanes] = line.row;
    const y = line.y - this.top;
    const { of } = this.colours;
    pen.save();
    pen.beginPath();
    pen.rect(0, Math.max(HEAD, y), wide, line.high);
    pen.clip();
    band(pen, state.sel === key ? of.faint : of.surface, 0, wide, y, line.high);
    pen.textAlign = "left";
    if (node < 0) {
      pen.font = "600 11px system-ui, sans-serif";
      pen.fillStyle = of.soft;
      words(pen, `− ${kind === "scope" ? "scope " : kind === "region" ? "region " : ""}${label}`, 8 + depth * 10, y + 14, wide - NAMES);
      band(pen, of.line, NAMES, wide, y + line.high - 1, 1);
      pen.restore();
      return;
    }
    const operator = this.picture().nodes[node];
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = of.text;
    const letter = operator ? policy(operator.policy).letter : "";
    words(pen, operator && operator.operator === null ? `+ ${label} (${operator.count})` : label, 8 + depth * 10, y + line.high / 2 + 4, NAMES - 30 - depth * 10);
    pen.fillStyle = of.soft;
    pen.font = "700 11px system-ui, sans-serif";
    pen.fillText(letter, NAMES - 18, y + line.high / 2 + 4);
    const height = Math.min(lane, (line.high - 2 * PAD) / lanes.length);
    lanes.forEach((one, at) => {
      const top = y + PAD + at * height + (line.high - 2 * PAD - height * lanes.length) / 2;
      if (undone) this.replayed(pen, undone[at], top, height - 1, wide);
      else this.lane(pen, this.shares(one, known, supposed?.[at]), top, height - 1, wide);
    });
    if (this.cursor.line === number && document.activeElement === this.canvas) {
      const from = this.x(this.cursor.cell, wide);
      pen.strokeStyle = of.text;
      pen.lineWidth = 1.5;
      pen.strokeRect(from + 0.5, y + PAD + this.cursor.lane * height - 0.5, this.x(this.cursor.cell + 1, wide) - from - 1, height + 1);
    }
    pen.restore();
  }

  /**
   * Shares of the cells, and places of checkpoints, of a case.
   * @param {number} index
   * @param {Map<number, any>} known
   * @param {Bound | null | undefined} supposed
   */
  shares(index, known, supposed) {
    const lane = /** @type {SpaceTimes} */ (this.times).cases[index];
    let found = known.get(index);
    if (!found) {
      const of = (/** @type {Bound | null | undefined} */ limit) => (limit ? this.cells.map((cell) => held(limit, cell)) : null);
      const at = (/** @type {Bound[] | undefined} */ list) => (list ?? []).map((one) => place(one, this.cells)).filter((one) => one !== null);
      found = { progress: lane.progress ? this.cells.map((cell) => complete(lane, cell)) : null, restored: of(lane.restored), low: of(lane.low), kept: at(lane.kept), gone: at(lane.gone), cut: at(lane.cut ? [lane.cut] : []) };
      known.set(index, found);
    }
    if (supposed === undefined) return found;
    return { ...found, restored: supposed === null ? found.progress : this.cells.map((cell) => held(supposed, cell)), keeps: supposed === null, supposed: true };
  }

  lane(pen, shares, y, high, wide) {
    const { of } = this.colours;
    band(pen, of.faint, NAMES, this.x(this.cells.length, wide), y, high);
    const filled = (values, colour, top, tall) => {
      for (const [from, to, share] of runs(values ?? [])) {
        const x = this.x(from, wide);
        band(pen, colour, x, share === 1 ? this.x(to, wide) : x + (this.x(to, wide) - x) * share, top, tall);
      }
    };
    filled(shares.progress, of.done, y, high);
    filled(shares.restored, of.restorable, y, high);
    filled(shares.low, of.safe, y, high);
    for (const name of ["low", "restored", "progress"]) {
      if (!shares[name] || (name === "restored" && shares.keeps)) continue;
      const at = edge(shares[name]);
      const kind = CONTOURS[name];
      const shown = at > 0 || (name === "restored" && this.window.from === 0 && shares.supposed);
      if (shown && at < this.cells.length) contour(pen, kind, of[kind.colour], Math.max(NAMES + 1, this.x(at, wide)), y - 0.5, high + 1);
    }
    const size = Math.min(4, high / 2);
    for (const kind of /** @type {("gone" | "kept" | "cut")[]} */ (["gone", "kept", "cut"])) for (const at of shares[kind]) checkpoint(pen, kind, this.colours, this.x(at, wide) + size, y + high / 2, size);
  }

  /**
   * A lane at a step of a rollback.
   * @param {Undone | null} undone
   */
  replayed(pen, undone, y, high, wide) {
    const { of } = this.colours;
    band(pen, of.faint, NAMES, this.x(this.cells.length, wide), y, high);
    if (!undone) return;
    const part = this.moved * this.moved * (3 - 2 * this.moved);
    const at = (/** @type {Bound} */ limit) => this.x(edge(this.cells.map((cell) => held(limit, cell))), wide);
    const was = at(undone.from);
    const goes = undone.to === null ? was : at(undone.to);
    const step = STEPS[this.step];
    const reached = step === "restore" ? was + (goes - was) * part : step === "catch up" ? goes + (was - goes) * part : was;
    band(pen, of.done, NAMES, reached, y, high);
    if (step === "restore" || step === "catch up") band(pen, of.restorable, NAMES, Math.min(goes, reached), y, high);
    if (undone.dead && (step === "failure" || step === "drain")) hatched(pen, of.danger, NAMES, was, y, high);
    if (step === "restore") hatched(pen, of.danger, reached, was, y, high);
    contour(pen, CONTOURS.progress, of.accent, reached, y - 0.5, high + 1);
    if (step !== "failure" && step !== "drain" && undone.to !== null) contour(pen, CONTOURS.restored, of.danger, step === "decide" ? was + (goes - was) * part : goes, y - 0.5, high + 1);
  }

  // ------------------------------------------------------------------------------------------ words

  /** The table: the same as the picture, of the rows in view. */
  tell(now = false) {
    const seen = !this.table.classList.contains("unseen");
    if (!now && performance.now() - this.tabled < (seen ? EVERY_MS - 100 : TABLE_MS)) return;
    this.tabled = performance.now();
    const times = this.times;
    if (!times) return;
    const undone = this.undone();
    const supposed = this.supposed();
    const high = this.canvas.clientHeight;
    const workers = (/** @type {number} */ at) => (times.lanes[at][0] === times.lanes[at][1] ? `${times.lanes[at][0]}` : `${times.lanes[at][0]} to ${times.lanes[at][1]}`);
    const list = (/** @type {Bound[] | undefined} */ all) => (all ?? []).map(bound).join(", ");
    const rows = [];
    for (const line of this.lines) {
      if (line.row[0] < 0 || line.y - this.top + line.high < HEAD || line.y - this.top > high) continue;
      line.row[5].forEach((index, at) => {
        const lost = undone?.get(line.row[0])?.[at];
        const one = times.cases[index];
        const goes = supposed?.get(line.row[0])?.[at];
        const restored = goes === null ? "keeps all" : bound(goes ?? one.restored);
        if (undone) rows.push([line.row[2], workers(at), lost ? bound(lost.from) : "–", lost?.to ? bound(lost.to) : "keeps all", `${lost?.dead ? "failed, " : ""}${STEPS[this.step]}`]);
        else rows.push([line.row[2], workers(at), bound(one.progress), restored, bound(one.low), list(one.kept), bound(one.cut), list(one.gone)]);
      });
    }
    fill(this.head, "th", undone ? REPLAYED : COLUMNS);
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((texts, at) => fill(this.body.rows[at] ?? this.body.insertRow(), "td", texts));
  }

  /** @param {string} text */
  say(text) {
    if (this.said.textContent !== text) this.said.textContent = text;
  }

  /** What the cell at the cursor is. */
  describe() {
    const line = this.lines[this.cursor.line];
    const times = this.times;
    if (!line || !times) return;
    if (line.row[0] < 0) {
      this.say(`${line.row[3]} ${line.row[2]}: Enter folds it`);
      return;
    }
    const cell = this.cells[this.cursor.cell];
    const one = times.cases[line.row[5][this.cursor.lane]];
    const [first, last] = times.lanes[this.cursor.lane];
    const goes = this.supposed()?.get(line.row[0])?.[this.cursor.lane];
    const restored = goes === undefined ? one.restored : goes;
    const shares = [complete(one, cell), restored ? held(restored, cell) : complete(one, cell), held(one.low, cell)];
    const named = ["complete", this.whatif.on ? "kept after that failure" : "kept by a restart", "safe"];
    const said = named.map((word, at) => (shares[at] === 1 ? word : shares[at] ? `${word} in part` : `not ${word}`));
    const when = cell.inner === null ? (cell.span > 1 ? `epochs ${cell.epoch} to ${cell.epoch + cell.span - 1}` : `epoch ${cell.epoch}`) : `epoch ${cell.epoch}, iteration ${cell.inner}${cell.rest ? " and later" : ""}`;
    this.say(`${line.row[2]} on worker ${first === last ? first : `${first} to ${last}`}, ${when}: ${said.join(", ")}; ${some((one.kept ?? []).length, "checkpoint")} kept`);
  }

  // ------------------------------------------------------------------------------------------ what the reader does

  /** The cell at a place of the canvas; null beside them. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top + this.top;
    const cell = Math.floor(((x - NAMES) / (this.canvas.clientWidth - NAMES - 6)) * this.cells.length);
    const line = event.clientY - box.top < HEAD ? -1 : this.lines.findIndex((one) => one.y <= y && y < one.y + one.high);
    const found = this.lines[line];
    const lanes = found?.row[5].length || 1;
    const lane = found ? Math.max(0, Math.min(lanes - 1, Math.floor(((y - found.y - PAD) / (found.high - 2 * PAD)) * lanes))) : 0;
    return { line, lane, cell: x < NAMES ? -1 : Math.min(cell, this.cells.length - 1) };
  }

  point(event) {
    const found = this.at(event);
    if (found.line < 0 || found.cell < 0 || JSON.stringify(found) === JSON.stringify(this.cursor)) return;
    this.cursor = found;
    this.describe();
  }

  click(event) {
    const found = this.at(event);
    if (found.line < 0) {
      const cell = this.cells[found.cell];
      if (event.clientY - this.canvas.getBoundingClientRect().top < HEAD && cell) this.unfold(cell.inner === null ? String(cell.epoch) : null);
      return;
    }
    this.cursor = { ...found, cell: Math.max(0, found.cell) };
    this.open(found.cell < 0);
  }

  /** Ask why the cell at the cursor is as it is; or open, or fold, what its row stands for. */
  open(name = false) {
    const line = this.lines[this.cursor.line];
    if (!line || !this.times) return;
    const [node, key] = line.row;
    const operator = node < 0 ? null : this.picture().nodes[node]?.operator ?? null;
    if (node < 0) choose({ close: [...new Set([...state.close, key])], open: state.open.filter((other) => other !== key && !other.startsWith(`${key}/`) && !other.startsWith(`${key}:`)) });
    else if (operator === null) choose(name ? { open: [...new Set([...state.open, key])], close: state.close.filter((other) => other !== key) } : { sel: key, worker: null, card: null });
    else if (this.whatif.on) this.whatif.toggle(`operator:${key}`);
    else choose({ sel: key, worker: name ? null : String(this.times.lanes[this.cursor.lane][0]), epoch: name ? null : String(this.cells[this.cursor.cell].epoch), card: null });
    this.describe();
    this.draw(true);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { cursor } = this;
    const lanes = this.lines[cursor.line]?.row[5].length ?? 1;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const cell = cursor.cell + (event.key === "ArrowLeft" ? -1 : 1);
      if (cell < 0 || cell >= this.cells.length) this.shift(cell < 0 ? -1 : 1);
      else cursor.cell = cell;
    } else if (event.key === "ArrowDown") {
      if (cursor.lane + 1 < lanes) cursor.lane += 1;
      else if (cursor.line + 1 < this.lines.length) Object.assign(cursor, { line: cursor.line + 1, lane: 0 });
    } else if (event.key === "ArrowUp") {
      if (cursor.lane) cursor.lane -= 1;
      else if (cursor.line) Object.assign(cursor, { line: cursor.line - 1, lane: Math.max(0, this.lines[cursor.line - 1].row[5].length - 1) });
    } else if (event.key === "PageDown" || event.key === "PageUp") this.top += (event.key === "PageDown" ? 1 : -1) * (this.canvas.clientHeight - 2 * HEAD);
    else if (event.key === "Enter") this.open();
    else if (event.key === "i") this.unfold(state.unfold === null ? "auto" : null);
    else return;
    event.preventDefault();
    event.stopPropagation();
    const line = this.lines[cursor.line];
    if (line && event.key.startsWith("Arrow")) this.top = Math.max(Math.min(this.top, line.y - HEAD), line.y + line.high - this.canvas.clientHeight + 4);
    this.describe();
    this.draw(true);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const before = this.top;
    this.top += event.deltaMode ? event.deltaY * 30 : event.deltaY;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.shift(Math.sign(event.deltaX) / 8);
    if (this.top !== before) this.draw(true);
  }
}

/**
 * Give a row of a table these texts, and touch only cells that differ.
 * @param {HTMLTableRowElement} row
 * @param {"td" | "th"} kind
 * @param {string[]} texts
 */
function fill(row, kind, texts) {
  while (row.cells.length > texts.length) row.deleteCell(-1);
  texts.forEach((text, at) => {
    const cell = row.cells[at] ?? row.appendChild(document.createElement(kind));
    if (cell.textContent !== text) cell.textContent = text;
  });
}
