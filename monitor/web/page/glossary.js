// Words that are explained: buttons that open their meaning. The texts are those of glossary.json, which docs/architecture.md shows too.

import { explainWith, html } from "./words.js";

/** @typedef {{word: string, names: string[], meaning: string, plain: string}} Word */

/** @type {Word[]} */
let all = [];
/** @type {Map<string, Word>} */
const named = new Map();
const EDGE = "[\\p{L}\\p{M}\\p{N}_]";

const inner = html("div", { class: "meaning-text" });
const popover = html("div", { id: "meaning", popover: "auto", role: "dialog", "aria-label": "Meaning of a word" }, inner);

/** A word as people read it: without the marks of Markdown. */
const plainly = (text) => text.replaceAll("\\", "").replaceAll("`", "").replaceAll("*options*", "options");

/**
 * Open the meaning of a word beside what was pressed.
 * @param {Word} word
 * @param {HTMLElement} at
 */
function open(word, at) {
  inner.replaceChildren(html("strong", {}, plainly(word.word)), html("div", {}, word.plain), html("div", { class: "soft" }, `Exactly: ${plainly(word.meaning)}.`));
  const box = at.getBoundingClientRect();
  popover.showPopover();
  const { width, height } = popover.getBoundingClientRect();
  popover.style.left = `${Math.max(8, Math.min(box.left, innerWidth - width - 8))}px`;
  popover.style.top = `${box.bottom + height + 8 < innerHeight ? box.bottom + 4 : Math.max(8, box.top - height - 4)}px`;
}

/**
 * A word of the glossary as a button that opens its meaning; the text alone if it is not there.
 * @param {string} name
 * @param {string} [text]
 */
export function term(name, text = name) {
  const word = named.get(name.toLowerCase());
  if (!word) return text;
  return html("button", { class: "term", type: "button", "data-term": plainly(word.word), title: word.plain, onclick: (event) => { event.stopPropagation(); open(word, event.currentTarget); } }, text);
}

/** @param {string[]} names */
function matching(names) {
  const parts = names.toSorted((a, b) => b.length - a.length).map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return parts.length ? new RegExp(`(?<!${EDGE})(${parts.join("|")})(?!${EDGE})`, "gu") : null;
}

/** Symbols are explained wherever they stand, words in headings and labels only. */
const isSymbol = (name) => !/^[\p{Script=Latin} -]{2,}$/u.test(name) && name !== "f";

/** @param {KeyboardEvent} event */
function shut(event) {
  if (event.key !== "Escape") return;
  event.preventDefault();
  event.stopPropagation();
  popover.hidePopover();
}

/** Ask for the texts, and explain words from then on. */
export async function loadGlossary() {
  try {
    all = await (await fetch("page/glossary.json")).json();
  } catch {
    return; // words stay as they are
  }
  for (const word of all) for (const name of word.names) named.set(name.toLowerCase(), word);
  const names = all.flatMap((word) => word.names);
  const everywhere = matching(names.filter(isSymbol));
  const label = matching(names.flatMap((name) => (isSymbol(name) ? [name] : [name, name[0].toUpperCase() + name.slice(1)])));
  document.body.append(popover);
  popover.addEventListener("toggle", (event) => {
    if (/** @type {any} */ (event).newState === "open") addEventListener("keydown", shut, { capture: true });
    else removeEventListener("keydown", shut, { capture: true });
  });
  explainWith((text, isLabel) => {
    const found = isLabel ? label : everywhere;
    if (!found || !text || text.search(found) < 0) return [text];
    /** @type {Set<string>} */
    const before = new Set();
    return text.split(found).map((part, at) => {
      if (at % 2 === 0 || before.has(part)) return part;
      before.add(part);
      return term(part);
    });
  });
}

/** All words, for the help. */
export function wordList() {
  return html("dl", { class: "words" }, all.filter((word) => word.plain).flatMap((word) => [html("dt", {}, html("span", {}, plainly(word.word))), html("dd", {}, word.plain, html("span", { class: "soft" }, ` Exactly: ${plainly(word.meaning)}.`))]));
}
