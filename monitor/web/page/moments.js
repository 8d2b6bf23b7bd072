// Moments of the past: a scrubber over the recorded history with its marks, the moment in words, and two moments compared.

import { ask } from "./live.js";
import { describe, isBad } from "./panel.js";
import { choose, state } from "./state.js";
import { bytes, count, epochOr, html, morph, placeAt, seconds, some, svg, wordsOf } from "./words.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const PAUSE = 120;
const MOST_ROWS = 200;
const WINDOWS = { all: Infinity, "24 hours": 24 * 60 * MINUTE, "1 hour": 60 * MINUTE, "10 minutes": 10 * MINUTE };

const FORMAT = /** @type {const} */ ({ day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });

/**
 * A moment with its date and zone.
 * @param {number} at milliseconds since 1970
 */
export function dated(at) {
  return new Date(at).toLocaleString("en-GB", FORMAT);
}

/**
 * The first moment that has an event in it: times of events are rounded to milliseconds.
 * @param {number} at seconds since 1970
 */
export function just_after(at) {
  return Math.round(at * SECOND) + 1;
}

/**
 * The moment that a reader means: a time of day is the last one that is recorded. null for none.
 * @param {string} text
 * @param {number} last milliseconds since 1970
 */
export function moment_of(text, last) {
  const day = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/.exec(text.trim());
  if (day) {
    const found = new Date(last);
    found.setHours(Number(day[1]), Number(day[2]), Number(day[3] ?? 0), 0);
    if (found.getTime() > last) found.setDate(found.getDate() - 1);
    return found.getTime();
  }
  const date = /^\d{4}-\d\d-\d\d[ T]\d{1,2}:\d\d(:\d\d)?$/.test(text.trim()) ? new Date(text.trim().replace(" ", "T")).getTime() : NaN;
  return Number.isNaN(date) ? null : date;
}

