// <attempt-timeline>: the attempts of a job on one axis of time. Long waits are folded.
//
// Its data is the story of a job (`topmast status JOB --json`), and `now_s` beside it.

import { count, dataOf, draw, duration, moment, number, onWidth, placeFor } from "./common.js";

/**
 * @typedef {{epoch: number, region: string, cluster: string, gpu_model: string, gpus: number,
 *   start_s: number, end_s: number, kept_s: number, outcome: string, running?: boolean}} Attempt
 * @typedef {{from_s: number, to_s: number, attempt: Attempt | null, x: number, width: number,
 *   folded: boolean}} Part
 */

const LEAST_WIDTH = 280;
/** On an axis that is less wide than this, the moments of both ends stand below one another. */
const WIDE = 480;
const LINE = 18;
const TOP = 22;
const BAR = 34;
const FOLD = 56;
/** A wait is folded if it would take more than this part of the axis. */
const MOST_WAIT = 0.25;
const LEAST = 3;

class AttemptTimeline extends HTMLElement {
  #end = () => {};

  connectedCallback() {
    this.#end = onWidth(this, () => this.refresh());
    this.refresh();
  }

  disconnectedCallback() {
    this.#end();
  }

  /** Draw the data that the page has now. */
  refresh() {
    const data = dataOf(this);
    if (data !== null) this.update(data);
  }

  /** @param {any} story */
  update(story) {
    const width = Math.max(LEAST_WIDTH, this.clientWidth);
    const parts = fold(partsOf(story), width);
    if (parts.length === 0) return;
    const picture = draw("svg", {
      width, height: TOP + BAR + 24 + (width < WIDE ? LINE : 0), role: "list", class: "timeline",
      "aria-label": `${count(parts.filter((p) => p.attempt).length, "attempt")} over time`,
    });
    for (const part of parts) picture.append(part.attempt ? ran(part) : waited(part));
    picture.append(...ends(parts, width));
    placeFor(this).replaceChildren(picture);
  }
}

/**
 * Waits and attempts in turns, from the submission on.
 * @param {any} story
 * @returns {Part[]}
 */
function partsOf(story) {
  const { job } = story;
  /** @type {Attempt[]} */
  const attempts = [...story.attempts].sort((a, b) => a.start_s - b.start_s);
  const end_s = job.finish_s ?? story.now_s ?? Date.now() / 1000;
  // A job that waits again has a start, and its last attempt is among those that ended.
  const goes_on = job.finish_s === null && !attempts.some((one) => one.epoch === job.attempts);
  if (goes_on && job.start_s !== null) {
    attempts.push({
      epoch: job.attempts, region: job.region ?? "", cluster: job.cluster ?? "",
      gpu_model: job.gpu_model ?? "", gpus: job.gpus, start_s: job.start_s,
      end_s: Math.max(end_s, job.start_s), kept_s: Math.max(0, end_s - job.start_s),
      outcome: job.state.toLowerCase(), running: true,
    });
  }
  /** @type {Part[]} */
  const parts = [];
  let at_s = job.submit_s;
  for (const attempt of attempts) {
    if (attempt.start_s > at_s) parts.push(part(at_s, attempt.start_s, null));
    parts.push(part(Math.max(at_s, attempt.start_s), attempt.end_s, attempt));
    at_s = Math.max(at_s, attempt.end_s);
  }
  if (end_s > at_s) parts.push(part(at_s, end_s, null));
  return parts;
}

/**
 * @param {number} from_s
 * @param {number} to_s
 * @param {Attempt | null} attempt
 * @returns {Part}
 */
function part(from_s, to_s, attempt) {
  return { from_s, to_s, attempt, x: 0, width: 0, folded: false };
}

/**
 * Give each part its place: long waits a fixed width, the others their share of the rest.
 * @param {Part[]} parts
 * @param {number} width
 */
