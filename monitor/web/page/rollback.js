// The card of a rollback: who died and how, where each operator went back to, what it cost; and the same, step by step, in the drawing.

import { choose, state } from "./state.js";
import { bound, bytes, clock, count, html, less, seconds, some } from "./words.js";

const STEP_MS = 1400;
const MOST_ROWS = 200;

/** Steps of the replay, in order. */
export const STEPS = ["failure", "drain", "decide", "restore", "catch up"];

const MEANINGS = [
  "The process is gone, and with it what it held in memory. Each operator is where it was then.",
  "The living stop and drain their links; another process takes the place of the dead one, and reads its store.",
  "The solver finds the least that must go back; the decision is written down.",
  "Each operator is brought to its rollback frontier; messages that are needed again are sent from logs and memory.",
  "All work goes on, until every operator is as far again as it was.",
];

/** Rollbacks of the timeline, by generation. */
export class Rollbacks {
  /**
   * @param {Job} job
   * @param {() => void} changed
   */
  constructor(job, changed) {
    this.job = job;
    this.changed = changed;
    /** @type {Map<string, Rollback>} */
    this.found = new Map();
    this.step = 2;
    /** @type {number | undefined} */
    this.timer = undefined;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
  }

  get on() {
    return state.card !== null;
  }

  /** The card that is open, if its rollback is known. */
  get card() {
    return state.card === null ? null : (this.found.get(state.card) ?? null);
  }

  /**
   * Take what happened.
   * @param {Happening[]} events
   */
  take(events) {
    for (const event of events) {
      if (event.kind === "restored" && event.rollback) this.found.set(String(event.generation), { ...event.rollback, ended: event.at, caught: null });
      const card = event.kind === "caught_up" ? this.found.get(String(event.generation)) : undefined;
      if (card) card.caught = event.seconds;
    }
  }

  forget() {
    this.found.clear();
  }

  /** @param {string} generation */
  open(generation) {
    this.step = 2;
    choose({ card: generation, ask: null });
  }

  /** @param {number} step */
  go(step) {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.step = step;
    this.changed();
  }

  /** Go from step to step, with a stop at each; not at all for who wants no motion. */
  play() {
    if (this.calm.matches) return;
    this.go(0);
    const next = () => {
      if (!this.on || this.step >= STEPS.length - 1) {
        this.timer = undefined;
        this.changed();
        return;
      }
      this.step += 1;
      this.timer = setTimeout(next, STEP_MS);
      this.changed();
    };
    this.timer = setTimeout(next, STEP_MS);
    this.changed();
  }

  /**
   * What each node shows at this step; see `Graph.verdicts`.
   * @param {Picture} page
   */
  verdicts(page) {
    const card = this.card;
    if (!card) return null;
    const seen = page.nodes.map(() => ({ from: /** @type {Bound | null} */ (null), to: /** @type {Bound | null} */ (null), back: 0, all: 0, dead: 0 }));
    for (const { operator, worker, from, to } of each(card)) {
      const node = seen[page.of[operator]];
      if (!node) continue;
      node.all += 1;
      node.dead += card.failed.includes(worker) ? 1 : 0;
      if (node.from === null || less(from, node.from)) node.from = from;
      if (to === null) continue;
      node.back += 1;
      if (node.to === null || less(to, node.to)) node.to = to;
    }
    return seen.map((node) => {
      if (!node.all) return { text: "" };
      const part = node.back < node.all && node.back ? ` (${node.back} of ${node.all})` : "";
      if (this.step === 0) return { text: node.dead ? `✕ at ${bound(node.from)}` : `▸ ${bound(node.from)}`, failed: node.dead > 0 };
      if (this.step === 1) return { text: node.dead < node.all ? "drained" : "read again", failed: node.dead === node.all };
      if (this.step === 4) return { text: `▸ ${bound(node.from)}`, keeps: true };
      return { text: node.back ? `↺ ${bound(node.to)}${part}` : "keeps all", back: node.back > 0, keeps: !node.back };
    });
  }

  /** Edges on which messages are sent again, at the step at which they are. */
  lit() {
    return new Set(this.step === 3 && this.card ? this.card.resent.map((part) => part.edge) : []);
  }

