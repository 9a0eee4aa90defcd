// A passage of the index on its own: what a citation of a chat links to.

import { h } from "./element.js";
import { addressOf, facts, namePassage } from "./node.js";

// The passage between those before and behind it in its document.
export function showPlace({ passage, before, after }) {
  return h("article", { class: "card place" },
    h("h2", {}, namePassage(passage)),
    before && neighbour(before, "before"),
    h("p", { class: "text" }, h("mark", {}, passage.text)),
    after && neighbour(after, "behind it"),
    facts([["document", passage.id]]));
}

const neighbour = ({ id, text }, where) => h("div", {}, h("p", { class: "text" }, text), h("p", { class: "id" }, h("a", { href: addressOf(id) }, `the passage ${where}`)));
