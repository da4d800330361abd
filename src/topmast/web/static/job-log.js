// <job-log>: the output of a task, from its end, as it grows. Only a few pages of it are in memory,
// however long it is.

const PAGE_BYTES = 65536;
const MOST_PAGES = 8;
const LOOK_MS = 1500;
/** No output is so long: what is read from there on is nothing, and says where the end is. */
const BEYOND = 2 ** 49;
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** @typedef {{text: string, from: number, to: number, attempt: number, complete: boolean}} Part */

function make(/** @type {string} */ tag, /** @type {Record<string, string>} */ attributes = {}, /** @type {(Node | string)[]} */ ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

/**
 * Where the first whole character of a part begins, and the last one ends: pages are cut at bytes.
 * @param {Uint8Array} bytes
 * @param {number} offset
 */
function whole(bytes, offset) {
  let begins = 0;
  while (offset > 0 && begins < Math.min(3, bytes.length) && inside(bytes[begins])) begins += 1;
  if (bytes.length < 4) return [begins, bytes.length]; // nothing more may come
  for (let back = 1; back < 4; back += 1) {
    const byte = bytes[bytes.length - back];
    if (inside(byte)) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return [begins, bytes.length - (length > back ? back : 0)];
  }
  return [begins, bytes.length];
}

/** Whether a byte of UTF-8 goes on with a character. */
function inside(/** @type {number} */ byte) {
  return (byte & 0xc0) === 0x80;
}

/** A part of the output, which knows its first byte. */
function page(/** @type {Part} */ part) {
  return make("span", { "data-from": String(part.from) }, part.text);
}

function begin(/** @type {Element | null} */ part) {
  return Number(/** @type {HTMLElement | null} */ (part)?.dataset.from ?? 0);
}

class JobLog extends HTMLElement {
  /** @type {HTMLElement} */ #text = make("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Lines of the output" });
  /** @type {HTMLElement} */ #line = make("p", { class: "dim", role: "status" });
  /** @type {HTMLInputElement} */ #follow = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", checked: "" }));
  /** @type {HTMLInputElement} */ #task = /** @type {HTMLInputElement} */ (make("input", { type: "number", min: "0", size: "5" }));
  /** @type {HTMLSelectElement} */ #attempt = /** @type {HTMLSelectElement} */ (make("select"));
  /** @type {HTMLElement} */ #earlier = make("button", { type: "button" }, "Earlier");
  /** @type {HTMLElement} */ #start = make("button", { type: "button" }, "From the start");
  #first = 0;
  #next = 0;
  #size = 0;
  /** Another one for each task and attempt that is shown: late answers of others are dropped. */
  #turn = 0;
  #complete = false;
  #asking = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #clock;

  connectedCallback() {
    this.#begin();
  }

  disconnectedCallback() {
    clearInterval(this.#clock);
  }

  #begin() {
    this.#task.value = this.dataset.task ?? "0";
    this.#task.max = String(Number(this.dataset.tasks) - 1);
    this.#offer(Number(this.dataset.attempts), this.dataset.attempt ?? "");
    this.#task.onchange = this.#attempt.onchange = () => void this.#open();
    this.#follow.onchange = () => void (this.#follow.checked && this.#open());
    this.#earlier.onclick = () => void this.#before();
    this.#start.onclick = () => void this.#open(0);
    const tools = make(
      "div", { class: "log-tools" },
      make("label", {}, "Task ", this.#task), make("label", {}, "Attempt ", this.#attempt),
      make("label", {}, this.#follow, " follow"), this.#start, this.#earlier,
    );
    this.replaceChildren(tools, this.#line, this.#text);
    void this.#open();
    this.#clock = setInterval(() => void this.#more(), LOOK_MS);
  }

  /** Attempts to choose from; "latest" goes on with the next one. */
  #offer(/** @type {number} */ count, /** @type {string} */ chosen) {
    const known = this.#attempt.options.length;
    for (let epoch = known + 1; epoch <= count; epoch += 1) {
      this.#attempt.append(make("option", { value: String(epoch) }, String(epoch)));
    }
    if (chosen) this.#attempt.value = chosen;
  }

  /** @returns {Promise<Part>} */
  async #read(/** @type {number} */ offset, /** @type {number} */ limit) {
    const query = new URLSearchParams({
      task: this.#task.value, attempt: this.#attempt.value, offset: String(offset), limit: String(limit),
    });
    const answer = await fetch(`/api/v1/jobs/${this.dataset.job}/logs?${query}`, { redirect: "error" });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail ?? String(answer.status));
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const [begins, ends] = whole(bytes, offset);
    const text = new TextDecoder().decode(bytes.subarray(begins, ends));
    const to = Number(answer.headers.get("X-Next-Offset")) - (bytes.length - ends);
    return {
      text: text.replace(SEQUENCES, "").replace(CONTROLS, ""), from: offset + begins, to,
      attempt: Number(answer.headers.get("X-Attempt")), complete: answer.headers.get("X-Complete") === "1",
    };
  }

  /** Show a task anew, from an offset, or else the end. */
  async #open(/** @type {number | undefined} */ from = undefined) {
    const turn = ++this.#turn;
    this.#complete = false;
    try {
      const end = (await this.#read(BEYOND, 1)).to;
      this.#size = end >= BEYOND ? 0 : end;
      const part = await this.#read(from ?? Math.max(0, this.#size - PAGE_BYTES), PAGE_BYTES);
      if (turn !== this.#turn) return;
      this.#text.replaceChildren(page(part));
      this.#first = part.from;
      this.#next = part.to;
      if (from !== undefined) this.#follow.checked = false;
      this.#settle(part);
      if (from === undefined) this.#text.scrollTop = this.#text.scrollHeight;
    } catch (error) {
      this.#say(`The output cannot be read: ${/** @type {Error} */ (error).message}`);
    }
  }

  /** What was written since. */
  async #more() {
    this.#offer(Number(this.dataset.attempts), "");
    if (document.hidden || this.#complete || this.#asking || !this.#follow.checked) return;
    this.#asking = true;
    try {
      await this.#goOn();
    } catch {
      this.#say("The output cannot be read now; it is asked for again.");
    } finally {
      this.#asking = false;
    }
  }

  async #goOn() {
    const turn = this.#turn;
    const part = await this.#read(this.#next, PAGE_BYTES);
    const isFull = part.to - this.#next > PAGE_BYTES / 2;
    const end = isFull ? (await this.#read(BEYOND, 1)).to : part.to;
    if (turn !== this.#turn) return;
    const atEnd = this.#text.scrollHeight - this.#text.scrollTop - this.#text.clientHeight < 40;
    // What is written faster than this reads is followed at its end: what is left out can be asked for.
    if (atEnd && end - part.to > PAGE_BYTES) return void (await this.#open());
    if (part.text) {
      this.#text.append(page(part));
      while (this.#text.childElementCount > MOST_PAGES) this.#text.firstElementChild?.remove();
      this.#first = begin(this.#text.firstElementChild);
      if (atEnd) this.#text.scrollTop = this.#text.scrollHeight;
    }
    this.#next = part.to;
    this.#settle(part);
  }

  /** A page of what was written before. */
  async #before() {
    const from = Math.max(0, this.#first - PAGE_BYTES);
    const turn = this.#turn;
    try {
      const part = await this.#read(from, this.#first - from);
      if (turn !== this.#turn) return;
      const height = this.#text.scrollHeight;
      this.#follow.checked = false;
      this.#text.prepend(page(part));
      this.#first = part.from;
      this.#text.scrollTop += this.#text.scrollHeight - height;
      while (this.#text.childElementCount > MOST_PAGES) {
        this.#next = begin(this.#text.lastElementChild);
        this.#text.lastElementChild?.remove();
      }
      this.#settle(part);
    } catch {
      this.#say("The output cannot be read now: try again.");
    }
  }

  #settle(/** @type {Part} */ part) {
    this.#size = Math.max(this.#size, this.#next);
    this.#complete = part.complete && this.#next >= this.#size;
    this.#text.hidden = this.#size === 0;
    this.#earlier.hidden = this.#first <= 0;
    this.#start.hidden = this.#first <= 0;
    const over = this.#complete ? "; it is complete" : "";
    this.#say(this.#size ? `Bytes ${this.#first.toLocaleString("en")} to ${this.#next.toLocaleString("en")}${over}` : this.#complete ? "It wrote nothing" : "Nothing is written yet");
  }

  #say(/** @type {string} */ text) {
    if (this.#line.textContent !== text) this.#line.textContent = text;
  }
}

customElements.define("job-log", JobLog);
