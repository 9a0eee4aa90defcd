// One run: its answer and figures, its tree, and the node that is selected.

import { download, judge } from "./api.js";
import { h, milliseconds, say as announce } from "./element.js";
import { Graph } from "./graph.js";
import { cost, facts, findEvidence, namePassage, nodeDetail, quote } from "./node.js";
import { nameRoute, nameVersion } from "./names.js";
import { Tree } from "./tree.js";

export class RunView {
  // `chosen(id)` is told of each selection.
  constructor(chosen = () => {}) {
    this.chosen = chosen;
    this.graph = new Graph((id) => this.choose(id));
    this.tree = new Tree((id) => this.choose(id), () => this.detail.focus());
    this.head = h("div", { class: "card head" });
    this.plan = h("p", { class: "plan-shown", hidden: true });
    this.detail = h("div", { class: "card detail", tabindex: "-1", "aria-label": "Node", role: "region" });
    this.steps = h("div", { class: "card steps" }, h("h2", {}, "Steps"), this.tree.element);
    this.element = h("div", { class: "run-view" }, this.head, this.plan, this.steps, h("div", { class: "side" }, this.graph.element, this.detail));
    this.marks = new Map();
  }

  // `record` is a run of the inspector: {id, server, trace, reuse, error}; `atMs` while it goes on.
  show(record, atMs) {
    this.record = record;
    this.atMs = atMs;
    this.head.replaceChildren(...head(record, atMs !== undefined, (id) => this.#open(id)), this.#judging(atMs !== undefined));
    this.#draw();
  }

  // What a person says of a run that MLflow was told of: right, wrong and why. The plan's box says which plan is right.
  #judging(going) {
    const { trace, judged } = this.record;
    if (going || !this.isKept) return "";
    this.comment = h("input", { class: "comment", placeholder: "Why? (optional)", "aria-label": "Comment", maxlength: 2000, value: this.comment?.value ?? judged?.comment ?? "" });
    const verdict = (right, text) =>
      h("button", { type: "button", "aria-pressed": String(judged?.right === right), onclick: () => this.judge({ right, comment: this.comment.value }) }, text);
    const corrected = judged?.plan && judged.plan !== trace.plan;
    return h("div", {}, h("p", { class: "judging", role: "group", "aria-label": "Is the answer right?" },
      verdict(true, "✓ Right"), verdict(false, "✗ Wrong"), this.comment),
      corrected && h("p", { class: "corrected" }, "Right plan: ", h("code", {}, judged.plan)));
  }

  // Does MLflow hold the run's trace, on which is kept what a person says?
  get isKept() {
    return Boolean(this.record.id && this.record.trace_id);
  }

  async judge(said) {
    try {
      const { judged } = await judge(this.record.id, said);
      this.show({ ...this.record, judged });
      dispatchEvent(new Event("judged"));
      announce("Kept.");
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  // What a person says of the documents of a node that asked something, once its run is kept; null where nobody keeps it.
  #judgingDocuments({ id, kind }) {
    if (this.atMs !== undefined || !this.isKept || kind !== "atomic") return null;
    const say = (document, relevant) => this.judge({ relevant: { [id]: { [document]: relevant } } });
    return { said: this.record.judged?.relevant?.[id] ?? {}, say };
  }

  mark(marks, words) {
    this.marks = marks;
    this.plan.hidden = false;
    this.plan.replaceChildren(...words.map(([word, differs]) => (differs ? [h("mark", {}, word.trimEnd()), " "] : word)).flat());
    this.#draw();
  }

  // A refusal, or a fault of the way there.
  fail({ message, where, hint }) {
    this.head.append(h("p", { class: "notice bad" }, where ? `${where}: ${message}` : message, hint && h("span", { class: "hint" }, hint)));
  }

  choose(id, quietly = false) {
    this.selected = id;
    this.tree.select(id);
    this.graph.select(id);
    this.#drawDetail();
    if (!quietly) this.chosen(id);
  }

  // Shows the passage that a node was answered from: it stands first, and unfolded.
  #open(id) {
    this.choose(id);
    this.detail.querySelector(".document")?.scrollIntoView({ block: "nearest" });
    this.detail.focus();
  }

  #draw() {
    const marks = new Map([...this.marks].map(([id, { mark }]) => [id, mark]));
    this.graph.show(this.record.trace, this.selected, this.atMs !== undefined);
    this.tree.show(this.record.trace, { selected: this.selected, atMs: this.atMs, marks });
    this.#drawDetail();
  }

