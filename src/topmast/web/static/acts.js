// Acts by REST: first a dry run, whose answer the reader sees in words, then the act itself.
//
// A button says in `data-act`, as JSON: the `url` of the route; a `title`; what `body` is sent; the id
// of a template with further `fields`; a `note` on what it means; a `method` other than POST; and that
// it is `plain`, without a dry run and a reason; `then` the page that all tabs go to after it. A field `data-as="path"` fills in `{name}` of the url. Within an element with `data-list` it is about what is selected.
import { leave, refresh, toLogin } from "./live.js";
import { selectedRows, targetsOf, unselect } from "./selection.js";
import { serverNowS } from "./times.js";
import { told } from "./told.js";

const LINES_SHOWN = 20;
const SAID_MS = 6000;
/** A field is typed in when nothing came for so long. */
const TYPED_MS = 250;
/** A server that does not answer is asked again after so long. */
const AGAIN_MS = 2000;
/** Of what a filter leaves at most so many are named one by one. */
const MOST_NAMED = 10_000;

/** A number without a sign; a name and a whole number. */
const DECIMAL = /^[0-9]+(\.[0-9]+)?$/;
const AMOUNT = /^([^=\s]+)\s*=\s*([0-9]+)$/;

/** @typedef {Record<string, any>} Body */
/** @typedef {{url: string, title: string, body?: Body, fields?: string, note?: string, method?: string, plain?: boolean, then?: string}} Act */

/** The dialog of all acts, and a part of it. */
const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("confirm"));
const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (dialog.querySelector(`[data-part="${name}"]`));

/** How many times was asked: only the last answer is shown. */
let asked = 0;
/** @type {Body} What the act is about, as its dry run has shown it. */
let meant = {};
/** Whether an act was refused: the page offers what cannot be done any more. */
let stale = false;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let saying;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let typing;
/** What to do when the reader comes back from a login. */
let back = () => {};

/** Say for a moment what was done. */
function say(/** @type {string} */ text) {
  const line = /** @type {HTMLElement} */ (document.getElementById("said"));
  clearTimeout(saying);
  line.textContent = text;
  line.hidden = false;
  saying = setTimeout(() => { line.hidden = true; }, SAID_MS);
}

/** What is sent without a body is told in the address. */
function queryOf(/** @type {Act} */ act, /** @type {Body} */ body) {
  if (act.method !== "DELETE" || act.plain) return "";
  const { reason = "", dry_run = false } = body;
  return `?${new URLSearchParams({ ...(reason ? { reason } : {}), dry_run: String(dry_run) })}`;
}

/** What is sent. */
async function send(/** @type {Act} */ act, /** @type {Body} */ body) {
  const answer = await fetch(urlOf(act) + queryOf(act, body), {
    method: act.method ?? "POST", redirect: "error",
    headers: { "Content-Type": "application/json" },
    body: act.method === "DELETE" ? null : JSON.stringify(body),
  });
  const found = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Refusal(found, answer.status);
  return found;
}

/** What the server refuses: each fault by its field, with what to do about it. */
class Refusal extends Error {
  constructor(/** @type {any} */ problem, /** @type {number} */ status) {
    super(problem.title);
    this.status = status;
    /** @type {any[]} */
    const faults = problem.errors?.length ? problem.errors : [problem];
    this.faults = faults.map(({ field, detail = `the server answers ${status}`, remedy }) =>
      [field ? `${field}: ${detail}` : detail, remedy].filter(Boolean).join("; "));
  }
}

function fieldsOf() {
  const fields = /** @type {NodeListOf<HTMLInputElement | HTMLSelectElement>} */ (dialog.querySelectorAll("input, select"));
  return [...fields].filter((field) => field.name && !field.closest("[hidden]"));
}

function urlOf(/** @type {Act} */ act) {
  const parts = fieldsOf().filter((field) => field.dataset.as === "path");
  return parts.reduce((url, field) => url.replace(`{${field.name}}`, encodeURIComponent(field.value.trim())), act.url);
}

