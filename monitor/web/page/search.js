// Finding an operator by its name, kind, region or file.

import { html } from "./words.js";

const MOST = 40;

export class Search {
  constructor(root, choose) {
    this.input = root.querySelector("input");
    this.list = root.querySelector("ul");
    this.choose = choose;
    /** @type {Operator[]} */
    this.operators = [];
    /** Rank, operator, and which member of it, if one of a fused chain.
     * @type {[number, number, string | null][]} */
    this.found = [];
    this.at = 0;
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => this.look());
    this.input.addEventListener("blur", () => setTimeout(() => (this.list.hidden = true), 150));
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  look() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (operator) => `${operator.name} ${operator.kind} ${operator.region ?? ""} ${operator.scope.join("/")} ${operator.site}`.toLowerCase();
    this.found = [];
    if (words.length) {
      this.operators.forEach((operator, index) => {
        const all = text(operator);
        if (words.every((word) => all.includes(word))) this.found.push([operator.name.toLowerCase().startsWith(words[0]) ? 0 : 1, index, null]);
        for (const member of operator.members) {
          const name = member.toLowerCase();
          if (member !== operator.name && words.every((word) => name.includes(word))) this.found.push([name.startsWith(words[0]) ? 0 : 1, index, member]);
        }
      });
      this.found.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    }
    this.at = 0;
    this.show();
  }

  show() {
    this.list.hidden = !this.input.value;
    const rows = this.found.slice(0, MOST).map(([, index, member], place) => {
      const operator = this.operators[index];
      const row = html("li", { role: "option", "aria-selected": place === this.at }, html("span", {}, member ?? operator.name), html("small", {}, member ? `fused into ${operator.name}` : operator.kind));
      row.addEventListener("pointerdown", () => this.take(place));
      return row;
    });
    this.list.replaceChildren(...(rows.length ? rows : [html("li", {}, html("small", {}, "nothing of that name"))]));
  }

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const count = Math.min(this.found.length, MOST);
      if (count) this.at = (this.at + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      this.show();
      event.preventDefault();
    } else if (event.key === "Enter") this.take(this.at);
    else if (event.key === "Escape") {
      this.input.value = "";
      this.input.blur();
    }
    event.stopPropagation();
  }

  take(place) {
    const found = this.found[place];
    if (!found) return;
    this.list.hidden = true;
    this.input.blur();
    this.choose(found[1], found[2]);
  }
}
