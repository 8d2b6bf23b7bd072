// Words in a given width, by the letters of the page's font as the browser draws them.

const MOST = 4000;
/** Measured at this size, in pixels: others are in proportion. */
const SIZE = 100;
/** A text is drawn so much wider than it was measured at most. */
const SLACK = 1.02;

const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
/** @type {Map<string, number>} */
const known = new Map();
let family = "";

/**
 * Width of a text, in pixels.
 * @param {string} text
 * @param {number} size
 * @param {number} weight
 */
export function wide(text, size, weight = 400) {
  const key = `${weight} ${text}`;
  let found = known.get(key);
  if (found === undefined) {
    family = family || getComputedStyle(document.body).fontFamily;
    pen.font = `${weight} ${SIZE}px ${family}`;
    found = pen.measureText(text).width;
    if (known.size >= MOST) known.clear();
    known.set(key, found);
  }
  return (found / SIZE) * size * SLACK;
}

/**
 * As much of a text as there is room for, with an ellipsis if it is not all; "" if that is not even two letters.
 * @param {string} text
 * @param {number} room
 * @param {number} size
 * @param {number} weight
 */
export function fitted(text, room, size, weight = 400) {
  if (wide(text, size, weight) <= room) return text;
  const letters = Array.from(text);
  let [least, most] = [0, letters.length - 1];
  const cut = (/** @type {number} */ count) => `${letters.slice(0, count).join("").trimEnd()}…`;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (wide(cut(middle), size, weight) <= room) least = middle;
    else most = middle - 1;
  }
  return least >= 2 ? cut(least) : "";
}
