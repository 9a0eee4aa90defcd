// The plan as text, checked as it is typed. Faults are underlined in place; the one at the cursor is told in full.

import { check } from "./api.js";
import { h, say } from "./element.js";

const EXAMPLE = "For example: Who directed UHF? * When was {director} born?";

// The checker counts characters, JavaScript counts UTF-16 units.
const units = (text, characters) => Array.from(text).slice(0, characters).join("").length;

export class Editor {
  #checking = null;
  #faults = [];
  #original = "";
  #hasRun = false;
  #judged = null;

  // `run(plan, language, reuse)` runs the text; `reuse` says whether what has not changed is to be taken over.
  // `keep(plan)` keeps the text as the right plan of the run that is shown.
  constructor(run, keep) {
    this.text = h("textarea", { id: "plan-text", rows: "1", maxlength: "8000", spellcheck: "false", autocomplete: "off", autocapitalize: "off",
      "aria-label": "Plan", "aria-describedby": "faults",
      placeholder: EXAMPLE,
      oninput: () => this.#changed(), onkeydown: (event) => this.#key(event),
      onkeyup: () => this.#tell(), onclick: () => this.#tell() });
    this.underlay = h("pre", { class: "underlay", "aria-hidden": "true", "data-example": EXAMPLE });
    this.note = h("p", { class: "empty" });
    this.faults = h("div", { id: "faults" });
    this.changes = h("button", { type: "button", onclick: () => this.#run(run, true) }, "Run what has changed ", h("kbd", {}, "Ctrl+Enter"));
    this.anew = h("button", { type: "button", onclick: () => this.#run(run, false) }, "Run it all");
    this.right = h("button", { type: "button", class: "right", onclick: () => keep(this.text.value) }, "This plan is right");
    this.undo = h("button", { type: "button", class: "quiet", onclick: () => this.show(this.#original, this.language, this.#hasRun) }, "As it was");
    this.go = () => this.#run(run, true);
    this.element = h("div", { class: "card" },
      h("h2", {}, "Plan"),
      h("div", { class: "editor" }, this.underlay, this.text),
      h("div", { class: "verdict" }, this.faults, h("div", { class: "buttons" }, this.changes, this.anew, this.right, this.undo)));
    this.show("", undefined, false);
  }

  get edited() {
    return this.text.value !== this.#original;
  }

  // A plan that has run (or is being written by the model); without a language, the server takes its own default.
  // `note` is said while there is none.
  show(plan, language, hasRun, note = "") {
    this.note.textContent = note || "The plan will stand here. You can also write one.";
    this.#original = this.text.value = plan;
    this.#hasRun = hasRun;
    this.language = language;
    this.#changed();
  }

  // What a person said is the right plan of the run that is shown ("": nothing yet), null where nobody keeps it.
  judge(plan) {
    this.#judged = plan;
    this.#paint();
  }

  async #changed() {
    const text = this.text.value;
    this.#checking?.abort();
    this.#checking = new AbortController();
    this.#paint();
    if (!text.trim()) {
      this.#faults = [];
      this.verdict = null;
      this.#paint();
      return;
    }
    try {
      this.verdict = await check(text, this.language, this.#checking.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.faults.replaceChildren(h("p", { class: "notice bad" }, error.message));
      return;
    }
    this.#faults = this.verdict.diagnostics.map((fault) => ({ ...fault, from: units(text, fault.start), to: units(text, fault.end) }));
    this.#paint();
  }

  #paint() {
    const text = this.text.value;
    const pieces = [];
    let done = 0;
    for (const { from, to } of this.#faults) {
      if (from < done) continue;
      const end = Math.max(to, from + 1);
      pieces.push(text.slice(done, from), h("span", { class: "fault" }, text.slice(from, end) || " "));
      done = end;
    }
    this.underlay.replaceChildren(...pieces, text.slice(done), "\n");
    const empty = !text.trim();
    this.text.setAttribute("aria-invalid", String(this.#faults.length > 0));
    this.changes.hidden = empty || !this.#hasRun;
    this.anew.hidden = empty;
    this.right.hidden = empty || this.#judged === null;
    this.right.setAttribute("aria-pressed", String(text === this.#judged));
    this.changes.className = this.edited ? "primary" : "";
    this.changes.disabled = this.anew.disabled = this.right.disabled = empty || this.#faults.length > 0;
    this.undo.hidden = !this.edited || !this.#original;
    this.#tell();
  }

  // The faults below the text: the one under the cursor (else the first) in full, the others in a line each.
  #tell() {
    if (!this.#faults.length) {
      const { letters, leaves, advice } = this.verdict ?? {};
      const fine = this.text.value.trim() && this.verdict?.valid;
      const advised = (advice ?? []).map(({ message, hint }) => h("p", {}, `${message}: ${hint}`));
      this.faults.replaceChildren(...(fine ? [h("p", { class: "fine" }, "✓ valid", letters ? h("span", {}, ` ${letters}, ${leaves} ${leaves === 1 ? "leaf" : "leaves"}`) : ""), ...advised] : this.text.value.trim() ? [] : [this.note]));
      this.told = null;
      return;
    }
    const at = this.text.selectionStart;
    const current = this.#faults.find(({ from, to }) => from <= at && at <= to) ?? this.#faults[0];
    this.faults.replaceChildren(...this.#faults.map((fault) => (fault === current ? whole(fault) : this.#short(fault))));
    if (this.told !== current.message) say(`The plan is invalid: ${current.message}`);
    this.told = current.message;
  }

  #short(fault) {
    return h("button", { type: "button", class: "link fault-line", onclick: () => this.#to(fault) }, fault.message);
  }

  #to({ from }) {
    this.text.focus();
    this.text.setSelectionRange(from, from);
    this.#tell();
  }

  #key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.go();
    else if (event.key === "F8" && this.#faults.length) {
      const at = this.text.selectionStart;
      this.#to(this.#faults.find(({ from }) => from > at) ?? this.#faults[0]);
    } else return;
    event.preventDefault();
  }

  #run(run, reuse) {
    if (this.changes.disabled) return;
    run(this.text.value, this.language, reuse && this.#hasRun);
  }
}

function whole({ message, excerpt, hint }) {
  return h("div", { class: "fault-whole" }, h("p", {}, message), h("pre", { tabindex: "0" }, excerpt), h("p", { class: "hint" }, hint));
}
