// The flame graph of the last minute: operators above, what they call below, as wide as the time that it took.

import { at_path, cells, matches, matching, tree } from "./folded.js";
import { ask } from "./live.js";
import { choose, state } from "./state.js";
import { html, morph, seconds, wordsOf } from "./words.js";

const EVERY_MS = 2000;
const ROW = 19;

/** Words for kinds of roots. @type {{[kind: string]: string}} */
const KINDS = { operator: "operator", engine: "Falkirk itself, between operators", waiting: "waits for work", thread: "thread", all: "all that is shown", function: "function" };

export class Flames {
  /**
   * @param {HTMLElement} root
   * @param {Job} job
   */
  constructor(root, job) {
    this.root = root;
    this.files = new Set(job.operators.map((each) => each.site.replace(/:[0-9]+$/, "")));
    /** @type {Samples[]} */
    this.processes = [];
    this.problem = "";
    /** Keys of the frames from the root to what fills the width. @type {string[]} */
    this.path = [];
    /** The frame that has the focus. @type {string[] | null} */
    this.at = null;
    this.waiting = false;
    this.held = false;
    this.find = "";
    this.said = "";
    this.asked = -Infinity;
    root.addEventListener("keydown", (event) => this.key(event));
  }

  get on() {
    return state.view === "flames";
  }

  /** Called each second, and when something was chosen. */
  async turn() {
    this.root.hidden = !this.on;
    if (!this.on || this.held || document.hidden || performance.now() - this.asked < EVERY_MS) return;
    this.asked = performance.now();
    if (state.at !== null) {
      this.processes = [];
      this.problem = "Samples are of the present only: they are not recorded. Choose Live.";
    } else {
      try {
        this.processes = (await ask("api/samples")).processes;
        this.problem = "";
      } catch (wrong) {
        this.processes = [];
        this.problem = `There is no flame graph: ${wordsOf(wrong)}`;
      }
    }
    this.draw();
  }

  /** Samples of the chosen process, or of all workers. */
  get chosen() {
    return this.processes.filter((each) => (state.place === null ? each.place !== "monitor" : each.place === state.place));
  }

  draw() {
    const all = tree(this.chosen, this.waiting);
    const lineage = at_path(all, this.path);
    this.path = lineage.slice(1).map((node) => node.key);
    const sought = this.find.trim().toLowerCase();
    const drawn = cells(lineage);
    const rows = drawn.reduce((most, cell) => Math.max(most, cell.row), 0) + 1;
    const focus = this.at === null ? "" : this.at.join("\n");
    const within = drawn.some((cell) => cell.path.join("\n") === focus);
    const boxes = drawn.map(({ node, path, left, wide, row }) =>
      html("button", { class: `cell ${this.look(node)}${sought && matches(node, sought) ? " found" : ""}`, role: "treeitem", "aria-level": row + 1, "data-keep": `cell ${path.join("\n")}`, "data-name": node.name, tabindex: (within ? path.join("\n") === focus : row === 0) ? 0 : -1, title: this.words(node, all), "aria-label": this.words(node, all), style: `left:${100 * left}%;width:calc(${100 * wide}% - 1px);top:${row * ROW}px`, onclick: () => this.zoom(path), onfocus: (event) => this.say(event.currentTarget.title, path) }, wide > 0.02 ? node.name : ""),
    );
    const places = [...new Set(this.processes.map((each) => each.place))];
    const span = Math.max(0, ...this.chosen.map((each) => each.seconds));
    const share = sought && all.milliseconds ? `${(100 * matching(all, sought) / all.milliseconds).toFixed(1)} % in “${this.find.trim()}”` : "";
    morph(this.root, [
      html(
        "div",
        { class: "bar", "data-keep": "bar" },
        html("label", {}, "Of ", html("select", { "data-keep": "place", "data-of": "flames", "aria-label": "Of which process", onchange: (event) => this.choose(event.target.value) }, html("option", { value: "", selected: state.place === null }, "all workers"), places.map((place) => html("option", { value: place, selected: place === state.place }, place.replace("-", " "))))),
        html("input", { type: "search", "data-keep": "find", placeholder: "Find a function or file", "aria-label": "Find a function or file", oninput: (event) => this.seek(event.target.value) }),
        html("label", {}, html("input", { type: "checkbox", "data-keep": "waiting", onchange: (event) => this.count(event.target.checked) }), " waiting too"),
        html("button", { "data-keep": "hold", "aria-pressed": this.held, onclick: () => this.hold() }, "Hold"),
        html("button", { "data-keep": "whole", disabled: !this.path.length, onclick: () => this.zoom([]) }, "Whole"),
        html("button", { "data-keep": "leave", onclick: () => choose({ view: null }) }, "Close"),
        html("span", { class: "soft" }, [`${seconds(all.milliseconds / 1000)} of work in the last ${seconds(span)}`, share].filter(Boolean).join("; ")),
      ),
      html("p", { class: "line", role: "status", "data-keep": "line" }, this.problem || this.said || "Each width is time: of operators, and of what they call below them. Enter or a click makes a frame as wide as all."),
      html("div", { class: "flames", role: "tree", "aria-label": "Time by operator and function, in the last minute", "data-keep": "cells", style: `height:${rows * ROW}px` }, this.problem ? [] : boxes),
    ]);
  }

