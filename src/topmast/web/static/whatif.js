// The what-if page: changes of each kind in rows; it begins one by REST, and looks how far it is.
import { refresh } from "./live.js";

const LOOK_MS = 1000;
/** Lines of faults that have an id. */
let told = 0;

/** @typedef {HTMLInputElement | HTMLSelectElement} Field */
/** @typedef {{field: string, detail: string, remedy?: string}} Fault */

/** What the form asks for, and which of its fields says what. */
class Asked {
  constructor(/** @type {HTMLFormElement} */ form) {
    /** @type {Record<string, any>} */
    this.body = Object.create(null);
    /** By the path in the body. @type {Map<string, Field>} */
    this.fields = new Map();
    /** What is wrong before the server is asked. @type {[Field, string][]} */
    this.faults = [];
    const named = (/** @type {string} */ name) => /** @type {Field[]} */ ([...form.querySelectorAll(`[name="${name}"]`)]);
    const [ahead] = named("for");
    const [profile] = named("profile");
    this.body.for_s = Number(ahead.value);
    this.fields.set("for_s", ahead);
    if (profile.value) this.body.profile = profile.value;
    this.fields.set("profile", profile);
    this.counts("add_hosts", named("add"), named("count"));
    this.counts("quotas", named("quota"), named("gpus"));
    this.jobs(named("job"), named("change"));
    this.regions(named("lose"));
  }

  /** Note a value at its place; of what is said twice only one would count. */
  note(/** @type {string[]} */ path, /** @type {any} */ value, /** @type {Field} */ field, /** @type {string} */ what) {
    const key = path.join(".");
    if (this.fields.has(key)) this.faults.push([field, `${what} is there twice: leave one`]);
    this.fields.set(key, field);
    let at = this.body;
    for (const name of path.slice(0, -1)) at = at[name] ??= Object.create(null);
    at[path[path.length - 1]] = value;
  }

  counts(/** @type {string} */ kind, /** @type {Field[]} */ names, /** @type {Field[]} */ numbers) {
    names.forEach((field, at) => {
      if (!field.value) return;
      const text = numbers[at].value;
      this.note([kind, field.value], text === "" ? null : Number(text), field, field.value);
    });
  }

  jobs(/** @type {Field[]} */ jobs, /** @type {Field[]} */ changes) {
    jobs.forEach((field, at) => {
      const [job, change] = [field.value.trim(), changes[at].value];
      if (!job && change) this.faults.push([field, "say which job, such as j7"]);
      if (job && !change) this.faults.push([changes[at], "say what it has instead"]);
      if (!job || !change) return;
      const [key, value] = change.split("=");
      this.note(["jobs", job, key], valueOf(value), changes[at], `the same of ${job}`);
      if (!this.fields.has(`jobs.${job}`)) this.fields.set(`jobs.${job}`, field);
    });
  }

  regions(/** @type {Field[]} */ regions) {
    for (const field of regions) {
      if (!field.value) continue;
      (this.body.lose_regions ??= []).push(field.value);
      const key = `lose_regions.${field.value}`;
      if (this.fields.has(key)) this.faults.push([field, `${field.value} is there twice: leave one`]);
      this.fields.set(key, field);
    }
  }
}

/** `true` and numbers are values of JSON, other words are texts. */
function valueOf(/** @type {string} */ text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Say what is wrong: beside the fields, and of the rest at the end of the form. */
function tell(/** @type {HTMLFormElement} */ form, /** @type {[Field, string][]} */ faults, /** @type {string[]} */ rest) {
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-describedby");
  }
  for (const line of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".fault"))) {
    line.textContent = "";
    line.hidden = true;
  }
  for (const [field, text] of faults) {
    const line = /** @type {HTMLElement} */ (field.closest(".change")?.querySelector(".fault"));
    line.textContent = [line.textContent, text].filter(Boolean).join("; ");
    line.hidden = false;
    line.id ||= `fault-${++told}`;
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", line.id);
  }
  const count = faults.length === 1 ? "One field is" : `${faults.length} fields are`;
  const lines = [...(faults.length ? [`${count} wrong, see above.`] : []), ...rest];
  const line = /** @type {HTMLElement} */ (document.getElementById("whatif-trouble"));
  line.textContent = lines.join(" ");
  line.hidden = lines.length === 0;
  faults[0]?.[0].focus();
}

/** What the server refuses, by field as far as the form has it. */
function refused(/** @type {HTMLFormElement} */ form, /** @type {Asked} */ asked, /** @type {Fault[]} */ problems) {
  /** @type {[Field, string][]} */
  const faults = [];
  const rest = [];
  for (const { field, detail, remedy } of problems) {
    const text = [detail, remedy].filter(Boolean).join("; ");
    const at = asked.fields.get(field ?? "");
    if (at) faults.push([at, text]);
    else rest.push(field ? `${field}: ${text}.` : `${text}.`);
  }
  tell(form, faults, rest);
}

/** Another what-if runs: say so until it has ended. */
function untilItEnds(/** @type {HTMLFormElement} */ form) {
  const line = /** @type {HTMLElement} */ (document.getElementById("whatif-trouble"));
  const said = line.textContent;
  const look = () => {
    if (document.querySelector("[data-running]")) return;
    if (line.textContent === said) tell(form, [], []);
    document.removeEventListener("topmast:drawn", look);
  };
  document.addEventListener("topmast:drawn", look);
  refresh();
}

document.addEventListener("submit", async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.id !== "whatif") return;
  event.preventDefault();
  const asked = new Asked(form);
  tell(form, asked.faults, []);
  if (asked.faults.length) return;
  try {
    const answer = await fetch("/api/v1/whatif", {
      method: "POST", redirect: "error", headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked.body),
    });
    const document_ = await answer.json();
    if (answer.status === 401) tell(form, [], ["Your login has ended. Log in again in another tab, then compare."]);
    else if (answer.ok) location.assign(`/whatif?id=${encodeURIComponent(document_.id)}`);
    else refused(form, asked, document_.errors?.length ? document_.errors : [document_]);
    if (answer.status === 409) untilItEnds(form);
  } catch {
    tell(form, [], ["The server does not answer."]);
  }
});

document.addEventListener("click", (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest("#whatif button[type=button]");
  if (!(button instanceof HTMLElement)) return;
  const all = /** @type {HTMLElement} */ (button.closest("fieldset"));
  const another = /** @type {HTMLElement} */ (all.querySelector("[data-another]"));
  if (button === another) {
    const template = /** @type {HTMLTemplateElement} */ (all.querySelector("template"));
    another.before(template.content.cloneNode(true));
    const rows = all.querySelectorAll(".change");
    /** @type {Field} */ (rows[rows.length - 1].querySelector("select, input")).focus();
  } else {
    button.closest(".change")?.remove();
    another.focus();
  }
});

setInterval(() => {
  if (document.querySelector("[data-running]") && !document.hidden) refresh();
}, LOOK_MS);
