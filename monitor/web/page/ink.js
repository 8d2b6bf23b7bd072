// How the space-time picture is painted: bands, contours and marks on a canvas, a row at a time.

/** Colours of the page's theme, read once for each. */
export class Colours {
  constructor() {
    this.theme = "";
    /** @type {{[name: string]: string}} */
    this.of = {};
  }

  /** True if they are others than before. */
  read() {
    const theme = document.documentElement.dataset.theme ?? "";
    if (theme === this.theme) return false;
    this.theme = theme;
    const style = getComputedStyle(document.documentElement);
    for (const name of ["surface", "faint", "line", "text", "soft", "accent", "danger", "focus", "danger-ground", "done", "restorable", "safe"]) this.of[name] = style.getPropertyValue(`--${name}`).trim();
    return true;
  }
}

/** Contours, by colour, dash and the shape at their upper end. */
export const CONTOURS = {
  progress: { colour: "accent", dash: /** @type {number[]} */ ([]), wide: 1.6 },
  restored: { colour: "danger", dash: [3, 2], wide: 1.6 },
  low: { colour: "focus", dash: /** @type {number[]} */ ([]), wide: 3 },
};

/**
 * A band from `x` to `to`.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} colour
 */
export function band(pen, colour, x, to, y, high) {
  if (to <= x) return;
  pen.fillStyle = colour;
  pen.fillRect(x, y, to - x, high);
}

/**
 * A band of what is lost: hatched, so that nobody has to tell its colour.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} colour
 */
export function hatched(pen, colour, x, to, y, high) {
  if (to <= x) return;
  pen.save();
  pen.beginPath();
  pen.rect(x, y, to - x, high);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = x - high; at < to; at += 5) {
    pen.moveTo(at, y + high);
    pen.lineTo(at + high, y);
  }
  pen.stroke();
  pen.restore();
}

/**
 * A piece of a contour: upright at `x`.
 * @param {CanvasRenderingContext2D} pen
 * @param {{colour: string, dash: number[], wide: number}} kind
 * @param {string} colour
 */
export function contour(pen, kind, colour, x, y, high) {
  pen.strokeStyle = colour;
  pen.lineWidth = kind.wide;
  pen.setLineDash(kind.dash);
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x, y + high);
  pen.stroke();
  pen.setLineDash([]);
}

/**
 * A checkpoint: a full diamond if it is kept, a hollow one while it is made, a ring when nothing needs it any more.
 * @param {CanvasRenderingContext2D} pen
 * @param {"kept" | "cut" | "gone"} kind
 * @param {Colours} colours
 */
export function checkpoint(pen, kind, colours, x, y, size) {
  pen.beginPath();
  if (kind === "gone") pen.arc(x, y, size * 0.6, 0, 7);
  else {
    pen.moveTo(x, y - size);
    pen.lineTo(x + size, y);
    pen.lineTo(x, y + size);
    pen.lineTo(x - size, y);
    pen.closePath();
  }
  pen.lineWidth = 1.2;
  pen.fillStyle = kind === "kept" ? colours.of.text : colours.of.surface;
  pen.strokeStyle = colours.of.text;
  pen.fill();
  pen.stroke();
}

/**
 * Words that fit.
 * @param {CanvasRenderingContext2D} pen
 */
export function words(pen, text, x, y, room) {
  let shown = text;
  while (shown.length > 2 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  pen.fillText(shown, x, y);
}
