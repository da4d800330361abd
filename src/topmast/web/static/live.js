// One stream of events for all tabs of this browser, and pages that draw themselves anew.
//
// The tab that holds a lock reads the stream and tells the others what changed. Only visible tabs ask
// for the lock; so a browser that shows no page costs the server nothing.
import { redraw } from "./morph.js";
import { setClock, tick } from "./times.js";

const STREAM = "/api/v1/events";
const LEAST_MS = 1000;
/** A page takes no more than this part of the time to be drawn anew, so that slow pages rest. */
const DUTY = 0.1;
/** Without any event a page is drawn anew this often: waits grow, and forecasts change. */
const CALM_MS = 15000;
/** For so long a page waits for its content. */
const PATIENCE_MS = 20000;
const RETRY_MS = [500, 1000, 2000, 5000];
/** A stream is silent for at most this long: the server says that it is still there. */
const SILENT_MS = 40000;
const SAID_BY_EVENT = /^event: (.*)$/;

/** @typedef {{kinds: string[], jobs: string[] | null}} News `jobs` null: too many to name. */
/** @typedef {{news?: News, link?: string, to?: string}} Message between tabs */

const channel = new BroadcastChannel("topmast-events");
let due = false;
let drawing = false;
let drawnMs = performance.now();
let tookMs = 0;
/** For so long the server has nothing newer: all readers share what it draws. */
let restMs = 0;
/** Whether the next content must be newer than what the reader has just done. */
let anew = false;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** @type {AbortController | undefined} */
let stream;
/** @type {Away | null} Why the page shows what was last heard. */
let away = null;
let leaving = false;

/** Say how the link to the server is; an empty text says that all is well. */
function say(/** @type {string} */ text) {
  const line = document.getElementById("link");
  if (!line) return;
  line.hidden = text === "";
  if (line.textContent !== text) line.textContent = text;
}

/** The page cannot be drawn anew; `link`: what the reader can do about it. */
class Away extends Error {
  constructor(/** @type {string} */ text, /** @type {HTMLAnchorElement | null} */ link = null) {
    super(text);
    this.link = link;
  }
}

/** Say why the page shows what was last heard; null: it does not. */
function setAway(/** @type {Away | null} */ why) {
  const isSame = away?.message === why?.message && away?.link?.href === why?.link?.href;
  away = why;
  if (isSame) return;
  say(why?.message ?? "");
  if (why?.link) document.getElementById("link")?.append(" ", why.link);
  if (why) return;
  document.dispatchEvent(new CustomEvent("topmast:back"));
  plan();
}

const silent = () => new Away("The server does not answer. This page shows what was last heard, and asks again.");

/** Another server leads. */
function standsBy(/** @type {string} */ leader) {
  if (!leader) return silent();
  const href = new URL(location.pathname + location.search, leader).href;
  return new Away("This server does not lead any more.", Object.assign(document.createElement("a"), { href, textContent: "This page at the leader" }));
}

/** To this page by way of the login, in another tab: this one keeps what the reader has in hand. */
export function toLogin() {
  return Object.assign(document.createElement("a"), { href: location.href, target: "_blank", textContent: "Log in again in another tab" });
}

/** The login has ended: go there, and back to this page, unless the reader would lose something. */
function loggedOut() {
  if (!leaving && !inHand()) location.reload();
  return new Away("Your login has ended. This page shows what was last heard.", toLogin());
}

// ---------------------------------------------------------------------------------- drawing anew

/** Whether the page on the screen is about what happened. */
function concerns(/** @type {News} */ news) {
  const follows = document.getElementById("main")?.dataset.follows ?? "";
  if (!follows) return false;
  if (follows === "all") return true;
  if (follows.startsWith("job:")) return news.jobs === null || news.jobs.includes(follows.slice(4));
  return follows.split(" ").some((kind) => news.kinds.includes(kind));
}

function plan() {
  due = true;
  if (document.hidden || timer !== undefined || drawing) return;
  const pauseMs = Math.min(Math.max(LEAST_MS, tookMs / DUTY, restMs), CALM_MS);
  timer = setTimeout(drawAnew, Math.max(0, drawnMs + pauseMs - performance.now()));
}

async function drawAnew() {
  timer = undefined;
  if (document.hidden || busy()) {
    drawnMs = performance.now();
    plan();
    return;
  }
  due = false;
  drawing = true;
  const begun = performance.now();
  try {
    await fetchAndMorph();
    tookMs = performance.now() - begun;
    setAway(null);
  } catch (error) {
    tookMs = 0; // how long a failure took says nothing of the page
    setAway(error instanceof Away ? error : silent());
  } finally {
    drawing = false;
    drawnMs = performance.now();
  }
  if (due) plan();
}

/** Whether the reader has something open that must not change below the hand. */
function busy() {
  return document.querySelector("dialog[open]") !== null;
}

