// The plan as a graph: a box for each leaf, below those whose answers it uses; the boxes fill in while the run goes on.

import { h, svg } from "./element.js";
import { MARKS } from "./tree.js";

const FRAMES = ["dependent", "sequence"]; // nodes that only hold others, one after the other or side by side
const ANSWER = "answer"; // id of the last box, which no node has

export class Graph {
  #choose;
  #drawn;
  #edges = [];

  // `choose(id)` is called when a leaf is selected.
  constructor(choose) {
    this.#choose = choose;
    this.lines = svg("svg", { class: "edges", "aria-hidden": "true" });
    this.stages = h("div", { class: "stages" });
    this.element = h("div", { class: "card graph", hidden: true, role: "group", "aria-label": "Plan graph" },
      h("h2", {}, "Plan graph"), h("div", { class: "drawing" }, this.lines, this.stages));
    new ResizeObserver(() => this.#connect()).observe(this.stages);
  }

  // A plan of one leaf, one without frames and a run without a plan have no graph; the steps show all that there is.
  show(trace, selected, going) {
    const { leaves, edges } = arrange(trace.nodes);
    this.element.hidden = leaves.size < 2 || !trace.plan;
    const nodes = [...leaves.keys()].map((id) => trace.nodes.find((node) => node.id === id));
    const drawn = JSON.stringify([going, trace.answer, nodes.map(({ id, status, asked, question, answers }) => [id, status, asked, question, answers]), edges]);
    if (!this.element.hidden && this.#drawn !== drawn) {
      const rows = [];
      nodes.forEach((node, place) => (rows[leaves.get(node.id)] ??= [])[place] = [this.#box(node, place)]);
      this.#edges = edges.map(([from, to]) => {
        const [stage, passed] = [leaves.get(from), (leaves.get(to) ?? rows.length) - 1];
        const gaps = rows.map((_, at) => at).filter((at) => at > stage && at <= passed);
        const place = nodes.findIndex(({ id }) => id === from);
        for (const at of gaps) (rows[at][place] ??= []).push(h("span", { class: "gap", "data-leaf": `${from} ${to} ${at}` }));
        return [from, ...gaps.map((at) => `${from} ${to} ${at}`), to];
      });
      const status = going ? "waiting" : trace.answer ? "ok" : "unanswered";
      rows.push([h("p", { class: `leaf ${status}`, "data-leaf": ANSWER }, h("span", { class: "what" }, "Answer"), h("span", { class: "answers" }, trace.answer || (going ? "…" : "none")))]);
      this.stages.replaceChildren(...rows.filter(Boolean).map((boxes) => h("div", { class: "stage" }, boxes.flat())));
      this.#drawn = drawn;
      this.#connect();
    }
    this.select(selected);
  }

  select(id) {
    for (const box of this.stages.querySelectorAll("button")) box.setAttribute("aria-pressed", String(box.dataset.leaf === id));
  }

  #box({ id, status, asked, question, answers, detail }, place) {
    return h("button", { type: "button", class: `leaf ${status}`, "data-leaf": id, onclick: () => this.#choose(id) },
      h("span", { class: "what" }, h("span", { class: "mark", role: "img", "aria-label": status }, MARKS[status]), ` ${detail.step ?? letter(place)}  ${asked || question}`),
      answers.length ? h("span", { class: "answers" }, answers.join("; ")) : "");
  }

  // Lines follow the boxes, wherever the window's width has put them, and pass others by the gaps beside them.
  #connect() {
    const frame = this.stages.getBoundingClientRect();
    this.lines.setAttribute("viewBox", `0 0 ${frame.width || 1} ${frame.height || 1}`);
    const boxes = new Map([...this.stages.querySelectorAll("[data-leaf]")].map((box) => [box.dataset.leaf, box.getBoundingClientRect()]));
    this.lines.replaceChildren(...this.#edges.filter((way) => way.every((id) => boxes.has(id))).map((way) => {
      const [first, ...others] = way.map((id) => boxes.get(id)).map(({ left, width, top, bottom }) => ({ x: left + width / 2 - frame.left, top: top - frame.top, bottom: bottom - frame.top }));
      let [x, y, d] = [first.x, first.bottom, `M${first.x} ${first.bottom}`];
      for (const next of others) {
        d += `C${x} ${(y + next.top) / 2} ${next.x} ${(y + next.top) / 2} ${next.x} ${next.top}`;
        if (next !== others.at(-1)) d += `V${next.bottom}`;
        [x, y] = [next.x, next.bottom];
      }
      return svg("path", { d });
    }));
  }
}

// {leaves: Map id → stage, edges: [[from, to]]}. What a leaf takes is known when it is asked; until then it follows what
// stands before it in the plan.
export function arrange(nodes) {
  const leaves = new Map();
  const before = new Map();
  const place = (node, stage, exits) => {
    const inner = nodes.filter(({ parent }) => parent === node.id);
    if (!FRAMES.includes(node.kind)) {
      const inputs = Object.values(node.inputs);
      leaves.set(node.id, stage);
      before.set(node.id, inputs.length ? inputs : exits);
      return { stage: stage + 1, exits: [node.id] };
    }
    if (node.kind === "dependent") return inner.reduce((at, child) => place(child, at.stage, at.exits), { stage, exits });
    const sides = inner.map((child) => place(child, stage, exits));
    return { stage: Math.max(stage, ...sides.map((side) => side.stage)), exits: sides.flatMap((side) => side.exits) };
  };
  const root = nodes.find(({ kind, parent }) => FRAMES.includes(kind) && !parent);
  if (root) before.set(ANSWER, place(root, 0, []).exits);
  return { leaves, edges: [...before].flatMap(([to, froms]) => froms.map((from) => [from, to])) };
}

const letter = (place) => (place < 26 ? String.fromCharCode(65 + place) : String(place + 1));
