// The page: what is in the address is what is shown (?run=ID, ?run=ID&with=ID, ?passage=ID, ?q=question to begin with).

import * as api from "./api.js";
import { compareNodes, compareWords, summary } from "./differences.js";
import { Documents } from "./documents.js";
import { Editor } from "./editor.js";
import { find, h, say } from "./element.js";
import { nameRoute, nameVersion } from "./names.js";
import { showPlace } from "./passage.js";
import { Replay } from "./replay.js";
import { RunView } from "./run_view.js";
import { RunList } from "./runs.js";

const [question, strategy, where, server, beside] = ["#question", "#strategy", "#where", "#server", "#beside"].map(find);
const editor = new Editor((plan, language, reuse) => ask({ plan, language, reuse: reuse ? shown[0].record.id : null }),
  (plan) => shown[0].judge({ plan }));
const list = new RunList();
let shown = []; // the run views on the page: none, one, or two beside each other
let documents = null; // the dialog, where a server takes documents
let stop = null; // ends the questions that are being asked

find("#plan").append(editor.element);
find("#runs").append(list.element);

// ---- asking

async function ask({ plan = null, language, reuse = null }) {
  const text = question.value.trim();
  if (!text || stop) return text || question.focus();
  const names = plan === null ? [server.value, beside.value].filter(Boolean) : [shown[0]?.record?.server ?? server.value];
  stop = new AbortController();
  going(true);
  editor.judge(null);
  if (plan === null) editor.show("", undefined, false);
  const views = place(names.length || 1);
  history.pushState(null, "", `/?q=${encodeURIComponent(text)}`);
  say("Asking.");
  const asked = views.map((view, at) => follow(view, { question: text, plan, language, strategy: plan === null ? strategy.value : undefined, where: where.value.trim() || undefined, server: names[at] || null, reuse }, stop.signal));
  const ids = await Promise.all(asked);
  going(false);
  stop = null;
  if (ids.every(Boolean)) history.replaceState(null, "", address(ids));
  if (ids.length === 2 && ids.every(Boolean)) await open();
  else await settle();
}

// Asks one server and shows each event; gives the id of the run that was kept, or null.
async function follow(view, wanted, signal) {
  const replay = new Replay();
  const record = { id: null, server: wanted.server ?? "", trace: { question: wanted.question, plan: wanted.plan, plan_language: wanted.language, nodes: [], versions: {} }, reuse: wanted.reuse };
  const clock = setInterval(() => view.show(record, (replay.atMs ?? 0) + performance.now() - heard), 100);
  let heard = performance.now();
  view.show(record, 0);
  const hear = (event) => {
    heard = performance.now();
    replay.add(event);
    record.trace = replay.trace();
    view.show(record, event.at_ms);
    if (event.kind === "planned" && wanted.plan === null && shown.length === 1) editor.show(record.trace.plan, record.trace.plan_language, false);
  };
  try {
    const kept = await api.ask(wanted, hear, signal);
    Object.assign(record, { id: kept.run, trace_id: kept.trace_id });
    clearInterval(clock);
    view.show(record);
    if (!record.id) view.fail({ message: "this run could not be kept", hint: "the inspector's log says why" });
    say(`Answer: ${record.trace.answer || "none"}`);
  } catch (error) {
    clearInterval(clock);
    record.id = error.run ?? null;
    record.error = error.name === "AbortError" ? { message: "stopped" } : { message: error.where ? `${error.where}: ${error.message}` : error.message, hint: error.hint };
    view.show(record);
    say(`No answer: ${record.error.message}`);
  }
  return record.id;
}

function going(on) {
  find("#submit").disabled = on;
  find("#cancel").hidden = !on;
  document.body.classList.toggle("going", on);
}

// ---- showing

const address = ([id, other]) => `/?run=${id}${other ? `&with=${other}` : ""}`;

// Makes room for one run, or for two beside each other.
function place(count) {
  shown = Array.from({ length: count }, () => new RunView());
  find("#run").replaceChildren(...shown.map(({ element }) => element));
  document.body.classList.toggle("two", count === 2);
  return shown;
}

