// Everything about one node: what was asked, what was found, where it comes from, what it cost.

import { h, milliseconds } from "./element.js";
import { nameOf } from "./names.js";
import { MARKS } from "./tree.js";

const TOLD = ["kept", "probabilities", "method", "shared_from", "reused_from", "cached_from", "document", "probability", "calls"]; // of detail, each shown in its own way

// `choose(id)` goes to another node of the same run. `judging`, where a person's word is kept, says by `said` what was
// said of documents, and `say(id, relevant)` keeps more, and gives whether it was kept.
export function nodeDetail(node, choose, judging = null) {
  const link = (id) => h("button", { type: "button", class: "link", onclick: () => choose(id) }, `node ${id}`);
  const took = node.ended_ms - node.started_ms;
  const { method, shared_from, reused_from, cached_from } = node.detail;
  return h("article", { class: "node" },
    h("h2", {}, h("span", { class: `mark ${node.status}` }, MARKS[node.status]), ` ${node.id} ${nameOf(node.kind)}`),
    node.documents.length > 0 && documents(node, judging), // first: above the fold, beside plan and answer
    facts([
      ["as planned", node.question && node.question !== node.asked && node.question],
      ["asked", node.asked || (node.question === node.asked ? node.question : null)],
      ["takes", Object.entries(node.inputs).map(([name, id]) => h("span", {}, `{${name}} from `, link(id), " "))],
      ["answer", node.answers.length ? h("strong", {}, (node.kind === "route" ? node.answers.map(nameOf) : node.answers).join("; ")) : "none" in node.detail ? "none, for sure" : null],
      ["sentence", quote(node.sentence, findEvidence(node)?.text ?? "")],
      ["evidence", evidence(node)],
      ["source", [method, shared_from && h("span", {}, "the same as ", link(shared_from)),
        reused_from && `node ${reused_from} of the earlier run`,
        cached_from && `an earlier question, ${new Date(cached_from).toLocaleString()}`, !method && !shared_from && !reused_from && !cached_from && node.documents.length > 0 && "documents"]],
      ["error", node.error && h("span", { class: "error" }, node.error)],
      ["cause", node.cause && nameOf(node.cause).replaceAll("-", " ")],
      ["time", ["ok", "unanswered", "failed", "running"].includes(node.status) && `${milliseconds(Math.max(took, 0))}, from ${milliseconds(node.started_ms)} on`],
      ["cost", cost(node.usage)],
      ["calls", (node.detail.calls ?? []).map(called)],
      ...Object.entries(node.detail).filter(([name]) => !TOLD.includes(name)).map(([name, value]) => [nameOf(name).replaceAll("_", " "), plain(value)]),
    ]),
    node.detail.probabilities && likely(node.detail.probabilities[0]),
  );
}

// The passage that holds the answers, and how likely it answers the question.
function evidence(node) {
  const { probability } = node.detail;
  const passage = findEvidence(node);
  return [passage && namePassage(passage), probability === undefined ? "" : ` P = ${probability.toFixed(2)}`].filter(Boolean);
}

export function findEvidence({ documents, detail }) {
  return documents.find(({ id }) => id === detail.document);
}

const FILE = /^(.+)#(?=page=\d|\d+-\d)(?:page=(\d+))?/; // of an id: the file, and the page
const hasFile = ({ id }) => FILE.test(id);

export const addressOf = (id) => `/?passage=${encodeURIComponent(id)}`; // of a passage's own view

// A passage's headings, with its file and page: `Leave in handbook.pdf, page 3`. One from the web is a link, to the
// place that says the sentence; others do what `open` does, if it is given.
export function namePassage({ id, title }, sentence = "", open = null) {
  const [, file, page] = id.match(FILE) ?? [];
  const name = [title, file && (page ? `${file}, page ${page}` : file)].filter(Boolean).join(" in ") || id;
  const [, address] = id.match(/(?:^|:)(https?:\/\/[^\s<>()]+)$/) ?? [];
  const [said] = sentence.split("\n");
  const place = said ? `${address?.includes("#") ? "" : "#"}:~:text=${encodeURIComponent(said).replaceAll("-", "%2D")}` : "";
  if (address) return h("a", { href: address + place, target: "_blank", rel: "noreferrer" }, name);
  return open ? h("button", { type: "button", class: "link", onclick: open }, name) : name;
}

// Sentences, one a line, in quotation marks where the text says them, white space aside; a paraphrase has none.
export function quote(sentences, text) {
  const fold = (words) => words.trim().split(/\s+/).join(" ");
  const lines = sentences.split("\n").map(fold).filter(Boolean);
  return lines.map((line) => (fold(text).includes(line) ? `“${line}”` : line)).join(" ");
}