  /** The list of all, newest first. */
  list() {
    if (!this.found.size) return [];
    const rows = [...this.found].toReversed().map(([generation, card]) =>
      html("li", { "data-keep": `rollback ${generation}` }, html("span", { class: "soft" }, clock(card.since)), html("button", { class: "jump", "data-keep": `card ${generation}`, onclick: () => this.open(generation) }, `${cause(card)}; ${seconds(sum(card))}`)),
    );
    return [html("h3", {}, "Rollbacks"), html("ul", { class: "events rollbacks" }, rows)];
  }

  /** The card. */
  panel() {
    const card = this.card;
    const close = html("button", { "data-keep": "close card", onclick: () => choose({ card: null }) }, "Close");
    if (!card) return [html("div", { class: "head" }, html("h2", {}, "Rollback"), close), html("p", {}, "Nothing is known of that rollback: it is older than the timeline.")];
    const places = each(card);
    const back = places.filter((place) => place.to !== null).length;
    const messages = card.resent.reduce((all, part) => all + part.messages, 0);
    const size = card.resent.reduce((all, part) => all + part.bytes, 0);
    const records = card.redone.reduce((all, part) => all + part.records, 0);
    const work = card.redone.reduce((all, part) => all + part.seconds, 0);
    return [
      html("div", { class: "head" }, html("h2", {}, `Rollback to generation ${card.generation}`), close),
      html("p", { class: "soft" }, `${clock(card.since)}, ${some(card.rounds, "round")}`),
      ...card.causes.map((one) => html("div", { class: "because" }, html("b", {}, `worker ${one.worker}`), html("span", {}, `${one.reason}${one.after > 0.0005 ? `, ${seconds(one.after)} later` : ""}`), one.words ? html("div", { class: "soft" }, `its last note: ${one.words}`) : "", ...lastWords(one))),
      ...(card.mates ?? []).map((mate) => html("p", { class: "took-over" }, `Taken over by its mate: ${tookOver(mate)}.`)),
      ...this.player(card),
      html(
        "div",
        { class: "big" },
        html("div", {}, html("b", {}, `${count(back)} of ${count(places.length)}`), html("span", {}, "processors rolled back")),
        html("div", {}, html("b", {}, seconds(sum(card))), html("span", {}, "from the failure until all ran")),
        html("div", {}, html("b", {}, count(messages)), html("span", {}, `messages sent again, ${bytes(size)}`)),
        html("div", {}, html("b", {}, count(records)), html("span", {}, `records of the living done again, about ${seconds(work)}`)),
      ),
      ...expected(card, places),
      ...this.workers(card),
      ...this.resent(card),
      html("h3", {}, "Where each went back to"),
      this.places(places),
      card.left_off ? html("p", { class: "soft" }, `${some(card.left_off, "row")} more are not kept.`) : "",
    ];
  }

  /** @param {Rollback} card */
  player(card) {
    const lasts = [0, card.phases.drain, card.phases.decide, card.phases.restore, card.caught];
    const steps = STEPS.map((name, at) =>
      html("button", { class: "step", "data-keep": `step ${at}`, "aria-pressed": at === this.step, onclick: () => this.go(at) }, html("b", {}, name), html("span", {}, at ? (lasts[at] === null ? "…" : seconds(lasts[at])) : clock(card.since))),
    );
    const playing = this.timer !== undefined;
    const play = this.calm.matches ? "" : html("button", { "data-keep": "play", onclick: () => (playing ? this.go(this.step) : this.play()) }, playing ? "Stop" : "Play");
    return [html("div", { class: "steps", role: "group", "aria-label": "Steps of the rollback" }, steps), html("p", { class: "meaning", "aria-live": "polite" }, MEANINGS[this.step]), play];
  }

  /** @param {Rollback} card */
  workers(card) {
    /** @param {[number, number][]} list */
    const of = (list) => new Map(list);
    const drained = of(card.drained);
    const joined = of(card.joined);
    const restored = of(card.restored);
    const rows = Array.from({ length: this.job.workers }, (_, worker) =>
      html("tr", {}, [`worker ${worker}`, joined.has(worker) ? `${(card.mates ?? []).some((mate) => mate[0] === worker) ? "its mate" : "new"} after ${seconds(joined.get(worker))}` : drained.has(worker) ? `drained after ${seconds(drained.get(worker))}` : "–", restored.has(worker) ? seconds(restored.get(worker)) : "–"].map((text) => html("td", {}, text))),
    );
    return [html("h3", {}, "On each worker"), html("table", { class: "tight" }, html("tr", {}, ["", "ready", "restored after"].map((text) => html("th", {}, text))), rows)];
  }

