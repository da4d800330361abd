// The moment of a replay: a slider over time, and a button that lets time pass.
import { fetchAndMorph } from "./live.js";

/** Between two pictures, while time passes. */
const REST_MS = 350;

const form = /** @type {HTMLFormElement} */ (document.getElementById("replay"));
const slider = /** @type {HTMLInputElement} */ (document.getElementById("moment"));
const text = /** @type {HTMLInputElement} */ (document.getElementById("moment-text"));
const play = /** @type {HTMLButtonElement} */ (document.getElementById("play"));
/** The times of the slider, close to one another where much happened. */
const stops = (slider.dataset.stops ?? "").split(" ").map(Number);
/** @type {number | null} */
let wantedS = null;
let drawing = false;
let playing = false;

/** A time as the slider says it, in words and for the field beside it. */
function tell(/** @type {number} */ atS) {
  const iso = new Date(atS * 1000).toISOString();
  text.value = iso.slice(0, 19);
  slider.setAttribute("aria-valuetext", `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`);
}

/** Keep the moment in the address, so that it can be sent to others. */
function remember(/** @type {number} */ atS) {
  const url = new URL(location.href);
  url.searchParams.set("at", atS.toFixed(3));
  history.replaceState(history.state, "", url);
}

/** Show a moment; of those that come while one is drawn, only the last. */
async function go(/** @type {number} */ atS) {
  wantedS = atS;
  tell(atS);
  if (drawing) return;
  drawing = true;
  try {
    while (wantedS !== null) {
      remember(wantedS);
      wantedS = null;
      await fetchAndMorph();
    }
    say("");
  } catch {
    say("The server does not answer.");
    setPlaying(false);
  } finally {
    drawing = false;
  }
}

function say(/** @type {string} */ words) {
  const line = document.getElementById("link");
  if (line === null) return;
  line.hidden = words === "";
  line.textContent = words;
}

function setPlaying(/** @type {boolean} */ on) {
  playing = on;
  play.setAttribute("aria-pressed", String(on));
  play.textContent = on ? "Pause" : "Play";
}

async function pass() {
  const last = stops.length - 1;
  if (Number(slider.value) >= last) slider.value = "0";
  while (playing && Number(slider.value) < last) {
    slider.value = String(Number(slider.value) + 1);
    await go(stops[Number(slider.value)]);
    await new Promise((then) => setTimeout(then, REST_MS));
  }
  setPlaying(false);
}

slider.addEventListener("input", () => {
  setPlaying(false);
  void go(stops[Number(slider.value)]);
});
// Keys of the page are not for the slider.
slider.addEventListener("keydown", (event) => event.stopPropagation());
play.addEventListener("click", () => {
  setPlaying(!playing);
  if (playing) void pass();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  setPlaying(false);
  const atS = Date.parse(`${text.value}Z`) / 1000;
  slider.value = String(Math.max(0, stops.findLastIndex((stop) => stop <= atS)));
  void go(atS);
});
tell(Number(slider.dataset.at));
remember(Number(slider.dataset.at));
