// The tree of a run: a row a node, kept in place while the run goes on, so that focus and selection stay.

import { h, milliseconds } from "./element.js";
import { nameOf } from "./names.js";
import { endOf, inTreeOrder } from "./replay.js";

export const MARKS = { waiting: "·", running: "…", ok: "✓", unanswered: "∅", failed: "✗", skipped: "–" };

export class Tree {
  #rows = new Map();
  #drawn = new Map(); // what each row was last drawn from
  #folded = new Set();
  #choose;
  #enter;
  #trace = { nodes: [] };
  #marks = new Map();

  // `choose(id)` is called when a node is selected, `enter(id)` when one goes on from it.
  constructor(choose, enter) {
    this.#choose = choose;
    this.#enter = enter;
    this.element = h("div", { class: "tree", role: "tree", "aria-label": "Steps", onkeydown: (event) => this.#key(event) });
  }

  show(trace, { selected, atMs, marks = new Map() }) {
    this.#trace = trace;
    const order = inTreeOrder(trace.nodes);
    this.#marks = marks;
    this.element.style.setProperty("--end", endOf(trace, atMs));
    let hiddenBelow = Infinity;
    order.forEach(({ node, level, children }, place) => {
      if (level <= hiddenBelow) hiddenBelow = Infinity;
      const row = this.#row(node.id);
      row.hidden = level > hiddenBelow;
      if (children && this.#folded.has(node.id)) hiddenBelow = Math.min(hiddenBelow, level);
      const until = node.status === "running" ? Math.max(atMs ?? 0, node.ended_ms) : node.ended_ms;
      const mark = marks.get(node.id);
      const drawn = [node.status, node.asked, node.answers, node.error, Object.keys(node.detail), until, children, mark, this.#folded.has(node.id)].join("|");
      if (this.#drawn.get(node.id) !== drawn) this.#fill(row, node, { level, children, until, mark });
      this.#drawn.set(node.id, drawn);
      if (this.element.children[place] !== row) this.element.insertBefore(row, this.element.children[place] ?? null);
    });
    for (const [id, row] of this.#rows) {
      if (!order.some(({ node }) => node.id === id)) {
        row.remove();
        this.#rows.delete(id);
        this.#drawn.delete(id);
      }
    }
    this.select(selected);
  }

  select(id) {
    this.selected = this.#rows.has(id) ? id : undefined;
    const reachable = this.selected ?? this.#rows.keys().next().value;
    for (const [key, row] of this.#rows) {
      row.setAttribute("aria-selected", String(key === this.selected));
      row.tabIndex = key === reachable ? 0 : -1;
    }
  }

  focus() {
    this.element.querySelector('[tabindex="0"]')?.focus();
  }

  #row(id) {
    if (!this.#rows.has(id)) {
      const row = h("div", { role: "treeitem", class: "row", "data-node": id, onclick: () => this.#choose(id) });
      this.#rows.set(id, row);
    }
    return this.#rows.get(id);
  }

  #fill(row, node, { level, children, until, mark }) {
    row.className = `row ${node.status} ${node.kind} ${mark ?? ""}`;
    row.setAttribute("aria-level", level);
    if (children) row.setAttribute("aria-expanded", String(!this.#folded.has(node.id)));
    row.style.setProperty("--level", level - 1);
    row.style.setProperty("--start", node.started_ms);
    row.style.setProperty("--took", Math.max(until - node.started_ms, 0));
    const whole = !["atomic", "direct"].includes(node.kind) && node.question === this.#trace.question;
    const asked = whole ? "" : node.asked || node.question; // the question itself stands above the tree
    row.replaceChildren(
      h("span", { class: "fold", "aria-hidden": "true", onclick: (event) => this.#toggle(event, node.id) }, children ? "▾" : ""),
      h("span", { class: "mark", role: "img", title: node.status, "aria-label": node.status }, MARKS[node.status]),
      h("span", { class: "number" }, node.id),
      h("span", { class: "what" },
        h("span", { class: "kind" }, node.detail.step ? `step ${node.detail.step}` : nameOf(node.kind)), asked ? ` ${asked} ` : " ",
        node.answers.length ? h("span", { class: node.kind === "translate" ? "" : "answers" }, `→ ${saidBy(node).join("; ")}`) : "none" in node.detail && "→ none",
        badges(node, mark), node.error && h("span", { class: "error" }, node.error)),
      h("span", { class: "time" }, ["ok", "unanswered", "failed", "running"].includes(node.status) ? milliseconds(until - node.started_ms) : ""),
      h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "bar" })),
    );
  }

  #toggle(event, id) {
    event.stopPropagation();
    this.#fold(id, !this.#folded.has(id));
  }

  #fold(id, folded) {
    if (folded) this.#folded.add(id);
    else this.#folded.delete(id);
    this.show(this.#trace, { selected: this.selected, marks: this.#marks });
  }

  #key(event) {
    const shown = [...this.#rows.values()].filter((row) => !row.hidden).sort((a, b) => (a.compareDocumentPosition(b) & 4 ? -1 : 1));
    const row = event.target.closest(".row");
    const at = shown.indexOf(row);
    const id = row?.dataset.node;
    const open = row?.getAttribute("aria-expanded") === "true";
    const level = Number(row?.getAttribute("aria-level"));
    const outer = shown.slice(0, at).reverse().find((other) => Number(other.getAttribute("aria-level")) < level);
    const to = { ArrowDown: shown[at + 1], ArrowUp: shown[at - 1], Home: shown[0], End: shown.at(-1) }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to) this.#go(to);
    else if (event.key === "ArrowRight" && row.hasAttribute("aria-expanded")) open ? this.#go(shown[at + 1]) : this.#fold(id, false);
    else if (event.key === "ArrowLeft") open ? this.#fold(id, true) : outer && this.#go(outer);
    else if (event.key === "Enter" || event.key === " ") this.#enter(id);
    else return;
    event.preventDefault();
  }

  #go(row) {
    this.#choose(row.dataset.node);
    row.focus();
  }
}

const saidBy = ({ kind, answers }) => (kind === "route" ? answers.map(nameOf) : answers);
const DIFFERENCES = { differs: "differs", alone: "only here" };

function badges(node, mark) {
  const { shared_from, reused_from, cached_from, truncated, method } = node.detail;
  const computed = node.kind !== "route" && method && method !== "generator" && method !== "embedded";
  return [
    mark && h("span", { class: "badge" }, DIFFERENCES[mark]),
    shared_from && h("span", { class: "badge" }, `as ${shared_from}`),
    reused_from && h("span", { class: "badge reused" }, "from the earlier run"),
    cached_from && h("span", { class: "badge reused" }, "from an earlier question"),
    truncated && h("span", { class: "badge warn" }, "cut off"),
    computed && h("span", { class: "badge" }, method),
  ];
}
