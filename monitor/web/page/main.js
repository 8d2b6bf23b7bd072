// The page: puts its parts together.

import { Camera } from "./camera.js";
import { Exposure } from "./exposure.js";
import { loadGlossary } from "./glossary.js";
import { Graph, markers } from "./graph.js";
import { ask, Stream } from "./live.js";
import { drawMembers } from "./members.js";
import { Moments } from "./moments.js";
import { Panel } from "./panel.js";
import { Rollbacks } from "./rollback.js";
import { Search } from "./search.js";
import { SpaceTime } from "./spacetime.js";
import { at_moment, choose, folds, onChoice, state } from "./state.js";
import { Timeline } from "./timeline.js";
import { OtherPolicies } from "./policies.js";
import { Tour } from "./tour.js";
import { WhatIf } from "./whatif.js";
import { bytes, clock, count, epochOr, html, lag, policy, seconds, some, wordsOf } from "./words.js";
import { showWork } from "./work.js";

/**
 * An element of index.html.
 * @param {string} id
 * @returns {any}
 */
const $ = (id) => document.getElementById(id);
const MOST_EVENTS = 4000;
const BARS = { busy: "busy", taken: "records/s", bytes: "state", queued: "queued", lag: "lag" };

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
async function whenReady(path) {
  for (;;) {
    try {
      return await ask(path);
    } catch (problem) {
      banner(`Waiting for the job: ${wordsOf(problem)}`, true);
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
  }
}

/**
 * Of too many events those that came with the oldest cuts are left out.
 * @param {Happening[]} events
 */
function recent(events) {
  let many = events.length - MOST_EVENTS;
  return many > 0 ? events.filter((event) => !event.routine || many-- <= 0).slice(-2 * MOST_EVENTS) : events;
}

/** @param {string | null} text */
function banner(text, calm = false) {
  const element = $("banner");
  element.hidden = !text;
  element.textContent = text ?? "";
  element.classList.toggle("calm", calm);
}

function dress() {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

dress();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);

const stage = $("graph");
/** Who was sent to a place of the page is not offered a tour. */
const offers = location.hash.length < 2;
$("defs").replaceChildren(...markers());
/** @type {string | null} */
let gone = null;
if (state.at !== null) {
  try {
    await ask(at_moment("api/job"));
  } catch (problem) {
    gone = `${wordsOf(problem)}: shown is the present`;
    choose({ at: null, with: null });
  }
}
/** The address of the drawing, for the room that there is. */
function picture() {
  const { width, height } = stage.getBoundingClientRect();
  return at_moment(`api/graph?${[folds(), `room=${Math.max(1, Math.round(width))}x${Math.max(1, Math.round(height))}`].filter((each) => String(each)).join("&")}`);
}

/** @type {[Job, Picture, void]} */
const [job, drawnFirst] = await Promise.all([whenReady(at_moment("api/job")), whenReady(picture()), loadGlossary()]);
let page = drawnFirst;
banner(null);
document.title = `${job.name} · Falkirk`;
$("job").textContent = job.name;
$("jobs").hidden = !job.several;

const camera = new Camera(stage, $("camera"));
function mark() {
  const replayed = rollbacks.on && !whatif.on;
  graph.verdicts(replayed ? rollbacks.verdicts(page) : (whatif.verdicts(page) ?? moments.verdicts(page)));
  stage.classList.toggle("replaying", replayed && rollbacks.card !== null); // figures of now are not those of then
  graph.light(replayed ? rollbacks.lit() : new Set());
  spacetime.changed();
}

function expose() {
  graph.expose(exposure.shown(page, graph.rows));
}

function marked() {
  mark();
  panel.show();
}
const whatif = new WhatIf(marked);
const rollbacks = new Rollbacks(job, marked);
const exposure = new Exposure($("exposure"), job, expose);
const panel = new Panel($("panel"), job, whatif, rollbacks);
const spacetime = new SpaceTime($("spacetime"), job, whatif, rollbacks, () => page);
const timeline = new Timeline($("time"));
const moments = new Moments($("moments"), job, marked);
panel.moments = moments;
const policies = (panel.policies = new OtherPolicies(job, () => panel.show()));
const tour = new Tour($("help"));
panel.offer = () => (offers ? tour.offer(() => panel.show()) : []);
const search = new Search($("search"), (operator, member) => choose({ sel: job.operators[operator].name, worker: null, member }));
search.operators = job.operators;

const graph = new Graph($("camera"), stage, {
  choose(index) {
    if (camera.moved) return;
    const node = page.nodes[index];
    if (whatif.on && node.operator !== null) whatif.toggle(`operator:${node.key}`);
    else choose({ sel: node.key, worker: state.sel === node.key ? state.worker : null, card: null });
    stage.querySelector(`[data-node="${index}"]`)?.focus({ preventScroll: true });
  },
  open(index) {
    const node = page.nodes[index];
    if (node.operator === null) unfold(node.key);
    else choose({ sel: node.key, worker: state.worker ?? "0" });
  },
  fold(key) {
    const within = (other) => other === key || other.startsWith(`${key}/`) || other.startsWith(`${key}:`);
    choose({ close: [...new Set([...state.close, key])], open: state.open.filter((other) => !within(other)) });
  },
});

function unfold(key) {
  choose({ open: [...new Set([...state.open, key])], close: state.close.filter((other) => other !== key) });
}

/** The node of what is chosen: an operator, perhaps inside a folded group, or a folded group. */
function chosenNode() {
  if (state.sel === null) return null;
  const operator = job.operators.findIndex((each) => each.name === state.sel);
  const found = operator >= 0 ? page.of[operator] : page.nodes.findIndex((node) => node.operator === null && node.key === state.sel);
  return found >= 0 ? found : null;
}

/** @param {number} operator */
function groupsAround(operator) {
  /** @type {string[]} */
  const found = [];
  /**
   * @param {Group} group
   * @returns {boolean}
   */
  const visit = (group) => {
    for (const child of group.children) {
      if (child === operator) return true;
      if (typeof child === "object" && visit(child)) {
        found.push(child.key);
        return true;
      }
    }
    return false;
  };
  visit(job.tree);
  return found;
}

/** If what is chosen is folded away, open what is around it. True if the drawing will change. */
function reveal() {
  const operator = job.operators.findIndex((each) => each.name === state.sel);
  const at = chosenNode();
  if (operator < 0 || at === null || page.nodes[at].operator !== null) return false;
  const around = groupsAround(operator);
  choose({ open: [...new Set([...state.open, ...around])], close: state.close.filter((key) => !around.includes(key)) });
  return true;
}

function select(move) {
  const at = chosenNode();
  graph.select(at);
  panel.node = at === null ? null : page.nodes[at];
  if (panel.node && panel.node.operator === null && job.operators.some((each) => each.name === state.sel)) panel.node = null;
  if (move && at !== null) camera.show(page.nodes[at]);
  panel.show();
  inside();
}

/** Draw the members of the chosen chain inside its node, over what is below it. */
function inside() {
  const at = chosenNode();
  graph.parts.forEach(({ group }, index) => index !== at && group.querySelector(".inside")?.remove());
  const info = job.operators.find((each) => each.name === state.sel);
  if (at === null || !info?.members.length || page.nodes[at].operator === null) return;
  const { group } = graph.parts[at];
  const workers = panel.answers?.key.startsWith(`${state.sel}@`) ? (panel.answers.all?.workers ?? []) : [];
  drawMembers(group, page.nodes[at], info.members, panel.members.rows(workers), state.member ?? (verdict?.alarm ? verdict.name : null));
  if (group.nextSibling) graph.layer.append(group);
}
panel.answered = inside;

let seen = 0;
let panelShown = 0;
/** @type {Verdict | null} */
let verdict = null;
/** @type {Totals | null} */
let totals = null;
let heard = 0;

/**
 * Show what has come: of the stream, or of a moment.
 * @param {Message} message
 */
function hear(message) {
  if (message.totals) {
    totals = message.totals;
    heard = message.at;
    graph.update(message.rows, totals.newest);
    exposure.now = message.at;
    if (message.exposure) exposure.hear(message.exposure);
    if (!moments.past) exposure.refresh(page, graph.rows);
    if (exposure.on) expose();
    if (message.workers) panel.workers = message.workers;
    panel.totals = totals;
    panel.live = message.live;
    verdict = panel.verdict = message.verdict;
    say();
    head();
    graph.mark_verdict(verdict.alarm && verdict.processor >= 0 ? page.of[verdict.processor] : null, verdict);
    if (message.live && !moments.past) timeline.add({ at: message.at, ...totals });
  }
  if (message.events) {
    seen = message.events[message.events.length - 1].n;
    timeline.events = panel.events = recent([...panel.events, ...message.events]);
    rollbacks.take(message.events);
    if (rollbacks.on && message.events.some((event) => event.rollback || event.kind === "caught_up")) marked();
    if (message.events.some((event) => ["decided", "restored", "finished", "failed"].includes(event.kind))) whatif.refresh();
  }
  if (!totals) return;
  if (state.sel === null && !whatif.on && !policies.on && performance.now() - panelShown > 900) {
    panelShown = performance.now();
    panel.show();
  }
}

const stream = new Stream(
  () => {
    const query = folds();
    query.set("bars", state.bars);
    query.set("since", String(seen));
    const operator = job.operators.findIndex((each) => each.name === state.sel);
    for (const each of new Set([...(operator >= 0 ? [operator] : []), ...spacetime.closely])) query.append("closely", String(each));
    return `api/events?${query}`;
  },
  hear,
  (lost) => {
    if (moments.past) return;
    document.body.classList.toggle("lost", lost);
    panel.lost = lost && !verdict?.over;
    if (!lost) {
      again();
      return;
    }
    panel.show(); // what came last may have come too soon after what came before
    say(true);
    if (verdict?.over) banner(`The job is not there any more: ${verdict.text.split("\n")[0]}. What is shown is its end.`, verdict.state === "ended" || verdict.state === "stopped");
    else banner(`The ${stream.gone} does not answer: what is shown is old. Trying again…`);
  },
);

let travelled = 0;

/** Show the moment that is chosen; or the present, as it goes on. */
async function travel() {
  const number = (travelled += 1);
  if (!moments.past) {
    panel.answers = null;
    timeline.points = [];
    await again();
    await moments.show(null, gone);
    const { points } = await ask("api/charts");
    if (number === travelled) timeline.points = points;
    return;
  }
  stream.rest();
  exposure.hear([]); // it is of now
  panel.lost = false;
  document.body.classList.remove("lost");
  banner(null);
  /** @type {Moment | null} */
  let shown = null;
  /** @type {string | null} */
  let problem = null;
  try {
    const query = folds();
    query.set("bars", state.bars);
    shown = await ask(at_moment(`api/moment?${query}`));
  } catch (wrong) {
    problem = wordsOf(wrong);
  }
  if (number !== travelled) return;
  if (shown && shown.plan !== job.plan) {
    location.reload(); // the program was another one then
    return;
  }
  seen = 0;
  panel.events = timeline.events = [];
  rollbacks.forget();
  if (shown) hear(shown);
  else {
    verdict = panel.verdict = null;
    document.body.classList.add("lost");
    say();
  }
  await moments.show(shown, problem);
  if (whatif.on) whatif.refresh();
  if (policies.on) policies.refresh();
  try {
    const { points } = await ask(at_moment("api/charts"));
    if (number !== travelled) return;
    timeline.points = points;
    timeline.draw();
  } catch {
    // moments say so
  }
}

/** Follow the job, if the present is shown. */
function follow() {
  if (!moments.past) stream.connect();
}

/** The verdict, first of all: what the monitor says, or that it says nothing. */
function say(lost = false) {
  const pill = $("phase");
  const silent = lost && !verdict?.over;
  const text = silent ? `unknown: no answer since ${heard ? clock(heard) : "the page was opened"}${verdict ? `; before that ${verdict.state}` : ""}` : (verdict?.text.split("\n")[0] ?? "");
  if (pill.textContent !== text) pill.textContent = text;
  pill.title = verdict?.text ?? "";
  pill.dataset.state = silent ? "unknown" : (verdict?.state ?? "");
  pill.dataset.alarm = silent || verdict?.alarm ? "yes" : "no";
  document.title = `${verdict?.alarm ? "⚠ " : ""}${job.name} · ${silent ? "unknown" : (verdict?.state ?? "Falkirk")}`;
}

/** A monitor is back: it has numbered its events anew, and may be that of another program. */
async function again() {
  banner(null);
  seen = 0;
  panel.events = timeline.events = [];
  rollbacks.forget();
  try {
    const now = await ask("api/job");
    if (now.plan !== job.plan || JSON.stringify(now.operators) !== JSON.stringify(job.operators)) location.reload();
  } catch {
    // the stream will say so
  }
  stream.connect();
}

function head() {
  if (!totals) return;
  const { newest, slowest, open, low, live } = { ...totals, live: panel.live };
  const behind = open === null || newest === null ? "unknown" : open < 0 ? "none" : newest < 0 ? `from ${count(open)} on` : some(lag(open, newest), "epoch");
  const unsafe = low < 0 ? "none" : newest === null ? "unknown" : newest < 0 ? `from ${count(low)} on` : some(lag(low, newest), "epoch");
  const reached = newest !== null && newest >= 0 && slowest !== newest ? `${epochOr(slowest)} to ${count(newest)}` : epochOr(newest);
  const figures = live
    ? [
        ["records/s", count(totals.rate)],
        ["latency", seconds(totals.p50)],
        ["newest epoch", reached],
        ["open", behind],
        ["not yet safe", unsafe],
        ["read", totals.read === null ? "unknown" : count(totals.read)],
        ["state", bytes(totals.state)],
        ["heard", totals.age === null ? "not of all workers" : totals.age < 2 ? "now" : `${seconds(totals.age)} ago`],
      ]
    : [
        ["newest epoch", epochOr(newest)],
        ["saved", open === null ? "unknown" : open < 0 ? "all" : `before epoch ${count(open)}`],
        ["safe", low < 0 ? "all" : `before epoch ${count(low)}`],
        ["logs", bytes(totals.logged)],
      ];
  const list = $("totals");
  if (list.children.length !== figures.length) {
    list.replaceChildren(...figures.map(([name]) => html("div", {}, html("dt", {}, name), html("dd", {}, ""))));
  }
  figures.forEach(([, text], at) => {
    const place = list.children[at].lastChild;
    if (place.textContent !== text) place.textContent = text;
  });
}

function legend() {
  /** @type {HTMLElement[]} */
  const rows = [html("h2", {}, "Policy, and its regions")];
  for (const name of job.policies) {
    const { hue, letter } = policy(name);
    const regions = job.regions.filter((each) => each.policy === name).map((each) => each.name);
    const shown = regions.length > 4 ? `${regions.slice(0, 3).join(", ")} and ${regions.length - 3} more` : regions.join(", ");
    const pick = () => choose({ region: state.region === name ? null : name });
    rows.push(html("button", { "aria-pressed": state.region === name, title: `Show only ${name}`, onclick: pick }, html("span", { class: "swatch", hue }, letter), html("span", {}, name, html("small", {}, shown ? `  ${shown}` : ""))));
  }
  rows.push(html("div", { class: "key" }, "▸ progress   ↺ rollback frontier"), html("div", { class: "key" }, "thick: exchanged   dashed: leads back"));
  if (job.edges.some((edge) => edge.logged)) rows.push(html("div", { class: "key" }, "orange: logged"));
  $("legend").replaceChildren(...rows);
}

let drawing = 0;

async function redraw() {
  const number = (drawing += 1);
  const next = await whenReady(picture());
  if (number !== drawing) return;
  banner(null);
  page = next;
  graph.draw(page);
  camera.frame(page);
  if (moments.past) travel();
  else stream.connect();
  select(false);
  mark();
  expose();
  spacetime.ask();
}

function viewed() {
  for (const id of ["graph", "legend", "tools"]) $(id).style.display = spacetime.on ? "none" : "";
  $("times").setAttribute("aria-pressed", String(spacetime.on));
  spacetime.changed();
}

onChoice((changed) => {
  if (["view", "epochs", "unfold", "sel", "theme"].some((name) => changed.has(name))) viewed();
  if ((changed.has("view") || changed.has("unfold")) && !changed.has("sel")) stream.connect();
  if (changed.has("theme")) dress();
  if (changed.has("region")) {
    graph.only(state.region);
    legend();
  }
  if (changed.has("sel") && !reveal()) {
    select(true);
    follow();
  } else if (changed.has("worker") || changed.has("epoch") || changed.has("member")) {
    panel.show();
    inside();
  }
  if (changed.has("open") || changed.has("close")) redraw();
  if (changed.has("at") || changed.has("with") || (changed.has("bars") && moments.past)) travel();
  else if (changed.has("bars")) stream.connect();
  if (changed.has("card")) marked();
  if (changed.has("cut")) panel.show();
  if (changed.has("exposed") || changed.has("sel") || changed.has("worker")) {
    exposure.asked = 0;
    exposure.hear(exposure.dangers);
    exposure.refresh(page, graph.rows);
    expose();
  }
  if (changed.has("policy")) {
    policies.take();
    policies.refresh();
  }
  if (changed.has("ask")) {
    $("ask").setAttribute("aria-pressed", whatif.on);
    whatif.refresh();
  }
});

$("bars").replaceChildren(...job.bars.map((name) => html("option", { value: name, selected: name === state.bars }, BARS[name] ?? name)));
$("bars").addEventListener("change", (event) => choose({ bars: event.target.value }));
$("closer").addEventListener("click", () => camera.zoom(1.3));
$("farther").addEventListener("click", () => camera.zoom(1 / 1.3));
$("fit").addEventListener("click", () => camera.fit());
$("times").addEventListener("click", () => choose({ view: spacetime.on ? null : "spacetime" }));
$("ask").addEventListener("click", () => choose({ ask: whatif.on ? null : "" }));
$("theme").addEventListener("click", () => choose({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));

const arrows = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = /** @type {Element} */ (event.target);
  if (target.matches("input, select, textarea")) return;
  const onButton = target.closest("button, .fold, a");
  if (event.key in arrows && !spacetime.on && !target.closest("#panel")) {
    event.preventDefault();
    const at = graph.toward(...arrows[event.key]);
    const node = page.nodes[at];
    if (node) choose({ sel: node.key, worker: null });
    stage.querySelector(`[data-node="${at}"]`)?.focus({ preventScroll: true });
  } else if (event.key === "Enter" && !spacetime.on && !onButton && chosenNode() !== null) {
    const node = page.nodes[chosenNode() ?? 0];
    if (whatif.on && node.operator !== null) whatif.toggle(`operator:${node.key}`);
    else if (node.operator === null) unfold(node.key);
    else choose({ worker: state.worker ?? "0" });
  } else if (event.key === "/") {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape") choose(policies.on ? { policy: null } : whatif.on ? { ask: null } : rollbacks.on ? { card: null } : state.cut !== null ? { cut: null } : { sel: null, worker: null, region: null });
  else if (event.key === "+" || event.key === "=") camera.zoom(1.25);
  else if (event.key === "-") camera.zoom(0.8);
  else if (event.key === "f") camera.fit();
  else if (event.key === "w") choose({ ask: whatif.on ? null : "" });
  else if (event.key === "s") $("times").click();
  else if (event.key === "d") $("theme").click();
  else if (event.key === "?") tour.help();
});

legend();
viewed();
showWork($("stage"), job);
camera.scaled = (scale) => graph.scaled(scale, stage.classList.contains("far"));
graph.draw(page);
graph.only(state.region);
camera.frame(page);
$("ask").setAttribute("aria-pressed", whatif.on);
select(Boolean(state.sel) && !state.camera);
reveal();
if (moments.past) travel();
else {
  if (!document.hidden) stream.connect();
  moments.problem = gone;
}
moments.refresh();
if (whatif.on) whatif.refresh();
if (policies.on) policies.refresh();
ask("api/charts").then(({ points }) => {
  if (moments.past) return;
  timeline.points = [...points, ...timeline.points.filter((point) => !points.length || point.at > points[points.length - 1].at)];
  timeline.draw();
});
setInterval(() => {
  if (!document.hidden && state.sel !== null && !whatif.on && !policies.on && !stream.isLost && !moments.past) panel.fetch();
}, 1000);
/** A browser has six connections to a server, for all its tabs: those that nobody sees leave theirs, and ask now and then. */
addEventListener("visibilitychange", () => (document.hidden ? stream.rest() : follow()));
setInterval(() => {
  if (!document.hidden) moments.refresh();
}, 5000);
setInterval(async () => {
  if (!document.hidden || !totals || moments.past) return;
  try {
    verdict = panel.verdict = await ask("api/verdict");
    say();
  } catch {
    say(true);
  }
}, 5000);
document.documentElement.dataset.ready = "yes";