export function facts(pairs) {
  const told = pairs.map(([name, value]) => [name, Array.isArray(value) ? value.filter(Boolean) : value]);
  const kept = told.filter(([, value]) => value && value.length !== 0);
  return h("dl", { class: "facts" }, kept.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function cost(usage) {
  const counted = [[usage.model_calls, "prompt", "s"], [usage.generator_calls, "reading", "s"], [usage.retrievals, "search", "es"],
    [usage.tokens_in, "token", "s", " in"], [usage.tokens_out, "token", "s", " out"]];
  const told = counted.filter(([count]) => count);
  return told.map(([count, name, several, where = ""]) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : several}${where}`).join(", ");
}

// `2 × relevance, 18 ms, 341 tokens in`.
function called({ task, count, ms, tokens_in, tokens_out }) {
  return h("div", { class: "entry" }, [`${count} × ${nameOf(task)}`, milliseconds(ms), cost({ tokens_in, tokens_out })].filter(Boolean).join(", "));
}

// Whatever else a node knows, as words: lists in lines, values by their names.
function plain(value) {
  if (typeof value === "number") return String(Number(value.toPrecision(4)));
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value === null || typeof value !== "object") return String(value ?? "–");
  if (!Array.isArray(value)) return facts(Object.entries(value).map(([name, own]) => [name.replaceAll("_", " "), plain(own)]));
  if (value.every((own) => own === null || typeof own !== "object")) return value.map(plain).join(", ");
  return value.map((own) => h("div", { class: "entry" }, Array.isArray(own) ? plain(own) : inLine(own)));
}

// An object in one line, as `search: 1 count, 29.2 ms`, where all of its values are short.
function inLine(object) {
  const values = Object.entries(object ?? {});
  if (!values.every(([, own]) => own === null || typeof own !== "object")) return plain(object);
  return values.map(([name, own]) => `${name.replaceAll("_", " ")} ${plain(own)}`).join(", ");
}

function likely(probabilities) {
  const rows = Object.entries(probabilities).sort(([, one], [, other]) => other - one);
  return h("ul", { class: "likely" }, rows.map(([label, p]) => h("li", {}, h("span", {}, nameOf(label)), meter(p), h("span", {}, p.toFixed(2)))));
}

function meter(share) {
  const filled = h("span", { class: "filled" });
  filled.style.setProperty("--part", share);
  return h("span", { class: "meter", "aria-hidden": "true" }, filled);
}

function documents(node, judging) {
  const kept = node.detail.kept ?? [];
  const holds = (passage) => passage.id === node.detail.document;
  const order = [...node.documents].sort((one, other) =>
    holds(other) - holds(one) || kept.includes(other.id) - kept.includes(one.id) || (other.relevance ?? 0) - (one.relevance ?? 0));
  return h("section", { "aria-label": "Documents" }, h("h3", {}, order.length === 1 ? "1 document" : `${order.length} documents`, kept.length ? `, ${kept.length} read` : ""),
    order.map((document, place) => passage(document, kept.includes(document.id), place === 0, node.answers, judging)));
}

function passage(document, read, open, answers, judging) {
  return h("details", { class: read ? "document read" : "document", open },
    h("summary", {},
      h("span", { class: "title" }, document.title || document.id),
      read && h("span", { class: "badge reused" }, "read"),
      h("span", { class: "scores" }, `score ${Number(document.score.toPrecision(4))}`,
        document.relevance === null ? "" : [", relevant ", document.relevance.toFixed(2), meter(document.relevance)])),
    h("p", {}, marked(document.text, answers)),
    judging && relevance(document, judging),
    h("p", { class: "id" }, `document ${document.id} `, hasFile(document) && h("a", { class: "place", href: addressOf(document.id) }, "open")));
}

// Whether a person says that the document helps to answer the step's question.
function relevance({ id, title }, { said, say }) {
  const buttons = [["relevant", true], ["not relevant", false]].map(([text, relevant]) =>
    [h("button", { type: "button", "aria-pressed": String(said[id] === relevant), onclick: () => choose(relevant) }, text), relevant]);
  const choose = async (relevant) => {
    if (await say(id, relevant)) for (const [button, own] of buttons) button.setAttribute("aria-pressed", String(own === relevant));
  };
  return h("p", { class: "judging", role: "group", "aria-label": `Does ${title || id} help to answer?` }, buttons.map(([button]) => button));
}

// The text with the answers in it marked.
function marked(text, answers) {
  const at = answers.map((answer) => [text.indexOf(answer), answer.length]).filter(([start, length]) => start >= 0 && length > 1);
  const pieces = [];
  let done = 0;
  for (const [start, length] of at.sort(([one], [other]) => one - other)) {
    if (start < done) continue;
    pieces.push(text.slice(done, start), h("mark", {}, text.slice(start, start + length)));
    done = start + length;
  }
  return [...pieces, text.slice(done)];
}