  /** @param {Rollback} card */
  resent(card) {
    if (!card.resent.length) return [html("h3", {}, "Sent again"), html("p", { class: "soft" }, "No messages.")];
    const rows = card.resent.slice(0, MOST_ROWS).map((part) => {
      const { source, target } = this.job.edges[part.edge];
      return html("tr", {}, [`${this.job.operators[source].name} @ ${part.from} → ${this.job.operators[target].name} @ ${part.to}`, some(part.messages, "message"), bytes(part.bytes)].map((text) => html("td", {}, text)));
    });
    return [html("h3", {}, "Sent again"), html("table", {}, rows)];
  }

  /** @param {Placed[]} places */
  places(places) {
    /** @type {Map<string, number[]>} */
    const rows = new Map();
    for (const { operator, worker, from, to } of places) {
      const key = JSON.stringify([operator, from, to]);
      rows.set(key, [...(rows.get(key) ?? []), worker]);
    }
    const shown = [...rows].slice(0, MOST_ROWS).map(([key, workers]) => {
      const [operator, from, to] = JSON.parse(key);
      const who = workers.length === this.job.workers ? "every worker" : `worker ${workers.join(", ")}`;
      return html("tr", {}, [this.job.operators[operator]?.name ?? "?", who, bound(from), to === null ? "keeps all" : `↺ ${bound(to)}`].map((text) => html("td", {}, text)));
    });
    return html("table", { class: "places" }, html("tr", {}, ["", "", "was at", "went to"].map((text) => html("th", {}, text))), shown);
  }
}

/**
 * Each processor of a card, by operator.
 * @param {Rollback} card
 * @returns {Placed[]}
 */
export function each(card) {
  /** @type {Placed[]} */
  const found = [];
  for (const { from, to, workers, operators } of card.places) {
    for (const [first, last] of operators) for (let operator = first; operator <= last; operator += 1) for (const worker of workers) found.push({ operator, worker, from, to });
  }
  return found.toSorted((a, b) => a.operator - b.operator || a.worker - b.worker);
}

/**
 * What was expected a moment before, beside what happened.
 * @param {Rollback} card
 * @param {Placed[]} places
 */
function expected(card, places) {
  const said = card.expected;
  if (!said) return [html("h3", {}, "Expected"), html("p", { class: "soft" }, "Nothing was known beforehand.")];
  const living = card.redone.reduce((all, part) => all + part.records, 0);
  const back = places.filter((place) => place.to !== null).length;
  const took = card.caught === null ? null : sum(card) + card.caught;
  const rows = [
    ["processors rolled back", count(said.back), count(back)],
    ["records handled again", said.records === null ? "unknown" : count(said.records), `${count(living)} of the living`],
    ["until all was as before", said.seconds === null ? "unknown" : seconds(said.seconds), took === null ? "…" : seconds(took)],
  ];
  const table = html("table", { class: "tight expected" }, html("tr", {}, ["", "expected", "happened"].map((text) => html("th", {}, text))), rows.map((row) => html("tr", {}, row.map((text) => html("td", {}, text)))));
  return [html("h3", {}, "Expected, and what happened"), table];
}

/**
 * What a process wrote last on standard error; of a hung one, its stacks as well.
 * @param {Rollback["causes"][number]} one
 */
function lastWords(one) {
  const output = html("button", { "data-keep": `output of ${one.worker}`, onclick: () => choose({ view: "output", place: `worker-${one.worker}` }) }, "All its output");
  if (!one.output) return [html("div", { class: "soft" }, "It wrote nothing on standard error."), output];
  return [html("div", { class: "soft" }, "its last words on standard error:"), html("pre", { class: "trace words" }, one.output), output];
}

/** @param {Rollback} card */
function cause(card) {
  return card.causes.map((one) => `worker ${one.worker} ${one.reason}`).join(", ") || "a round without a failure";
}

/** @param {Rollback} card */
function sum(card) {
  return card.phases.drain + card.phases.decide + card.phases.restore;
}

/**
 * A take-over in words.
 * @param {[number, number, number]} mate worker, operators from memory, pieces read
 */
export function tookOver([worker, operators, pieces]) {
  return `the mate of worker ${worker} took over: ${some(operators, "operator")} from memory, ${some(pieces, "piece")} read`;
}
