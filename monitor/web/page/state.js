// What the reader has chosen, kept in the address: whoever gets the link sees the same.

const names = ["sel", "worker", "epoch", "bars", "theme", "camera", "view", "epochs", "unfold", "ask", "policy", "region", "card", "exposed", "member", "cut", "at", "with", "place"];
/** @type {Set<(changed: Set<string>) => void>} */
const listeners = new Set();

/**
 * @type {{sel: string | null, worker: string | null, epoch: string | null, bars: string, theme: string | null, camera: string | null,
 *   view: string | null, epochs: string | null, unfold: string | null, ask: string | null, policy: string | null, region: string | null, card: string | null,
 *   exposed: string | null, member: string | null, cut: string | null, at: string | null, with: string | null, place: string | null,
 *   open: string[], close: string[], [name: string]: any}}
 */
export const state = { sel: null, worker: null, epoch: null, bars: "busy", theme: null, camera: null, view: null, epochs: null, unfold: null, ask: null, policy: null, region: null, card: null, exposed: null, member: null, cut: null, at: null, with: null, place: null, open: [], close: [] };

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of names) state[name] = given.get(name);
  state.bars ??= "busy";
  if (state.view?.includes(",")) Object.assign(state, { camera: state.view, view: null }); // an address of before 193
  for (const name of ["at", "with"]) if (!/^[0-9]{1,15}$/.test(state[name] ?? "")) state[name] = null;
  state.open = given.getAll("open");
  state.close = given.getAll("close");
}

let waiting = 0;

function write() {
  const given = new URLSearchParams();
  for (const name of names) {
    if (state[name] !== null && state[name] !== undefined && !(name === "bars" && state.bars === "busy")) given.set(name, state[name]);
  }
  for (const key of state.open) given.append("open", key);
  for (const key of state.close) given.append("close", key);
  const hash = given.toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

/**
 * Change some of it. Listeners hear which.
 * @param {Partial<typeof state>} changes
 */
export function choose(changes) {
  if (("sel" in changes || "worker" in changes) && !("epoch" in changes)) changes = { ...changes, epoch: null };
  if ("sel" in changes && changes.sel !== state.sel && !("member" in changes)) changes = { ...changes, member: null, cut: null };
  const changed = Object.keys(changes).filter((name) => String(state[name]) !== String(changes[name]));
  Object.assign(state, changes);
  clearTimeout(waiting);
  waiting = setTimeout(write, changed.length === 1 && changed[0] === "camera" ? 300 : 0);
  if (changed.length) for (const listener of listeners) listener(new Set(changed));
}

/**
 * Hear of changes: a set of names.
 * @param {(changed: Set<string>) => void} listener
 */
export function onChoice(listener) {
  listeners.add(listener);
}

/** The part of a query that says what is folded. */
export function folds() {
  const given = new URLSearchParams();
  for (const key of state.open) given.append("open", key);
  for (const key of state.close) given.append("close", key);
  return given;
}

/**
 * An address of the interface, at the moment that is shown.
 * @param {string} path
 */
export function at_moment(path) {
  return state.at === null ? path : `${path}${path.includes("?") ? "&" : "?"}at=${state.at}`;
}

addEventListener("hashchange", () => {
  const before = { ...state };
  read();
  const changed = Object.keys(state).filter((name) => String(state[name]) !== String(before[name]));
  if (changed.length) for (const listener of listeners) listener(new Set(changed));
});
read();