  /** Colour of a frame: of the user's own files, or of others. */
  look(node) {
    if (node.kind !== "function") return node.kind;
    return this.files.has(node.file) ? "own" : "other";
  }

  words(node, all) {
    const place = node.file ? ` (${node.file.split("/").slice(-2).join("/")}${node.line ? `:${node.line}` : ""})` : "";
    const share = all.milliseconds ? (100 * node.milliseconds) / all.milliseconds : 0;
    return `${node.name}${place}: ${seconds(node.milliseconds / 1000)}, ${share.toFixed(1)} %; ${KINDS[node.kind] ?? node.kind}`;
  }

  /**
   * @param {string} said
   * @param {string[]} path
   */
  say(said, path) {
    this.at = path;
    this.said = said;
    const line = this.root.querySelector(".line");
    if (line && !this.problem) line.textContent = this.said;
  }

  /** @param {string[]} path */
  zoom(path) {
    this.path = path;
    this.at = path;
    this.draw();
    this.focus(path);
  }

  /** @param {string[]} path */
  focus(path) {
    const cell = /** @type {HTMLElement | null} */ (this.root.querySelector(`[data-keep="${CSS.escape(`cell ${path.join("\n")}`)}"]`));
    cell?.focus({ preventScroll: false });
  }

  choose(place) {
    this.path = [];
    choose({ place: place || null });
    this.draw();
  }

  seek(text) {
    this.find = text;
    this.draw();
  }

  count(waiting) {
    this.waiting = waiting;
    this.draw();
  }

  hold() {
    this.held = !this.held;
    this.draw();
  }

  /** Arrows go from frame to frame, Escape makes the drawing whole, then leaves it. @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {Element} */ (event.target);
    if (event.key === "Escape" && !target.matches("input, select")) {
      event.preventDefault();
      event.stopPropagation();
      if (this.path.length) this.zoom(this.path.slice(0, -1));
      else choose({ view: null });
    }
    if (!target.matches(".cell") || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    const drawn = cells(at_path(tree(this.chosen, this.waiting), this.path));
    const at = drawn.find((cell) => cell.path.join("\n") === (this.at ?? []).join("\n")) ?? drawn[0];
    const same = drawn.filter((cell) => cell.row === at.row).toSorted((a, b) => a.left - b.left);
    const below = drawn.filter((cell) => cell.row === at.row + 1 && at.path.every((key, n) => cell.path[n] === key));
    const near = { ArrowLeft: same[same.indexOf(at) - 1], ArrowRight: same[same.indexOf(at) + 1], ArrowDown: below[0], ArrowUp: at.path.length ? drawn.find((cell) => cell.path.length === at.path.length - 1 && cell.path.every((key, n) => at.path[n] === key)) : undefined }[event.key];
    if (near) {
      this.at = near.path;
      this.focus(near.path);
    }
  }
}

/**
 * Stacks in words, for the panel.
 * @param {StackOf[]} stacks
 */
export function stacksTable(stacks) {
  return stacks.flatMap((one) => [
    html("p", {}, html("b", {}, `${one.place.replace("-", " ")}, process ${one.pid}`), `: ${one.doing || (one.note ? "its operator is not known" : "no operator is at work")}`),
    one.note ? html("p", { class: "soft" }, `${one.note}.`) : "",
    ...one.threads.flatMap((thread) => [html("p", { class: "soft" }, `${thread.thread}, innermost first`), html("pre", { class: "trace" }, thread.lines.map((line) => `${line.name} (${line.file.split("/").slice(-2).join("/")}${line.line ? `:${line.line}` : ""})`).join("\n"))]),
  ]);
}
