// Views of the job's processes, over the drawing: the flame graph, and what they wrote.

import { Flames } from "./flames.js";
import { Output } from "./output.js";
import { choose, onChoice } from "./state.js";
import { html } from "./words.js";

const TURN_MS = 1000;
const BELOW = ["graph", "legend", "tools"];

/**
 * Put the views into the stage, and let them follow what is chosen.
 * @param {HTMLElement} stage
 * @param {Job} job
 */
export function showWork(stage, job) {
  const flames = html("section", { id: "flames", class: "work", "aria-label": "Flame graph of the last minute", hidden: true });
  const output = html("section", { id: "output", class: "work", "aria-label": "What processes wrote", hidden: true });
  stage.append(flames, output);
  const views = [new Flames(flames, job), new Output(output)];
  for (const section of [flames, output]) section.addEventListener("keydown", keepArrows);
  const turn = () => {
    for (const id of BELOW) document.getElementById(id)?.toggleAttribute("inert", views.some((view) => view.on));
    for (const view of views) view.turn();
  };
  onChoice((changed) => {
    if (["view", "place", "at"].some((name) => changed.has(name))) turn();
  });
  setInterval(turn, TURN_MS);
  turn();
}

/**
 * Arrows scroll here, and Escape leaves: the keys of the drawing below are not meant.
 * @param {KeyboardEvent} event
 */
function keepArrows(event) {
  if (event.key.startsWith("Arrow")) event.stopPropagation();
  if (event.key === "Escape" && !event.defaultPrevented) {
    event.stopPropagation();
    choose({ view: null });
  }
}