/** Put a value into a body, below a path such as `changes.priority`. */
function put(/** @type {Body} */ body, /** @type {string} */ path, /** @type {any} */ value) {
  const names = path.split(".");
  const last = /** @type {string} */ (names.pop());
  let at = body;
  for (const name of names) at = at[name] ??= {};
  at[last] = value;
}

/** What a field says; undefined: nothing. */
function valueOf(/** @type {HTMLInputElement | HTMLSelectElement} */ field) {
  const text = field.value.trim();
  const as = field.dataset.as ?? "";
  if (as === "yes") return text === "" ? undefined : text === "yes";
  if (as === "length") return text === "" ? undefined : lengthOf(field, text);
  if (as === "truth") return /** @type {HTMLInputElement} */ (field).checked || undefined;
  if (as === "amounts") return amounts(field, text);
  if (text === "") return undefined;
  if (as === "number") return Number(text);
  if (as === "path") return undefined;
  if (as === "hours") return 3600 * Number(text);
  if (as === "days") return 86400 * Number(text);
  if (as === "moment") return Date.parse(text) / 1000;
  if (as === "names") return text.split(",").map((name) => name.trim()).filter(Boolean);
  if (as === "texts") return texts(text);
  return text;
}

/** What a field says wrongly, in its own words: the server knows neither its name nor its units. */
function misread(/** @type {HTMLInputElement | HTMLSelectElement} */ field, /** @type {string} */ detail, /** @type {string} */ remedy) {
  const name = (field.closest("label")?.textContent ?? "").trim();
  return new Refusal({ errors: [{ field: name || field.name, detail, remedy }] }, 0);
}

/** Hours as seconds; null: none. */
function lengthOf(/** @type {HTMLInputElement | HTMLSelectElement} */ field, /** @type {string} */ text) {
  if (text === "none") return null;
  if (!DECIMAL.test(text) || Number(text) === 0) throw misread(field, `'${text}' is no number of hours`, "such as 1.5, or none");
  return 3600 * Number(text);
}

/** `H100=16, A100=8` as an object: each model once, and with its amount. */
function amounts(/** @type {HTMLInputElement | HTMLSelectElement} */ field, /** @type {string} */ text) {
  const remedy = "such as H100=16, A100=8";
  /** @type {Record<string, number>} */
  const found = Object.create(null);
  for (const one of text.split(",").map((part) => part.trim()).filter(Boolean)) {
    const [, model = "", gpus = ""] = AMOUNT.exec(one) ?? [];
    if (!model) throw misread(field, `'${one}' is no model with a whole number of GPUs`, remedy);
    if (model in found) throw misread(field, `it names ${model} twice`, remedy);
    found[model] = Number(gpus);
  }
  if (Object.keys(found).length === 0) throw misread(field, "it is empty", remedy);
  return found;
}

/** `score.data=2, move.most=4` as an object of texts. */
function texts(/** @type {string} */ text) {
  const pairs = text.split(",").map((one) => one.trim()).filter(Boolean).map((one) => one.split("="));
  return Object.fromEntries(pairs.map(([key, ...value]) => [key.trim(), value.join("=").trim()]));
}

function bodyOf(/** @type {Act} */ act, /** @type {Body} */ targets) {
  const body = { ...structuredClone(act.body ?? {}), ...targets };
  for (const field of fieldsOf()) {
    const value = valueOf(field);
    if (value === undefined) continue;
    put(body, field.name, field.dataset.as === "hours" ? (body.from_s ?? serverNowS()) + value : value);
  }
  return body;
}

function list(/** @type {string[]} */ lines) {
  const item = (/** @type {string} */ text) => Object.assign(document.createElement("li"), { textContent: text });
  const more = lines.length - LINES_SHOWN;
  part("effects").replaceChildren(...lines.slice(0, LINES_SHOWN).map(item), ...(more > 0 ? [item(`and ${more.toLocaleString("en")} more`)] : []));
}