function fold(parts, width) {
  const long = () => {
    const open = parts.filter((p) => !p.folded);
    const whole = open.reduce((sum, p) => sum + p.to_s - p.from_s, 0);
    return open.find((p) => !p.attempt && open.length > 1 && p.to_s - p.from_s > MOST_WAIT * whole);
  };
  for (let next = long(); next !== undefined; next = long()) next.folded = true;
  const open = parts.filter((p) => !p.folded);
  const folds = parts.length - open.length;
  const folded = Math.min(FOLD, width / 2 / Math.max(1, folds)); // the attempts keep half of the axis
  const whole_s = open.reduce((sum, p) => sum + p.to_s - p.from_s, 0) || 1;
  const least = LEAST * open.length + folded * folds;
  const scale = Math.max(0, width - least) / whole_s;
  let x = 0;
  for (const each of parts) {
    each.x = x;
    each.width = each.folded ? folded : LEAST + (each.to_s - each.from_s) * scale;
    x += each.width;
  }
  return parts;
}

/** @param {Part} part */
function ran(part) {
  const attempt = /** @type {Attempt} */ (part.attempt);
  const whole_s = attempt.end_s - attempt.start_s;
  const kept = whole_s > 0 ? part.width * Math.min(1, attempt.kept_s / whole_s) : part.width;
  const lost_s = Math.max(0, whole_s - attempt.kept_s);
  const words = [
    `Attempt ${attempt.epoch}: ${attempt.running ? "now" : attempt.outcome.replace("_", " ")}`,
    `${count(attempt.gpus, "GPU")} ${attempt.gpu_model} in ${attempt.cluster || attempt.region}`,
    `${duration(whole_s)} from ${moment(attempt.start_s)}`,
    lost_s >= 1 && !attempt.running ? `${number((lost_s * attempt.gpus) / 3600)} GPU-hours of work lost` : "",
  ].filter(Boolean).join(", ");
  const group = draw("g", { role: "listitem", tabindex: 0, "aria-label": words, class: "attempt" });
  group.append(
    draw("title", {}, words),
    draw("rect", { x: part.x, y: TOP, width: part.width, height: BAR, class: "lost" }),
    draw("rect", { x: part.x, y: TOP, width: kept, height: BAR, class: `kept ${tone(attempt)}` }),
  );
  const text = `${attempt.epoch} ${attempt.running ? "now" : attempt.outcome.replace("_", " ")}`;
  const room = 9 * text.length;
  const onLost = kept < room; // then the text stands on what was lost, and the hatch begins behind it
  const isNamed = part.width > room + (onLost ? kept : 0);
  const hatched = part.x + kept + (isNamed && onLost ? room : 0);
  for (let x = hatched + 4; x < part.x + part.width; x += 6) {
    group.append(draw("path", { d: `M${x} ${TOP}l-4 ${BAR}`, class: "hatch" }));
  }
  if (isNamed) {
    const x = part.x + (onLost ? kept : 0) + 6;
    group.append(draw("text", { x, y: TOP + BAR / 2 + 5, class: onLost ? "outside" : "inside" }, text));
  }
  return group;
}

/** @param {Attempt} attempt */
function tone(attempt) {
  if (attempt.running) return "running";
  return attempt.outcome === "succeeded" ? "good" : "ended";
}

/** @param {Part} part */
function waited(part) {
  const words = `waited ${duration(part.to_s - part.from_s)} from ${moment(part.from_s)}`;
  const group = draw("g", { role: "listitem", tabindex: 0, "aria-label": words, class: "wait" });
  const middle = TOP + BAR / 2;
  const end = part.x + part.width;
  group.append(draw("title", {}, words));
  group.append(draw("rect", { x: part.x, y: TOP, width: part.width, height: BAR, class: "blank" }));
  const x = part.x + part.width / 2;
  group.append(draw("path", {
    d: part.folded
      ? `M${part.x} ${middle}H${x - 8}l4 -7l8 14l4 -7H${end}`
      : `M${part.x} ${middle}H${end}`,
    class: "line",
  }));
  if (part.width >= FOLD) {
    const short = duration(part.to_s - part.from_s);
    group.append(draw("text", { x, y: TOP + BAR + 14, class: "middle" }, short));
  }
  return group;
}

/**
 * @param {Part[]} parts
 * @param {number} width
 */
function ends(parts, width) {
  const last = parts[parts.length - 1];
  return [
    draw("text", { x: 0, y: 14, class: "axis" }, `submitted ${moment(parts[0].from_s)}`),
    draw("text", { x: width, y: width < WIDE ? TOP + BAR + 14 + LINE : 14, class: "axis end" }, moment(last.to_s)),
  ];
}

customElements.define("attempt-timeline", AttemptTimeline);
