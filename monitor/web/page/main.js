// The page: puts its parts together.

import { Camera } from "./camera.js";
import { Graph, markers } from "./graph.js";
import { ask, Stream } from "./live.js";
import { Panel } from "./panel.js";
import { Search } from "./search.js";
import { choose, folds, onChoice, state } from "./state.js";
import { Timeline } from "./timeline.js";
import { WhatIf } from "./whatif.js";
import { bytes, count, html, lag, policy, seconds, some } from "./words.js";

const $ = (id) => document.getElementById(id);
const MOST_EVENTS = 4000;
const BARS = { busy: "busy", taken: "records/s", bytes: "state", queued: "queued", lag: "lag" };

async function whenReady(path) {
  for (;;) {
    try {
      return await ask(path);
    } catch (problem) {
      banner(`Waiting for the job: ${problem.message}`, true);
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
  }
}

/** Of too many events those that came with the oldest cuts are left out. */
function recent(events) {
  let many = events.length - MOST_EVENTS;
  return many > 0 ? events.filter((event) => !event.routine || many-- <= 0).slice(-2 * MOST_EVENTS) : events;
}

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
$("defs").replaceChildren(...markers());
let [job, page] = await Promise.all([whenReady("api/job"), whenReady(`api/graph?${folds()}`)]);
banner(null);
document.title = `${job.name} · Falkirk`;
$("job").textContent = job.name;

const camera = new Camera(stage, $("camera"));
const whatif = new WhatIf(() => {
  graph.verdicts(whatif.verdicts(page, job));
  panel.show();
});
const panel = new Panel($("panel"), job, whatif);
const timeline = new Timeline($("time"));
const search = new Search($("search"), (operator) => choose({ sel: job.operators[operator].name, worker: null }));
search.operators = job.operators;

const graph = new Graph($("camera"), stage, {
  choose(index) {
    if (camera.moved) return;
    const node = page.nodes[index];
    if (whatif.on && node.operator !== null) whatif.toggle(node.key);
    else choose({ sel: node.key, worker: state.sel === node.key ? state.worker : null });
    stage.querySelector(`[data-node="${index}"]`)?.focus({ preventScroll: true });
  },
  open(index) {
    const node = page.nodes[index];
    if (node.operator === null) unfold(node.key);
    else choose({ sel: node.key, worker: state.worker ?? "0" });
  },
  fold(key) {
    const inside = (other) => other === key || other.startsWith(`${key}/`) || other.startsWith(`${key}:`);
    choose({ close: [...new Set([...state.close, key])], open: state.open.filter((other) => !inside(other)) });
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

function groupsAround(operator) {
  const found = [];
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
}

let seen = 0;
let phase = null;
let totals = null;

const stream = new Stream(
  () => {
    const query = folds();
    query.set("bars", state.bars);
    query.set("since", seen);
    const operator = job.operators.findIndex((each) => each.name === state.sel);
    if (operator >= 0) query.set("closely", operator);
    return `api/events?${query}`;
  },
  (message) => {
    if (message.totals) {
      totals = message.totals;
      graph.update(message.rows, totals.newest);
      if (message.workers) panel.workers = message.workers;
      panel.totals = totals;
      phase = message.phase;
      head(message);
      timeline.add({ at: message.at, ...totals });
    }
    if (message.events) {
      seen = message.events[message.events.length - 1].n;
      timeline.events = panel.events = recent([...panel.events, ...message.events]);
      if (message.events.some((event) => ["decided", "restored", "finished", "failed"].includes(event.kind))) whatif.refresh();
    }
    if (!totals) return;
    if (state.sel === null && !whatif.on && performance.now() - shown > 900) {
      shown = performance.now();
      panel.show();
    }
  },
  (lost) => {
    document.body.classList.toggle("lost", lost);
    if (!lost) {
      again();
      return;
    }
    panel.show(); // what came last may have come too soon after what came before
    const over = ["over", "closing"].includes(phase) || panel.events.some((event) => event.kind === "finished");
    const error = panel.events.findLast((event) => ["error", "failed"].includes(event.kind));
    if (over && !error) banner("The job is finished, and its monitor has left. What is shown is its end.", true);
    else banner(error ? `The job has ended: ${error.text ?? error.reason}` : "The monitor does not answer: what is shown is old. Trying again…");
  },
);
let shown = 0;

/** A monitor is back: it has numbered its events anew, and may be that of another program. */
async function again() {
  banner(null);
  seen = 0;
  panel.events = timeline.events = [];
  try {
    const now = await ask("api/job");
    if (JSON.stringify(now.operators) !== JSON.stringify(job.operators)) location.reload();
  } catch {
    // the stream will say so
  }
  stream.connect();
}

function head(message) {
  const pill = $("phase");
  const trouble = !["running", "closing", "over", ...panel.still].includes(message.phase);
  panel.phase = message.phase;
  const words = { gathering: "rolling back: draining", deciding: "rolling back: deciding", restoring: "rolling back: restoring" };
  pill.textContent = `${words[message.phase] ?? message.phase} · generation ${message.generation}`;
  pill.className = `pill ${trouble ? "trouble" : message.phase}`;
  const behind = lag(totals.open, totals.newest);
  const unsafe = totals.low < 0 ? 0 : lag(totals.low, totals.newest);
  const figures = [
    ["records/s", count(totals.rate)],
    ["latency", seconds(totals.p50)],
    ["newest epoch", totals.newest === null ? "end" : count(totals.newest)],
    ["open", behind ? some(behind, "epoch") : "none"],
    ["not yet safe", unsafe ? some(unsafe, "epoch") : "none"],
    ["read", count(totals.read)],
    ["state", bytes(totals.state)],
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
  const next = await whenReady(`api/graph?${folds()}`);
  if (number !== drawing) return;
  banner(null);
  page = next;
  graph.draw(page);
  camera.frame(page.width, page.height);
  stream.connect();
  select(false);
  graph.verdicts(whatif.verdicts(page, job));
}

onChoice((changed) => {
  if (changed.has("theme")) dress();
  if (changed.has("region")) {
    graph.only(state.region);
    legend();
  }
  if (changed.has("sel") && !reveal()) {
    select(true);
    stream.connect();
  } else if (changed.has("worker")) panel.show();
  if (changed.has("open") || changed.has("close")) redraw();
  if (changed.has("bars")) stream.connect();
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
$("ask").addEventListener("click", () => choose({ ask: whatif.on ? null : "" }));
$("theme").addEventListener("click", () => choose({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));

const arrows = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return;
  const onButton = event.target.closest("button, .fold, a");
  if (event.key in arrows && !event.target.closest("#panel")) {
    event.preventDefault();
    const at = graph.toward(...arrows[event.key]);
    const node = page.nodes[at];
    if (node) choose({ sel: node.key, worker: null });
    stage.querySelector(`[data-node="${at}"]`)?.focus({ preventScroll: true });
  } else if (event.key === "Enter" && !onButton && chosenNode() !== null) {
    const node = page.nodes[chosenNode()];
    if (whatif.on && node.operator !== null) whatif.toggle(node.key);
    else if (node.operator === null) unfold(node.key);
    else choose({ worker: state.worker ?? "0" });
  } else if (event.key === "/") {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape") choose(whatif.on ? { ask: null } : { sel: null, worker: null, region: null });
  else if (event.key === "+" || event.key === "=") camera.zoom(1.25);
  else if (event.key === "-") camera.zoom(0.8);
  else if (event.key === "f") camera.fit();
  else if (event.key === "w") choose({ ask: whatif.on ? null : "" });
  else if (event.key === "d") $("theme").click();
});

legend();
graph.draw(page);
graph.only(state.region);
camera.frame(page.width, page.height);
$("ask").setAttribute("aria-pressed", whatif.on);
select(Boolean(state.sel) && !state.view);
reveal();
stream.connect();
if (whatif.on) whatif.refresh();
ask("api/charts").then(({ points }) => {
  timeline.points = [...points, ...timeline.points.filter((point) => !points.length || point.at > points[points.length - 1].at)];
  timeline.draw();
});
setInterval(() => {
  if (!document.hidden && state.sel !== null && !whatif.on && !stream.isLost) panel.fetch();
}, 1000);
addEventListener("visibilitychange", () => {
  if (!document.hidden) stream.connect();
});
document.documentElement.dataset.ready = "yes";
