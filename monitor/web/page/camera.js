// Pan and zoom of the drawing, by mouse, touch, wheel and keys.

import { choose, state } from "./state.js";

const LEAST = 0.06;
const MOST = 2.5;
const FAR = 0.5;

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
    this.size = { width: 100, height: 100 };
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

  /** A drawing of another size: shown whole, unless the reader has chosen a place before. */
  frame(width, height) {
    this.size = { width, height };
    if (!this.placed) this.fit(false);
    else this.apply(false);
  }

  fit(keep = true) {
    const { width, height } = this.stage.getBoundingClientRect();
    const fitting = Math.min((width - 24) / this.size.width, (height - 24) / this.size.height);
    // What is long and thin is shown from its beginning, at a size that can be read.
    this.scale = Math.min(1.1, Math.max(fitting, Math.min(0.62, (width - 24) / this.size.width)));
    this.x = (width - this.size.width * this.scale) / 2;
    this.y = Math.max(12, (height - this.size.height * this.scale) / 2);
    if (keep) this.scale = Math.min(1.1, fitting);
    if (keep) {
      this.x = (width - this.size.width * this.scale) / 2;
      this.y = (height - this.size.height * this.scale) / 2;
    }
    this.placed = keep;
    this.apply(keep);
  }

  /** Bring a rectangle of the drawing into the middle, unless all of it can be seen. */
  show(rect) {
    const { width, height } = this.stage.getBoundingClientRect();
    const scale = Math.max(this.scale, 0.55);
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
    this.stage.classList.toggle("far", this.scale < FAR);
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
