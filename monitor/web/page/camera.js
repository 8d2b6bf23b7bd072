// Pan and zoom of the drawing, by mouse, touch, wheel and keys.

import { choose, state } from "./state.js";

const LEAST = 0.06;
const MOST = 2.5;
/** Least scale of a drawing that nobody has moved yet. */
const FIRST = 0.4;
/** Below these scales nodes say less: first neither gauge nor bars, then nothing. */
const FAR = 0.66;
const DOTS = 0.2;

/**
 * How much larger letters in the drawing are than at its natural size: so they never get too small to be read.
 * @param {number} scale
 */
export function magnified(scale) {
  return Number(Math.max(1, 1 / scale).toFixed(3));
}

export class Camera {
  /**
   * @param {SVGElement} stage
   * @param {SVGElement} layer
   */
  constructor(stage, layer) {
    this.stage = stage;
    this.layer = layer;
    this.x = this.y = 0;
    this.scale = 1;
    /** @type {{width: number, height: number, nodes: {x: number, y: number, w: number, h: number}[]}} */
    this.size = { width: 100, height: 100, nodes: [] };
    /** Called with the scale, when it is another one. */
    this.scaled = (/** @type {number} */ _scale) => {};
    this.shown = 0;
    this.fingers = new Map();
    this.moved = false;
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("pointerdown", (event) => this.down(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, (event) => this.up(event));
    const given = state.camera?.split(",").map(Number);
    if (given?.length === 3 && given.every(Number.isFinite)) [this.x, this.y, this.scale] = given;
    this.placed = Boolean(given);
  }

  /**
   * Another drawing: shown whole, unless the reader has chosen a place before.
   * @param {{width: number, height: number, nodes: {x: number, y: number, w: number, h: number}[]}} picture
   */
  frame(picture) {
    this.size = picture;
    if (!this.placed) this.fit(false);
    else this.apply(false);
  }

  /**
   * Show all, beside what lies on the drawing; at first of a large one its beginning, at a size that can be read.
   * @param {boolean} [keep]
   */
  fit(keep = true) {
    const { width, height } = this.stage.getBoundingClientRect();
    const whole = this.placeIn({ x: 0, y: 0, width, height });
    const places = this.covered(whole) ? this.beside(width, height).map((room) => this.placeIn(room)) : [];
    const best = places.length ? places.reduce((one, other) => (other.scale > one.scale ? other : one)) : whole;
    this.scale = best.scale;
    this.x = best.x;
    this.y = best.y;
    if (!keep && this.scale < FIRST) {
      this.scale = FIRST;
      this.x = Math.max(12, (width - this.size.width * FIRST) / 2);
      this.y = Math.max(12, (height - this.size.height * FIRST) / 2);
    }
    this.placed = keep;
    this.apply(keep);
  }

  /** What lies on the drawing, in its coordinates. */
  laid() {
    const { left, top } = this.stage.getBoundingClientRect();
    return [...(this.stage.parentElement?.querySelectorAll("#legend, #tools") ?? [])]
      .map((one) => one.getBoundingClientRect())
      .filter((box) => box.width)
      .map((box) => ({ x: box.left - left, y: box.top - top, width: box.width, height: box.height }));
  }

  /** Rooms above and at the right of what lies below. */
  beside(width, height) {
    const laid = this.laid().filter((box) => box.y < height && box.y + box.height > 0);
    if (!laid.length) return [];
    const above = Math.min(...laid.map((box) => box.y));
    const right = Math.max(...laid.filter((box) => box.x < width / 3).map((box) => box.x + box.width), 0);
    const low = Math.min(...laid.filter((box) => box.x >= width / 3).map((box) => box.y), height);
    return [{ x: 0, y: 0, width, height: above }, { x: right, y: 0, width: width - right, height: low }].filter((room) => room.width > 200 && room.height > 150);
  }

  placeIn(room) {
    const scale = Math.min(1.1, (room.width - 24) / this.size.width, (room.height - 24) / this.size.height);
    return { scale, x: room.x + (room.width - this.size.width * scale) / 2, y: room.y + (room.height - this.size.height * scale) / 2 };
  }

  /** Whether something lies on a node. */
  covered({ scale, x, y }) {
    const laid = this.laid();
    return this.size.nodes.some((node) => laid.some((box) => node.x * scale + x < box.x + box.width && box.x < (node.x + node.w) * scale + x && node.y * scale + y < box.y + box.height && box.y < (node.y + node.h) * scale + y));
  }

  /** Bring a rectangle of the drawing into the middle, unless all of it can be seen. */
  show(rect) {
    const { width, height } = this.stage.getBoundingClientRect();
    const scale = Math.max(this.scale, FAR);
    const left = rect.x * scale + this.x;
    const top = rect.y * scale + this.y;
    const seen = scale === this.scale && left > 10 && top > 10 && left + rect.w * scale < width - 10 && top + rect.h * scale < height - 10;
    if (seen) return;
    this.scale = scale;
    this.x = width / 2 - (rect.x + rect.w / 2) * scale;
    this.y = height / 2 - (rect.y + rect.h / 2) * scale;
    this.apply(true);
  }

  zoom(factor, cx, cy) {
    const { width, height } = this.stage.getBoundingClientRect();
    cx ??= width / 2;
    cy ??= height / 2;
    const scale = Math.min(MOST, Math.max(LEAST, this.scale * factor));
    this.x = cx - ((cx - this.x) * scale) / this.scale;
    this.y = cy - ((cy - this.y) * scale) / this.scale;
    this.scale = scale;
    this.apply(true);
  }

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.apply(true);
  }

  apply(keep) {
    this.layer.setAttribute("transform", `translate(${this.x.toFixed(1)} ${this.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`);
    if (this.shown !== this.scale) {
      this.shown = this.scale;
      this.layer.style.setProperty("--k", String(magnified(this.scale)));
      this.stage.classList.toggle("far", this.scale < FAR);
      this.stage.classList.toggle("dots", this.scale < DOTS);
      this.scaled(this.scale);
    }
    if (keep) {
      this.placed = true;
      choose({ camera: [this.x, this.y, this.scale].map((value) => Number(value.toFixed(3))).join(",") });
    }
  }

  wheel(event) {
    event.preventDefault();
    const box = this.stage.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) >= 40 || event.deltaMode) {
      const lines = event.deltaMode ? event.deltaY * 30 : event.deltaY;
      this.zoom(Math.exp(-Math.max(-120, Math.min(120, lines)) / 420), event.clientX - box.left, event.clientY - box.top);
    } else this.pan(-event.deltaX, -event.deltaY);
  }

  down(event) {
    if (event.button) return;
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.moved = false;
  }

  move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    const dx = event.clientX - before.x;
    const dy = event.clientY - before.y;
    if (!this.moved && Math.hypot(dx, dy) < 4) return;
    if (!this.moved) {
      this.moved = true;
      this.stage.setPointerCapture(event.pointerId);
      this.stage.classList.add("moving");
    }
    if (this.fingers.size === 2) {
      const [other] = [...this.fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const box = this.stage.getBoundingClientRect();
      const apart = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      this.zoom(apart / Math.max(1, was), (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
    } else this.pan(dx, dy);
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  up(event) {
    this.fingers.delete(event.pointerId);
    if (!this.fingers.size) this.stage.classList.remove("moving");
    // A click that was a drag is none.
    if (this.moved) setTimeout(() => (this.moved = false), 0);
  }
}
