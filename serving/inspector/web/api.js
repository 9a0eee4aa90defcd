// The routes of serving/inspector/app.py. Whatever goes wrong is a Fault: what, where, and how to mend it.

import { find } from "./element.js";

export class Fault extends Error {
  constructor({ message, where, hint, diagnostics, code, run }) {
    super(message);
    Object.assign(this, { where, hint, diagnostics: diagnostics ?? [], code, run });
  }
}

const TOKEN = "revelator-token";

async function send(path, { body, file, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (file !== undefined) headers["Content-Type"] = "application/octet-stream";
  if (sessionStorage.getItem(TOKEN)) headers.Authorization = `Bearer ${sessionStorage.getItem(TOKEN)}`;
  let response;
  try {
    const method = body === undefined && file === undefined ? "GET" : "POST";
    response = await fetch(path, { method, headers, signal, body: file ?? (body && JSON.stringify(body)) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault({ message: "the inspector does not answer", hint: "is `revelator inspect` still running?" });
  }
  if (response.status === 401) {
    await askForToken();
    return send(path, { body, file, signal });
  }
  if (!response.ok) {
    const { error } = await response.json();
    throw new Fault(typeof error === "string" ? { message: error } : error);
  }
  return response;
}

let asking = null; // one dialog, however many requests wait for it

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = find("#token");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(TOKEN, find("#token-text").value);
      find("#token-text").value = "";
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export const servers = async () => (await send("/api/servers")).json();
export const documents = async () => (await send("/api/documents")).json();
export const upload = async (file) => (await send(`/api/documents?name=${encodeURIComponent(file.name)}`, { file })).json();
export const runs = async () => (await send("/api/runs")).json();
export const run = async (id) => (await send(`/api/runs/${encodeURIComponent(id)}`)).json();
export const passage = async (id) => (await send(`/api/passages?id=${encodeURIComponent(id)}`)).json();
export const judge = async (id, judgement) => (await send(`/api/runs/${encodeURIComponent(id)}/judgement`, { body: judgement })).json();
export const check = async (text, language, signal) => (await send("/api/check", { body: { text, language }, signal })).json();

// The trace of a run as a file, which `revelator ask --reuse` takes.
export async function download(id) {
  const { trace } = await run(id);
  const url = URL.createObjectURL(new Blob([JSON.stringify(trace, null, 2), "\n"], { type: "application/json" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: `trace-${id}.json` }).click();
  URL.revokeObjectURL(url);
}

// Puts a question; `hear` is called with each event as it comes. Gives the `run` that was kept, or null, and its `trace_id`.
export async function ask(wanted, hear, signal) {
  const response = await send("/api/runs", { body: wanted, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Fault({ message: "the inspector broke off", hint: "its log may say why; ask again" });
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const event = JSON.parse(line);
      if (event.kind === "error") throw new Fault(event);
      if (event.kind === "saved") return event;
      hear(event);
    }
  }
}
