// Numbers, times and frontiers in words that fit.

const units = ["", "k", "M", "G", "T"];
/** Formats are made once: to make one takes longer than all else that a figure needs. */
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const NUMBER = new Intl.NumberFormat("en");

/**
 * All digits of a whole number.
 * @param {number} value
 */
export function whole(value) {
  return NUMBER.format(value);
}

/**
 * 1,234 as it is, 123,456 as 123k.
 * @param {number | null | undefined} value
 */
export function count(value) {
  if (value === null || value === undefined) return "–";
  let at = 0;
  let left = Math.abs(value);
  while (left >= 10000 && at < units.length - 1) {
    left /= 1000;
    at += 1;
  }
  const digits = at === 0 && Number.isInteger(value) ? 0 : left < 10 ? 1 : 0;
  return (value < 0 ? "−" : "") + (digits ? TENTHS : WHOLE).format(left) + units[at];
}

/**
 * Bytes, in the unit that keeps the number short.
 * @param {number | null | undefined} value
 */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < names.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${(value < 10 && at ? TENTHS : WHOLE).format(value)} ${names[at]}`;
}

/**
 * Seconds, as s, ms or µs.
 * @param {number | null | undefined} value
 */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 100) return `${Math.round(value)} s`;
  if (value >= 1) return `${value.toFixed(1)} s`;
  if (value >= 0.001) return `${value >= 0.1 ? Math.round(value * 1000) : (value * 1000).toFixed(1)} ms`;
  return `${Math.round(value * 1e6)} µs`;
}

const FORMAT = /** @type {const} */ ({ day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
const DATED = new Intl.DateTimeFormat("en-GB", FORMAT);
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const ZONED = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

/**
 * A moment with its date and zone.
 * @param {number} at milliseconds since 1970
 */
export function dated(at) {
  return DATED.format(at);
}

/**
 * The time of day; with its date, if that is not today.
 * @param {number} at seconds since 1970
 */
export function clock(at) {
  const then = new Date(at * 1000);
  const time = CLOCK.format(then);
  return then.toDateString() === new Date().toDateString() ? time : `${DAY.format(then)}, ${time}`;
}

/** The time zone of all times of day. */
export function zone() {
  return ZONED.formatToParts(new Date()).find((part) => part.type === "timeZoneName")?.value ?? "";
}

/** An epoch of a frontier: everything before it is done. -1: all is; -2: nobody knows. */
export function epoch(value, inner = 0) {
  if (value < -1) return "unknown";
  if (value < 0) return "end";
  const text = NUMBER.format(value);
  return inner ? `${text}.${inner}` : text;
}

/** Where a checkpoint is: before an epoch, or before an iteration in it. */
export function moment(event) {
  if (event.epoch < 0) return "the end";
  const ahead = event.iterations ? `, and ${some(event.iterations.length - 1, "epoch")} after it in part` : "";
  return `epoch ${count(event.epoch)}${event.iteration ? `, iteration ${count(event.iteration)}` : ""}${ahead}`;
}

/**
 * A bound or a time, as the interface gives it: [3], [3, 2], [-1]; [3, 7, -2, 5] is epoch 3 up to 7, and epoch 4 up to 5.
 * @param {Bound | null | undefined} value
 * @returns {string}
 */
export function bound(value) {
  if (!value) return "–";
  if (value[0] === -1) return "all";
  if (value.includes(-2)) return steps(value).map(bound).join(" and ");
  if (value.every((at) => at === 0)) return value.length > 1 || value[0] === 0 ? "∅" : "0";
  const shown = value.map((at) => (at === -1 ? "∞" : NUMBER.format(at)));
  while (shown.length > 1 && shown[shown.length - 1] === "0") shown.pop();
  return shown.length === 1 ? shown[0] : `(${shown.join(", ")})`;
}

/**
 * The bound of each epoch that is kept in part.
 * @param {Bound} value
 */
function steps(value) {
  const depth = value.indexOf(-2);
  const found = [];
  for (let at = 0; at < value.length; at += depth) found.push([value[0] + at / depth, ...value.slice(at + 1, at + depth)]);
  return found;
}

/**
 * Whether a bound is before another one.
 * @param {Bound | null} a
 * @param {Bound | null} b
 */
export function less(a, b) {
  if (a === null || b === null) return a !== null;
  if (a[0] === -1) return false;
  if (b[0] === -1) return true;
  for (let at = 0; at < Math.min(a.length, b.length); at += 1) if (a[at] !== b[at]) return b[at] === -1 || (a[at] !== -1 && a[at] < b[at]);
  return a.length < b.length;
}

/**
 * An epoch that may be over, or that nobody may know.
 * @param {number | null | undefined} value
 */
export function epochOr(value) {
  return value === null || value === undefined || value < -1 ? "unknown" : value < 0 ? "ended" : count(value);
}

/**
 * How far `epoch` is behind `newest`, in epochs.
 * @param {number} value
 * @param {number | null | undefined} newest
 */
export function lag(value, newest) {
  return value < 0 || newest === null || newest === undefined ? 0 : Math.max(0, newest - value);
}

/**
 * One of a thing, or several.
 * @param {number} number
 * @param {string} what
 */
export function some(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}

/**
 * The place of a process, in words.
 * @param {{worker: number, copy?: number}} place
 */
export function placeOf({ worker, copy = 0 }) {
  return copy ? `copy ${copy} of worker ${worker}` : `worker ${worker}`;
}

/**
 * The place of a row: those at work come first, by worker, then each further copy.
 * @param {number} at
 * @param {number} workers
 */
export function placeAt(at, workers) {
  return placeOf({ worker: at % workers, copy: Math.floor(at / workers) });
}

/** @type {{[name: string]: [string, string]}} */
const policies = {
  Ephemeral: ["ephemeral", "E"],
  Batch: ["batch", "B"],
  Lazy: ["lazy", "L"],
  LogHistory: ["history", "H"],
  Eager: ["eager", "G"],
  Snapshot: ["snapshot", "S"],
  AtLeastOnce: ["again", "A"],
  Amnesia: ["amnesia", "N"],
  PassiveStandby: ["standby", "P"],
  mixed: ["mixed", "·"],
};

/**
 * The colour and the letter of a policy: nobody has to tell colours apart.
 * @param {string} name
 */
export function policy(name) {
  const [hue, letter] = policies[name] ?? ["other", name.slice(0, 1)];
  return { hue: `var(--${hue})`, letter };
}

/**
 * What a caught error says.
 * @param {unknown} problem
 */
export function wordsOf(problem) {
  return problem instanceof Error ? problem.message : String(problem);
}

const LABELS = new Set(["th", "dt", "h3", "h4"]);
const PROSE = new Set(["p", "li", "b", "code", "summary"]);

/** @type {(text: string, isLabel: boolean) => (string | Node)[]} */
let explain = (text) => [text];

/**
 * Have words explained: all that are known in labels, symbols in prose.
 * @param {typeof explain} how
 */
export function explainWith(how) {
  explain = how;
}

/**
 * An element, with attributes, and children or text.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{[name: string]: any}} [attributes]
 * @param {...any} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function html(tag, attributes = {}, ...children) {
  const isLabel = LABELS.has(tag) || attributes.class === "key";
  const parts = isLabel || PROSE.has(tag) ? children.flat().flatMap((child) => (typeof child === "string" ? explain(child, isLabel) : [child])) : children;
  return fill(document.createElement(tag), attributes, parts);
}

/**
 * The same, of a drawing.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{[name: string]: any}} [attributes]
 * @param {...any} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {HTMLElement | SVGElement} Made
 * @param {Made} element
 * @param {{[name: string]: any}} attributes
 * @param {any[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) Object.assign(element, { [name]: value }); // a property, so that `morph` can hand it on
    else if (name === "style") element.style.cssText = value ?? "";
    else if (name === "hue") element.style.setProperty("--hue", value);
    else if (name.startsWith("aria-") && typeof value === "boolean") element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Make the children of an element be `parts`, and touch only what differs: what is selected stays selected, and what is being
 * clicked is still there when the button goes up. Children with the same data-keep are the same.
 * @param {Element} element
 * @param {(string | Node)[]} parts
 */
export function morph(element, parts) {
  /** @type {Map<string, Element>} */
  const kept = new Map([...element.children].flatMap((child) => (keep(child) ? [[keep(child), child]] : [])));
  let there = element.firstChild;
  for (const part of parts) {
    const next = typeof part === "string" ? document.createTextNode(part) : part;
    const key = keep(next);
    const same = key ? kept.get(key) : there && !keep(there) && alike(there, next) ? there : null;
    if (!same || !alike(same, next)) {
      element.insertBefore(next, there);
      continue;
    }
    if (same !== there) element.insertBefore(same, there);
    else there = there.nextSibling;
    become(same, next);
  }
  while (there) {
    const after = there.nextSibling;
    there.remove();
    there = after;
  }
}

/**
 * What makes a child the same as one before; "" for nothing.
 * @param {any} child
 * @returns {string}
 */
function keep(child) {
  return child.dataset?.keep ?? "";
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function become(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of Array.from(old.attributes)) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value; // as an attribute the content security policy refuses it
    else old.setAttribute(name, value);
  }
  if (old.onclick !== next.onclick) old.onclick = next.onclick;
  morph(old, [...next.childNodes]);
}

/**
 * A text, in which addresses of pages are links.
 * @param {string} text
 */
export function linked(text) {
  const parts = text.split(/(https?:\/\/[^\s,;)]+)/);
  return parts.map((part, at) => (at % 2 ? html("a", { href: part, target: "_blank", rel: "noreferrer" }, part) : part));
}
