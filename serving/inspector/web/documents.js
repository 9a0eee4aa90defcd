// The documents that are searched, and a place to drop more.

import * as api from "./api.js";
import { find, h, say } from "./element.js";

export class Documents {
  constructor() {
    this.input = h("input", { type: "file", multiple: true, id: "document-file", onchange: () => this.add([...this.input.files]) });
    this.state = h("ul", { class: "uploads", "aria-live": "polite" });
    this.list = h("details", {});
    this.dialog = find("#documents");
    find("#documents-body").append(
      h("label", { class: "drop", for: "document-file" }, "Drop documents here, or choose files", this.input), this.state, this.list);
    find("#documents-button").addEventListener("click", () => this.open());
    for (const kind of ["dragenter", "dragover"]) addEventListener(kind, (event) => this.#over(event));
    addEventListener("drop", (event) => this.#drop(event));
  }

  async open() {
    this.dialog.showModal();
    await this.#draw();
  }

  // Adds files one after the other: each is searched from the next question on.
  async add(files) {
    this.input.value = "";
    for (const file of files) {
      const line = h("li", {}, `${file.name}: being read …`);
      this.state.prepend(line);
      try {
        const { passages } = await api.upload(file);
        line.replaceChildren(`${file.name}: ${passages} ${passages === 1 ? "passage" : "passages"}, searched from the next question on`);
        line.className = "good";
      } catch ({ message, hint }) {
        line.replaceChildren(`${file.name}: ${message}`, hint ? h("span", { class: "hint" }, hint) : "");
        line.className = "bad";
      }
      say(line.textContent);
    }
    await this.#draw();
  }

  async #draw() {
    const { count, documents, kinds } = await api.documents();
    this.input.setAttribute("accept", kinds.join(","));
    const more = count - documents.length;
    this.list.replaceChildren(h("summary", {}, `${count} ${count === 1 ? "document is" : "documents are"} searched`),
      h("ul", {}, documents.map((name) => h("li", {}, name)), more > 0 && h("li", {}, `and ${more} more`)));
  }

  #over(event) {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  }

  #drop(event) {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    if (!this.dialog.open) this.open();
    this.add([...event.dataTransfer.files]);
  }
}
