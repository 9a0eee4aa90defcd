// The list of runs that are kept, with a search and a filter. Any of them can be opened, or set beside the open one.

import { h, milliseconds } from "./element.js";
import { nameVersion } from "./names.js";

const FILTERS = {
  "all runs": () => true,
  answered: ({ outcome }) => outcome === "answered",
  "not answered": ({ outcome }) => outcome !== "answered",
  "plan by hand": ({ by_hand }) => by_hand,
  "judged right": ({ right }) => right === true,
  "judged wrong": ({ right }) => right === false,
  "plan judged": ({ plan_judged }) => plan_judged,
  "not judged": ({ right, plan_judged }) => right === null && !plan_judged,
};

export class RunList {
  #runs = [];
  #open;

  constructor() {
    this.search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search runs", oninput: () => this.#draw() });
    this.filter = h("select", { "aria-label": "Filter runs", onchange: () => this.#draw() }, Object.keys(FILTERS).map((name) => h("option", {}, name)));
    this.controls = h("div", { class: "finding", hidden: true }, this.search, this.filter);
    this.found = h("div", { "aria-live": "polite" });
    this.element = h("div", {}, h("h2", {}, "Runs"), this.controls, this.found);
  }

  // `open` is the id of the run on the page, if it shows one.
  show(runs, open) {
    this.#runs = runs;
    this.#open = open;
    this.#draw();
  }

  #draw() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const holds = ({ question, answer, plan }) => words.every((word) => [question, answer, plan].join("\n").toLowerCase().includes(word));
    const found = this.#runs.filter((run) => FILTERS[this.filter.value](run) && holds(run));
    const count = found.length < this.#runs.length && h("p", { class: "empty" }, `${found.length || "None"} of ${this.#runs.length} runs`);
    this.controls.hidden = !this.#runs.length;
    if (!this.#runs.length) this.found.replaceChildren(h("p", { class: "empty" }, "What you ask is kept here."));
    else this.found.replaceChildren(...[count].filter(Boolean), h("ol", { class: "runs" }, found.map((run) => item(run, this.#open))));
  }
}

function item({ id, question, answer, outcome, by_hand, right, plan_judged, version, wall_ms, started_at }, open) {
  const day = new Date(started_at * 1000);
  const when = day.toDateString() === new Date().toDateString() ? day.toLocaleTimeString() : day.toLocaleDateString();
  const verdict = { true: "judged right", false: "judged wrong" }[right];
  return h("li", {},
    h("a", { href: `/?run=${id}`, "aria-current": id === open ? "true" : null },
      h("span", { class: "title" }, question),
      h("span", { class: `answers ${outcome}` }, answer || outcome),
      h("span", { class: "when" }, [`${when}, ${milliseconds(wall_ms)}`, version && nameVersion(version), verdict, plan_judged && "plan judged"].filter(Boolean).join(", "), by_hand && h("span", { class: "badge by-hand" }, "plan by hand"))),
    open && id !== open && h("a", { class: "beside", href: `/?run=${open}&with=${id}`, "aria-label": `compare with: ${question}` }, "compare"));
}