/** Say why not; `unknown`: what is to be thought of an act that no answer came to. */
function refused(/** @type {unknown} */ error, unknown = "") {
  const isSilent = error instanceof TypeError; // that is how a request without an answer fails
  const faults = error instanceof Refusal ? error.faults : [/** @type {Error} */ (error).message];
  const several = faults.length > 1;
  part("summary").textContent = isSilent ? `The server does not answer. ${unknown}`.trim()
    : several ? "Refused:" : `Refused: ${faults[0]}`;
  list(several && !isSilent ? faults : []);
  if (isLoggedOut(error)) part("summary").replaceChildren("Your login has ended. ", toLogin(), " and come back: nothing that stands here is lost.");
}

function isLoggedOut(/** @type {unknown} */ error) {
  return error instanceof Refusal && error.status === 401;
}

function go() {
  return /** @type {HTMLButtonElement} */ (part("do"));
}

/**
 * Ask anew when the server did not answer, or when the reader comes back from a login: what was done
 * then counts as it is.
 */
function askAgain(/** @type {Act} */ act, /** @type {Body} */ targets, /** @type {unknown} */ error) {
  clearTimeout(typing);
  if (!dialog.open) return;
  if (error instanceof TypeError) typing = setTimeout(() => void rehearse(act, targets, true), AGAIN_MS);
  if (isLoggedOut(error)) back = () => void rehearse(act, targets, true);
}

/** What came to match a filter after its dry run is not in the act: no reader saw it. */
function shownOf(/** @type {Body} */ targets, /** @type {any} */ answer) {
  if (targets.selector === undefined) return targets;
  const kind = answer.effects?.[0]?.job === undefined ? "hosts" : "jobs";
  const names = (answer.effects ?? answer.hosts).map((/** @type {any} */ one) => one.job ?? one.host ?? one);
  return names.length > MOST_NAMED ? targets : { [kind]: names };
}

/** Ask what an act would do, and show it; `again`: what was said before stays until an answer comes. */
async function rehearse(/** @type {Act} */ act, /** @type {Body} */ targets, again = false) {
  const turn = ++asked;
  back = () => {};
  meant = targets;
  if (!again) {
    list([]);
    part("summary").textContent = act.plain ? "" : "Asking what this would do…";
  }
  go().disabled = act.plain !== true;
  if (act.plain) return;
  try {
    const body = bodyOf(act, targets);
    if (act.fields === "fields-changes" && body.changes === undefined) {
      part("summary").textContent = "Say what changes.";
      return;
    }
    const answer = await send(act, { ...body, reason: undefined, dry_run: true });
    if (turn !== asked) return;
    const found = told(answer);
    meant = shownOf(targets, answer);
    const open = "So many are not named one by one: what comes to match the filters until it is done is changed, too.";
    part("summary").textContent = meant.selector === undefined ? found.summary : `${found.summary} ${open}`;
    list(found.lines);
    go().disabled = !found.changes;
  } catch (error) {
    if (turn !== asked) return;
    if (!again || !(error instanceof TypeError)) refused(error);
    askAgain(act, targets, error);
  }
}

/** Do it; a secret is shown, for that is the only time. */
async function carryOut(/** @type {Act} */ act, /** @type {Body} */ targets) {
  const turn = asked;
  go().disabled = true;
  try {
    const answer = await send(act, bodyOf(act, meant));
    if (answer.token) {
      part("summary").textContent = "This is the only time that its secret is shown:";
      part("secret").textContent = answer.token;
      part("secret").hidden = false;
      go().hidden = part("fields").hidden = true;
      refresh();
      return;
    }
    if (act.then) {
      leave(act.then);
      return;
    }
    const found = told(answer);
    say(found.changes ? `Done. ${found.summary}`.trim() : found.summary);
    dialog.close("yes");
  } catch (error) {
    stale = true;
    refused(error, "Look whether it was done before you try again.");
    if (turn === asked) askAgain(act, targets, error);
  }
}