// Shows what the address names.
async function open() {
  stop?.abort();
  const wanted = new URLSearchParams(location.search);
  const ids = [wanted.get("run"), wanted.get("with")].filter(Boolean);
  if (wanted.get("passage")) {
    const shows = await api.passage(wanted.get("passage")).then(showPlace, ({ message, hint }) => h("p", { class: "card bad" }, hint ? `${message}: ${hint}` : message));
    if (stop) return;
    place(0);
    find("#run").replaceChildren(shows);
    await settle();
    return;
  }
  if (!ids.length) {
    place(0);
    find("#run").replaceChildren(h("div", { class: "card empty" }, "Ask a question, and watch its plan being written and run."));
    question.value = wanted.get("q") ?? question.value;
    await settle();
    return;
  }
  const found = await Promise.allSettled(ids.map(api.run));
  if (stop) return; // a question was put meanwhile
  place(ids.length).forEach((view, at) => {
    const { value, reason } = found[at];
    view.show(value ?? { trace: { question: "", nodes: [], versions: {} }, error: reason, server: "" });
  });
  const [one, other] = found.map(({ value }) => value);
  if (one) [question.value, where.value] = [one.trace.question, one.trace.where ?? ""];
  if (one && other) setBeside(one.trace, other.trace);
  await settle();
}

function setBeside(left, right) {
  const marks = compareNodes(left, right);
  const words = compareWords(left.plan ?? "", right.plan ?? "");
  find("#run").prepend(h("p", { class: "card differences" }, summary(left, right, marks), " ",
    h("a", { href: address([shown[0].record.id]) }, "left alone"), " · ", h("a", { href: address([shown[1].record.id]) }, "right alone")));
  shown.forEach((view, side) => {
    view.mark(marks[side], words[side]);
    view.chosen = (id) => shown[1 - side].choose(marks[side].get(id)?.other, true);
  });
}

// The rest of the page, once what is shown is there.
async function settle() {
  const record = shown[0]?.record;
  document.title = record?.trace.question ? `${record.trace.question} – Revelator` : "Revelator inspector";
  if (shown.length === 1 && !stop) editor.show(record.trace.plan ?? "", record.trace.plan_language, Boolean(record.id), withoutPlan(record));
  editor.judge(shown[0]?.isKept ? record.judged?.plan ?? "" : null);
  list.show(await api.runs(), record?.id);
}

// What the plan's box says of a run that has none.
function withoutPlan({ trace, error }) {
  const steps = trace.nodes.filter(({ kind, parent }) => ["atomic", "direct"].includes(kind) && !parent).length;
  if (trace.plan || error || !steps) return "";
  const took = steps === 1 ? "one step" : `${steps} steps`;
  return `No plan was written: the question took ${took}${trace.route ? `, as its route is ${nameRoute(trace.route)}` : ""}. You can write one.`;
}

async function describeServers() {
  const servers = await api.servers();
  const options = () => servers.map(({ name, models }) => h("option", { value: name }, models.revelator ? `${name} (${nameVersion(models.revelator)})` : name));
  server.replaceChildren(...options());
  beside.replaceChildren(h("option", { value: "" }, "nothing"), ...options());
  if (servers.some(({ takes_documents }) => takes_documents)) {
    documents ??= new Documents();
    find("#documents-button").hidden = false;
  }
  document.body.classList.toggle("indexed", servers.some(({ has_passages }) => has_passages));
  document.querySelectorAll(".several").forEach((label) => (label.hidden = servers.length < 2));
  find("#servers").replaceChildren(...servers.map(({ name, models, error }) =>
    h("span", { class: error ? "server bad" : "server", title: error ?? "" }, error ? `${name} does not answer` : `${name}${models.revelator ? ` · ${nameVersion(models.revelator)}` : ""}`)));
}

// ---- keys and links

find("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask({});
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask({});
});
find("#cancel").addEventListener("click", () => stop?.abort());
find("#help-button").addEventListener("click", () => find("#help").showModal());

const KEYS = {
  "/": () => question.select(),
  e: () => editor.text.focus(),
  t: () => shown[0]?.tree.focus(),
  r: () => find("#runs a")?.focus(),
  d: () => documents?.open(),
  c: () => find("#runs .beside")?.click(),
  "?": () => find("#help").showModal(),
};

addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "Escape" && stop) stop.abort();
  else if (event.key === "Escape" && field && !field.matches("dialog")) field.blur();
  else if (!field && KEYS[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/?'], a[href='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  open().then(() => find("#run").focus());
});
addEventListener("popstate", open);
addEventListener("judged", async () => {
  editor.judge(shown[0].record.judged.plan ?? "");
  list.show(await api.runs(), shown[0].record.id);
});

await describeServers();
if (!stop) await open(); // a question that was put while the page loaded goes on
