// The list of all jobs of a page, asked for anew every two seconds.

import { ask } from "./live.js";
import { html, wordsOf } from "./words.js";

const AGAIN = 2000;
const body = /** @type {HTMLElement} */ (document.querySelector("#list tbody"));
const banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
const dark = matchMedia("(prefers-color-scheme: dark)");
const dress = () => void (document.documentElement.dataset.theme = dark.matches ? "dark" : "light");

dress();
dark.addEventListener("change", dress);

/** @param {ListedJob} job */
function state(job) {
  if (job.error) return ["unknown", job.error];
  return job.verdict ? [job.verdict.state, job.verdict.text.split("\n")[0]] : ["", "no job yet"];
}

/** @param {ListedJob} job */
function row(job) {
  const [name, text] = state(job);
  const pill = html("span", { class: "pill" }, text);
  pill.dataset.state = name;
  pill.dataset.alarm = job.error || job.verdict?.alarm ? "yes" : "no";
  const made = html("tr", {}, html("td", {}, html("a", { href: `job/${job.key}/` }, job.name)), html("td", {}, pill), html("td", {}, job.workers === null ? "–" : String(job.workers)), html("td", {}, job.store));
  made.dataset.key = job.key;
  return made;
}

let before = "";

async function show() {
  try {
    const { jobs } = await ask("api/jobs");
    const now = JSON.stringify(jobs);
    if (now !== before) {
      const focused = document.activeElement?.closest("tr")?.dataset.key;
      body.replaceChildren(...jobs.map(row));
      if (focused) /** @type {HTMLElement | null} */ (body.querySelector(`tr[data-key="${focused}"] a`))?.focus();
    }
    before = now;
    banner.hidden = true;
  } catch (problem) {
    banner.hidden = false;
    banner.textContent = `The page does not answer: what is shown is old (${wordsOf(problem)}). Trying again…`;
  }
  document.documentElement.dataset.ready = "yes";
  setTimeout(show, AGAIN);
}

show();