/** Whether the reader has something open, or has typed or selected what is not sent yet. */
function inHand() {
  const fields = document.querySelectorAll("main :is(form :is(input, select), [data-select])");
  return busy() || [...fields].some((field) => {
    if (field instanceof HTMLSelectElement) {
      const first = [...field.options].findIndex((option) => option.defaultSelected);
      return field.selectedIndex !== Math.max(0, first);
    }
    const { type, checked, defaultChecked, value, defaultValue } = /** @type {HTMLInputElement} */ (field);
    return type === "checkbox" ? checked !== defaultChecked : value !== defaultValue;
  });
}

/** Draw what the address says. */
export async function fetchAndMorph() {
  const answer = await fetch(location.href, {
    headers: { "Topmast-Fragment": "1" }, redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS),
    cache: anew ? "reload" : "default",
  });
  anew = false;
  restMs = Number(answer.headers.get("Topmast-Rest") ?? 0);
  if (answer.headers.has("Topmast-Behind")) due = true;
  if (answer.status === 401) throw loggedOut();
  if (answer.status === 503) throw standsBy((await answer.json().catch(() => ({}))).leader ?? "");
  if (answer.status === 429 || answer.status >= 500) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
  const old = document.getElementById("main");
  if (!fresh || !old) return;
  setClock(fresh.dataset);
  const files = /** @type {HTMLLinkElement} */ (document.querySelector('link[rel="stylesheet"]')).href;
  if (fresh.dataset.files && !files.includes(fresh.dataset.files)) {
    location.reload(); // the server is of another version than this page
    return;
  }
  if (fresh.dataset.title) document.title = fresh.dataset.title;
  for (const name of ["title", "files"]) fresh.removeAttribute(`data-${name}`);
  fresh.setAttribute("tabindex", "-1");
  redraw(old, document.importNode(fresh, true));
  document.dispatchEvent(new CustomEvent("topmast:drawn"));
  tick();
}

/** Draw the page anew now: after an act of the reader. */
export function refresh() {
  drawnMs = -Infinity;
  anew = true;
  clearTimeout(timer);
  timer = undefined;
  plan();
}

// -------------------------------------------------------------------------------------- the stream

async function read(/** @type {AbortSignal} */ signal) {
  let lastId = "";
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const headers = lastId ? { "Last-Event-ID": lastId } : undefined;
      const answer = await fetch(STREAM, { signal, headers, redirect: "error" });
      if (answer.status === 401) {
        setAway(loggedOut());
        return;
      }
      if (answer.status === 403 || answer.status === 429) return; // without it, pages are drawn by the clock
      if (!answer.ok || !answer.body) throw new Error(String(answer.status));
      tell({ link: "up" });
      tries = 0;
      lastId = await pump(answer.body, signal, lastId);
    } catch {
      // Below.
    }
    if (signal.aborted) return;
    tell({ link: "down" });
    await new Promise((go) => setTimeout(go, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
  }
}

/** Read events until the stream ends; the number of the last one. */
async function pump(/** @type {ReadableStream<Uint8Array>} */ body, /** @type {AbortSignal} */ signal, /** @type {string} */ lastId) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  while (!signal.aborted) {
    const silence = setTimeout(() => void reader.cancel(), SILENT_MS);
    const { done, value } = await reader.read();
    clearTimeout(silence);
    if (done) return lastId;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    /** @type {Set<string>} */
    const kinds = new Set();
    /** @type {Set<string>} */
    const jobs = new Set();
    for (const line of lines) {
      const kind = SAID_BY_EVENT.exec(line);
      if (kind) kinds.add(kind[1]);
      else if (line.startsWith("id: ")) lastId = line.slice(4);
      else if (line.startsWith("data: ") && jobs.size <= 100) jobs.add(JSON.parse(line.slice(6)).job);
    }
    if (kinds.size) tell({ news: { kinds: [...kinds], jobs: jobs.size > 100 ? null : [...jobs] } });
  }
  await reader.cancel();
  return lastId;
}

/** Tell all tabs, this one too. */
function tell(/** @type {Message} */ message) {
  channel.postMessage(message);
  hear(message);
}

/** Go to another page, with all tabs: none may ask for a login anew just after a logout. */
export function leave(/** @type {string} */ to) {
  tell({ to });
}

function hear(/** @type {Message} */ message) {
  if (message.to) {
    leaving = true;
    location.assign(message.to);
  }
  if (message.link) setAway(message.link === "down" ? silent() : null);
  if (message.news && concerns(message.news)) plan();
}

function lead() {
  if (!navigator.locks || stream) return;
  const own = new AbortController();
  stream = own;
  navigator.locks
    .request("topmast-events", { signal: own.signal }, () => read(own.signal))
    .catch(() => undefined); // it was given up before it was granted
}

function rest() {
  stream?.abort();
  stream = undefined;
}

/** Follow the events, if this page shows anything that they change. */
export function start() {
  channel.addEventListener("message", (event) => hear(event.data));
  if (!document.getElementById("main")?.dataset.follows) return;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest();
    else {
      lead();
      plan();
    }
  });
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => {
    if (event.persisted && !document.hidden) lead();
  });
  setInterval(() => {
    if (performance.now() - drawnMs >= CALM_MS) plan();
  }, 1000);
  if (!document.hidden) lead();
}
