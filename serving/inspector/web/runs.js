// The list of runs that are kept. Any of them can be opened, or set beside the one that is open.

import { h, milliseconds } from "./element.js";

// `open` is the id of the run on the page, if it shows one.
export function runList(runs, open) {
  if (!runs.length) return [h("h2", {}, "Runs"), h("p", { class: "empty" }, "What you ask is kept here.")];
  return [h("h2", {}, "Runs"), h("ol", { class: "runs" }, runs.map((run) => item(run, open)))];
}

function item({ id, question, answer, outcome, version, wall_ms, started_at }, open) {
  const day = new Date(started_at * 1000);
  const when = day.toDateString() === new Date().toDateString() ? day.toLocaleTimeString() : day.toLocaleDateString();
  return h("li", {},
    h("a", { href: `/?run=${id}`, "aria-current": id === open ? "true" : null },
      h("span", { class: "title" }, question),
      h("span", { class: `answers ${outcome}` }, answer || outcome),
      h("span", { class: "when" }, `${when}, ${milliseconds(wall_ms)}${version ? `, v${version}` : ""}`)),
    open && id !== open && h("a", { class: "beside", href: `/?run=${open}&with=${id}`, "aria-label": `compare with: ${question}` }, "compare"));
}