/** After so long the page does not change by the act any more. */
const SETTLED_MS = 5000;

/** Of buttons and rows the first that can have the focus. */
function focusOne(/** @type {(HTMLElement | null | undefined)[]} */ candidates) {
  const found = candidates.find((one) => one?.isConnected && one.getClientRects().length > 0);
  if (!found) return;
  if (!found.matches("a, button, input, select, textarea, [tabindex]")) found.tabIndex = -1;
  found.focus({ preventScroll: true });
}

/**
 * Where the focus belongs after an act: on its button; where that is gone, on the row that it was
 * about, on the next button beside it, or on the content of the page.
 * @param {HTMLElement} button
 * @param {HTMLElement[]} rows
 */
function keeperOf(button, rows) {
  const group = /** @type {HTMLElement | null} */ (button.closest("[role=group], [data-row], td, li, section"));
  const key = group?.closest("[data-row]")?.getAttribute("data-key");
  const again = () => {
    const named = [...rows.map((row) => row.dataset.key), key].filter(Boolean);
    const now = named.map((name) => /** @type {HTMLElement | null} */ (document.querySelector(`#main [data-row][data-key="${CSS.escape(name ?? "")}"]`)));
    const first = /** @type {HTMLElement | null} */ (document.querySelector("#main [data-row]"));
    focusOne([button, ...now, group?.isConnected ? group.querySelector("button") : null, rows.length ? first : null, document.getElementById("main")]);
  };
  const lost = () => {
    if (document.activeElement === null || document.activeElement === document.body) again();
  };
  return () => {
    again();
    document.addEventListener("topmast:drawn", lost);
    setTimeout(() => document.removeEventListener("topmast:drawn", lost), SETTLED_MS);
  };
}

/** Ask for a confirmation. */
function confirm(/** @type {HTMLElement} */ button, /** @type {Act} */ act, /** @type {Body} */ targets) {
  part("title").textContent = act.title;
  part("note").textContent = act.note ?? "";
  const template = /** @type {HTMLTemplateElement | null} */ (document.getElementById(act.fields ?? ""));
  part("fields").replaceChildren(...(template ? [template.content.cloneNode(true)] : []));
  // While something is typed nothing can be done: what is done has been rehearsed as it stands.
  part("fields").oninput = () => {
    asked += 1;
    go().disabled = act.plain !== true;
    clearTimeout(typing);
    typing = setTimeout(() => void rehearse(act, targets), TYPED_MS);
  };
  const reason = /** @type {HTMLInputElement} */ (dialog.querySelector("[name=reason]"));
  /** @type {HTMLElement} */ (reason.closest("label")).hidden = act.plain === true;
  go().hidden = part("fields").hidden = false;
  part("secret").hidden = true;
  go().onclick = () => void carryOut(act, targets);
  const keepFocus = keeperOf(button, selectedRows(button));
  dialog.onclose = () => {
    clearTimeout(typing);
    back = () => {};
    part("secret").textContent = "";
    if (dialog.returnValue === "yes") {
      reason.value = "";
      unselect();
    }
    if (stale || dialog.returnValue === "yes") refresh();
    stale = false;
    keepFocus();
  };
  dialog.returnValue = "";
  dialog.showModal();
  void rehearse(act, targets);
}

/** Listen to the page's acts. */
export function install() {
  for (const [from, type] of /** @type {const} */ ([[window, "focus"], [document, "topmast:back"]])) from.addEventListener(type, () => back());
  document.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("[data-act]");
    if (!(button instanceof HTMLElement)) return;
    const within = /** @type {HTMLElement | null} */ (button.closest("[data-list]"));
    const targets = within ? targetsOf(within) : {};
    if (targets) confirm(button, JSON.parse(button.dataset.act ?? "{}"), targets);
  });
}