export class Moments {
  /**
   * @param {HTMLElement} root
   * @param {Job} job
   * @param {() => void} changed called when what is compared, or what is known of an epoch, has changed
   */
  constructor(root, job, changed) {
    this.root = root;
    this.job = job;
    this.changed = changed;
    /** @type {Extent | null} */
    this.extent = null;
    /** @type {Moment | null} */
    this.shown = null;
    /** @type {Comparison | null} */
    this.comparison = null;
    /** @type {Course | null} */
    this.course = null;
    /** @type {string | null} */
    this.problem = null;
    this.window = "all";
    this.number = 0;
    /** @type {number | undefined} */
    this.timer = undefined;
    const range = html("input", { type: "range", id: "scrubber", step: SECOND, "aria-label": "Moment of the history", min: 0, max: 0 });
    this.range = range;
    range.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.say(Number(range.value));
      this.timer = setTimeout(() => {
        this.timer = undefined;
        choose({ at: range.value });
      }, PAUSE);
    });
    range.addEventListener("keydown", (event) => {
      const by = { PageUp: MINUTE, PageDown: -MINUTE }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      range.value = String(Number(range.value) + by);
      range.dispatchEvent(new Event("input"));
    });
    this.now = html("button", { id: "now", title: "Show the job as it is now", onclick: () => this.choose({ at: null, with: null }) }, "Live");
    this.compare = html("button", { id: "compare", title: "Keep this moment, and compare others with it", onclick: () => this.hold() }, "Compare");
    const windows = html("select", { id: "window", "aria-label": "Length of time that is shown" }, Object.keys(WINDOWS).map((name) => html("option", { value: name }, name)));
    windows.addEventListener("change", () => {
      this.window = windows.value;
      this.refresh();
    });
    const input = html("input", { type: "text", id: "go", placeholder: "15:50, or epoch 12", "aria-label": "Go to a time, or to an epoch", autocomplete: "off", spellcheck: "false" });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(input.value);
    });
    this.drawing = svg("svg", { class: "marks", preserveAspectRatio: "none", viewBox: "0 0 1000 14", "aria-hidden": "true" });
    this.words = html("p", { id: "then", role: "status" });
    const step = (title, text, by) => html("button", { title, "aria-label": title, id: by < 0 ? "before" : "after", onclick: () => this.step(by) }, text);
    this.controls = html("div", { class: "controls" }, this.now, step("To the mark before", "◂ mark", -1), step("To the next mark", "mark ▸", 1), input, windows, this.compare);
    this.track = html("div", { class: "track" }, this.drawing, range);
    this.root.replaceChildren(this.controls, this.track, this.words);
    this.say(null);
  }

  /** The moment that is shown, in milliseconds; null for now. */
  get at() {
    return state.at === null ? null : Number(state.at);
  }

  get past() {
    return state.at !== null;
  }

  get comparing() {
    return this.past && state.with !== null;
  }

  /** Ask what is recorded. */
  async refresh() {
    if (!this.job.history) {
      this.controls.hidden = this.track.hidden = true;
      this.words.textContent = "This job has no history: it has no store.";
      return;
    }
    const length = WINDOWS[this.window];
    const last = this.extent?.last ?? null;
    try {
      this.extent = await ask(last !== null && Number.isFinite(length) ? `api/history?since=${Math.max(0, Math.min(last, this.at ?? last) - length)}` : "api/history");
    } catch (problem) {
      this.problem = wordsOf(problem);
    }
    this.draw();
  }

  /** First and last moment of the scrubber. */
  bounds() {
    const { first, last } = this.extent ?? { first: null, last: null };
    if (first === null || last === null) return null;
    const length = WINDOWS[this.window];
    const middle = Math.min(last, Math.max(first, this.at ?? last));
    const until = Number.isFinite(length) ? Math.min(last, middle + length / 2) : last;
    return { from: Math.max(first, until - length), until };
  }

  draw() {
    const bounds = this.bounds();
    this.range.disabled = bounds === null;
    if (!bounds || !this.extent) {
      this.say(null);
      return;
    }
    const { from, until } = bounds;
    this.range.min = String(from);
    this.range.max = String(until);
    if (this.timer === undefined) this.range.value = String(this.at ?? until);
    const x = (at) => (1000 * (at - from)) / Math.max(1, until - from);
    const inside = (at) => at >= from && at <= until;
    const parts = (this.extent.safe ?? []).filter(inside).map((at) => svg("path", { class: "cut", d: `M${x(at).toFixed(1)} 10v4` }));
    const kinds = { failure: "bad", began: "begin", finished: "end", stopped: "end", restored: "good", resumed: "good" };
    for (const mark of this.extent.marks) {
      const at = mark.at * SECOND;
      if (!inside(at)) continue;
      const kind = mark.kind === "restored" && mark.start ? "begin" : isBad(/** @type {any} */ (mark)) ? "bad" : (kinds[mark.kind] ?? "other");
      parts.push(svg("path", { class: `mark ${kind}`, "data-kind": mark.kind, d: `M${x(at).toFixed(1)} 0v9` }, svg("title", {}, `${dated(at)}: ${describe(/** @type {any} */ (mark))}`)));
    }
    if (state.with !== null && inside(Number(state.with))) parts.push(svg("path", { class: "mark held", d: `M${x(Number(state.with)).toFixed(1)} 0v14` }));
    this.drawing.replaceChildren(...parts);
    this.say(this.at);
  }

  /**
   * The moment in words.
   * @param {number | null} at
   */
  say(at) {
    this.now.setAttribute("aria-pressed", String(!this.past));
    this.compare.setAttribute("aria-pressed", String(this.comparing));
    this.compare.textContent = this.comparing ? "Stop comparing" : "Compare";
    document.body.classList.toggle("past", this.past);
    const until = Number(this.range.value);
    this.range.setAttribute("aria-valuetext", at === null ? `now, ${until ? dated(until) : "nothing recorded"}` : dated(at));
    /** @type {(string | Node)[]} */
    const parts = [];
    if (at === null) parts.push(this.extent && this.extent.first !== null ? `Live. Recorded since ${dated(this.extent.first)}.` : "Live. Nothing is recorded yet.");
    else parts.push(html("b", {}, dated(at)), ". ");
    if (this.shown && at !== null && Math.round(this.shown.asked * SECOND) === at && !this.problem) {
      parts.push(`Recorded ${seconds(this.shown.age)} before. `);
      if (this.shown.options_age !== null && this.shown.options_age > 5) parts.push(`What could be restored did not change for ${seconds(this.shown.options_age)}. `);
      if (this.shown.holds.length) parts.push("Held by: ", ...this.shown.holds.slice(0, 3).flatMap(({ operator, name }, index) => [index ? ", " : "", html("button", { class: "jump", "data-keep": `holds ${operator}`, onclick: () => choose({ sel: name, worker: null }) }, name)]), ". ");
      if (this.shown.unknown.length) parts.push(`Not known: ${this.shown.unknown.join("; ")}. `);
    }
    if (this.comparing) parts.push(`Compared with ${dated(Number(state.with))}. `);
    if (this.problem) parts.push(html("strong", {}, `${this.problem}. `));
    for (const problem of this.extent?.problems ?? []) parts.push(html("strong", {}, `The history is damaged: ${problem}. `));
    morph(this.words, parts);
  }

  /**
   * Choose a moment, in place of one that the scrubber has just been moved to.
   * @param {Partial<typeof state>} changes
   */
  choose(changes) {
    clearTimeout(this.timer);
    this.timer = undefined;
    choose(changes);
  }

  /** Keep the moment that is shown, to compare others with it; or stop that. */
  hold() {
    if (this.comparing) {
      choose({ with: null });
      return;
    }
    const at = state.at ?? (this.extent?.last ? String(this.extent.last) : null);
    if (at !== null) this.choose({ at, with: at });
  }

  /** @param {number} by */
  step(by) {
    const first = this.extent?.first ?? 0; // a job begins before its first second is recorded
    const marks = (this.extent?.marks ?? []).map((mark) => Math.max(first, just_after(mark.at)));
    const at = this.at ?? this.extent?.last ?? 0;
    const found = by < 0 ? marks.filter((mark) => mark < at).pop() : marks.find((mark) => mark > at);
    if (found !== undefined) this.choose({ at: String(found) });
  }

  /** @param {string} text */
  async go(text) {
    this.problem = null;
    const epoch = /^\s*(?:epoch\s+)?(\d+)\s*$/i.exec(text);
    try {
      if (epoch) {
        this.course = await ask(`api/epoch/${epoch[1]}`);
        if (this.course) this.choose({ at: String(Math.round(this.course.at * SECOND)), sel: null, worker: null, card: null, ask: null });
        this.changed();
        return;
      }
      const at = moment_of(text, this.extent?.last ?? Date.now());
      if (at !== null) this.choose({ at: String(at) });
      else this.problem = "Write a time (15:50, 15:50:30, 2026-11-28 15:50) or an epoch (epoch 12)";
    } catch (problem) {
      this.problem = wordsOf(problem);
    }
    this.say(this.at);
  }

  /**
   * A moment has come, or why there is none.
   * @param {Moment | null} shown
   * @param {string | null} problem
   */
  async show(shown, problem) {
    this.shown = shown;
    this.problem = problem;
    this.root.dataset.at = state.at ?? "";
    const number = (this.number += 1);
    this.draw();
    let comparison = null;
    if (this.comparing && shown) {
      try {
        comparison = await ask(`api/compare?at=${state.with}&with=${state.at}`);
      } catch (wrong) {
        this.problem = wordsOf(wrong);
      }
    }
    if (number !== this.number) return;
    this.comparison = comparison;
    this.say(this.at);
    this.changed();
  }

  /**
   * Differences of each node of the drawing; see `Graph.verdicts`.
   * @param {Picture} page
   */
  verdicts(page) {
    const { comparison } = this;
    if (!this.comparing || !comparison) return null;
    const [progress, lag] = ["progress", "lag"].map((name) => comparison.fields.indexOf(name));
    const nodes = page.nodes.map(() => ({ least: [Infinity, Infinity], lag: [0, 0] }));
    comparison.operators.forEach((pair, operator) => {
      const node = nodes[page.of[operator]];
      pair.forEach((row, at) => {
        const reached = row[progress] ?? -2;
        node.least[at] = Math.min(node.least[at], reached === -1 ? Infinity : reached);
        node.lag[at] = Math.max(node.lag[at], row[lag] ?? 0);
      });
    });
    return nodes.map(({ least, lag: behind }) => {
      const moved = least.every(Number.isFinite) ? `▸ ${signed(least[1] - least[0])}` : least[0] === least[1] ? "▸ end" : "▸ to end";
      return { text: behind[0] === behind[1] ? moved : `${moved}, lag ${signed(behind[1] - behind[0])}`, back: behind[1] > behind[0], keeps: behind[1] < behind[0] };
    });
  }

  /** Parts for the panel of the job as a whole. */
  parts() {
    return [...this.epoch(), ...this.compared()];
  }

  epoch() {
    const { course } = this;
    if (!course || !this.past) return [];
    const when = (at, none) => (at === null ? none : dated(at * SECOND));
    const held = course.held.map(({ operator, name, seconds: long }) =>
      html("tr", {}, html("td", {}, html("button", { class: "jump", "data-keep": `held ${operator}`, onclick: () => choose({ sel: name, worker: null }) }, name)), html("td", {}, `${long} s`)),
    );
    const facts = [["read", when(course.read, "not recorded")], ["complete", when(course.complete, "not yet")], ["safe", when(course.safe, "not yet")]];
    return [
      html("div", { class: "head" }, html("h2", {}, `Epoch ${count(course.epoch)}`), html("button", { "data-keep": "close epoch", onclick: () => { this.course = null; this.changed(); } }, "Close")),
      html("dl", { class: "facts", id: "course" }, facts.flatMap(([name, text]) => [html("dt", {}, name), html("dd", {}, text)])),
      html("h3", {}, "Held open by"),
      held.length ? html("table", { class: "tight", id: "held" }, held) : html("p", { class: "soft" }, "Nothing for a second or longer."),
    ];
  }

  compared() {
    const { comparison } = this;
    if (!this.comparing || !comparison) return [];
    const [one, other] = comparison.moments;
    const totals = [
      ["newest epoch", (each) => epochOr(each.newest)],
      ["complete before", (each) => epochOr(each.open)],
      ["safe before", (each) => epochOr(each.low)],
      ["records/s", (each) => count(each.rate)],
      ["read", (each) => count(each.read)],
      ["state", (each) => bytes(each.state)],
    ].map(([name, of]) => html("tr", {}, html("td", {}, /** @type {string} */ (name)), [one, other].map((each) => html("td", {}, /** @type {(each: Totals) => string} */ (of)(each.totals)))));
    const fields = Object.fromEntries(comparison.fields.map((name, at) => [name, at]));
    const change = (pair) => Math.abs((pair[1][fields.lag] ?? 0) - (pair[0][fields.lag] ?? 0));
    const order = comparison.operators.map((pair, operator) => ({ pair, operator })).toSorted((a, b) => change(b.pair) - change(a.pair));
    const rows = order.slice(0, MOST_ROWS).map(({ pair, operator }) => {
      const { name } = this.job.operators[operator];
      return html("tr", {}, html("td", {}, html("button", { class: "jump", "data-keep": `compare ${operator}`, onclick: () => choose({ sel: name, worker: null }) }, name)), cells(pair, fields).map((text) => html("td", {}, text)));
    });
    const head = (names) => html("tr", {}, names.map((text) => html("th", {}, text)));
    return [
      html("h2", {}, "Two moments"),
      html("table", { class: "tight", id: "moments-totals" }, head(["", clockOf(one), clockOf(other)]), html("tr", {}, html("td", {}, "verdict"), [one, other].map((each) => html("td", { class: "wraps" }, each.verdict.text))), totals),
      html("h3", {}, "Workers"),
      html("table", { class: "tight" }, head(["", "presence", "epoch", "records/s"]), this.workers(one, other)),
      html("h3", {}, `Operators, greatest change of lag first${order.length > MOST_ROWS ? `; ${some(order.length - MOST_ROWS, "more operator")}` : ""}`),
      html("table", { class: "tight", id: "moments-operators" }, head(["", "frontier", "lag", "unsafe", "records/s"]), rows),
    ];
  }

  workers(one, other) {
    return one.workers.map((before, at) => {
      const after = other.workers[at];
      return html("tr", {}, html("td", {}, placeAt(at, this.job.workers)), html("td", {}, arrow(before[0], after[0])), html("td", {}, arrow(epochOr(before[3]), epochOr(after[3]))), html("td", {}, arrow(count(before[4]), count(after[4]))));
    });
  }

  /**
   * What differs of one operator.
   * @param {number} operator
   */
  difference(operator) {
    const { comparison } = this;
    if (!this.comparing || !comparison) return [];
    const fields = Object.fromEntries(comparison.fields.map((name, at) => [name, at]));
    const names = ["frontier", "lag", "unsafe", "records/s"];
    const texts = cells(comparison.operators[operator], fields);
    return [html("h3", {}, `From ${clockOf(comparison.moments[0])} to ${clockOf(comparison.moments[1])}`), html("dl", { class: "facts" }, names.flatMap((name, at) => [html("dt", {}, name), html("dd", {}, texts[at])]))];
  }
}

function cells([before, after], fields) {
  return [arrow(epochOr(before[fields.progress]), epochOr(after[fields.progress])), ...["lag", "unsafe", "rate"].map((name) => arrow(count(before[fields[name]]), count(after[fields[name]])))];
}

function arrow(before, after) {
  return before === after ? before : `${before} → ${after}`;
}

function clockOf(each) {
  return new Date(each.asked * SECOND).toLocaleTimeString("en-GB");
}

function signed(value) {
  return value < 0 ? `−${count(-value)}` : `+${count(value)}`;
}