  #drawDetail() {
    const node = this.record.trace.nodes.find(({ id }) => id === this.selected);
    const drawn = JSON.stringify([node ?? this.record.trace, this.atMs === undefined, this.record.id]);
    if (drawn === this.drawn) return; // what has been unfolded stays so
    this.drawn = drawn;
    this.detail.replaceChildren(...(node ? [nodeDetail(node, (id) => this.choose(id), this.#judgingDocuments(node))] : whole(this.record, this.atMs !== undefined)));
  }
}

function head({ id, trace, reuse, error }, going, open) {
  const outcome = going ? "running" : error ? "failed" : trace.outcome;
  return [
    h("p", { class: "asked" }, trace.question, trace.where && h("span", { class: "badge" }, `where ${trace.where}`)),
    h("p", { class: "answer" }, trace.answer || (going ? "…" : "no answer"), " ", h("span", { class: `badge ${outcome}` }, outcome),
      trace.plan_source === "given" && h("span", { class: "badge by-hand", title: "A person wrote or edited this plan" }, "plan by hand")),
    !going && trace.text && h("p", { class: "text" }, trace.text),
    !going && trace.answer && h("ol", { class: "sources" }, sources(trace, open)),
    ...(going ? [] : notes(trace).map((note) => h("p", { class: "notice warn" }, note))),
    trace.degraded && h("p", { class: "notice warn" }, trace.reason || "the model's own plan could not be used"),
    !going && !error && !trace.degraded && trace.outcome !== "answered" && trace.reason && h("p", { class: "notice warn" }, trace.reason),
    trace.deadline_exceeded && h("p", { class: "notice warn" }, "time ran out: the answer is made of what had been found by then"),
    error && h("p", { class: "notice bad" }, error.message, error.hint && h("span", { class: "hint" }, error.hint)),
    id && h("p", { class: "buttons" },
      h("a", { class: "button", href: `/?run=${id}` }, "Link to this run"),
      h("button", { type: "button", onclick: () => download(id) }, "Export JSON"),
      reuse && h("a", { class: "button", href: `/?run=${reuse}&with=${id}` }, "Compare with the run before the edit")),
  ].filter(Boolean);
}

// What the numbers in the answer's text stand for: each passage that a step was answered from, once, with the sentences
// of all these steps. `open(id)` shows the passage of a node.
function sources({ nodes }, open) {
  const held = new Map();
  for (const node of nodes.filter((node) => node.status === "ok" && findEvidence(node))) {
    const passage = findEvidence(node);
    const key = [passage.id, passage.title, passage.text].join("\n");
    const source = held.get(key) ?? { id: node.id, passage, sentences: new Set() };
    node.sentence.split("\n").forEach((sentence) => source.sentences.add(sentence));
    held.set(key, source);
  }
  return [...held.values()].map(({ id, passage, sentences }) => {
    const all = [...sentences].join("\n");
    const said = quote(all, passage.text);
    return h("li", {}, namePassage(passage, all, () => open(id)), said && `: ${said}`);
  });
}

// How the question was read, where it could have been read otherwise.
function notes({ nodes }) {
  const said = nodes.flatMap(({ detail }) => [
    detail.rewritten && `read as: ${detail.rewritten}`,
    ...Object.entries(detail.respelled ?? {}).map(([word, near]) => `no document says “${word}”: read as “${near.join("” or “")}”`),
    ...Object.values(detail.scored ?? {}).map(({ scored, of }) => `scored ${scored} of ${of} passages: those that a term brings`),
  ]);
  return [...new Set(said.filter(Boolean))];
}

// How the question went as a whole, while no step is selected.
function whole({ server, trace }, going) {
  const { revelator: version, retriever: index } = trace.versions ?? {};
  const route = trace.nodes.find(({ kind }) => kind === "route")?.detail.probabilities?.[0][trace.route];
  return [
    facts([
      ["route", trace.route && (route === undefined ? nameRoute(trace.route) : `${nameRoute(trace.route)}, P = ${route.toFixed(2)}`)],
      ["time", !going && trace.usage && `${milliseconds(trace.wall_ms)}, longest chain ${milliseconds(trace.critical_path_ms)}`],
      ["cost", !going && trace.usage && cost(trace.usage)],
      ["server", `${server}${version ? `, revelator: ${nameVersion(version)}` : ""}${index ? `, index: ${nameVersion(index)}` : ""}`],
      ["asked", trace.started_at && new Date(trace.started_at * 1000).toLocaleString()],
    ]),
    h("p", { class: "empty" }, "Select a step to see what it asked, found and cost."),
  ];
}
