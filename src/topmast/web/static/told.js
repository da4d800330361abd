// What the answers to acts say, in sentences: the same before an act, as its dry run, and after it.

import { moment } from "./times.js";

/** @typedef {{job: string, effect: string, why: string, gpus: number, lost_gpu_h: number}} Effect */
/** @typedef {{summary: string, lines: string[], changes: boolean}} Told `changes`: whether it does anything. */

/** Of tenants and of users; and of the letters of one. */
const NAMES_SHOWN = 5;
const NAME_SHOWN = 40;

/** A number as people write it. */
export function number(/** @type {number} */ value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
}

/** A number with its noun. */
export function count(/** @type {number} */ value, /** @type {string} */ noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** What stops and goes back into the queue lets its GPUs go, but not for good. */
const AGAIN = new Set(["preempt", "requeue"]);

/** @param {number} gpus @param {number} lost @param {string} verb */
function cost(gpus, lost, verb = "") {
  if (gpus && AGAIN.has(verb)) {
    const keep = "to keep its GPUs free, hold it besides, or cordon its hosts before";
    return `What stops lets go of ${count(gpus, "GPU")} and goes back into the queue: it may start again on the same GPUs at once; ${keep}. ${number(lost)} GPU-hours of work are lost.`;
  }
  if (gpus) return `${count(gpus, "GPU")} become${gpus === 1 ? "s" : ""} free, and ${number(lost)} GPU-hours of work are lost.`;
  return lost ? `${number(lost)} GPU-hours of work are lost.` : "";
}

function effect(/** @type {Effect} */ one) {
  const price = one.gpus ? ` (${count(one.gpus, "GPU")}, ${number(one.lost_gpu_h)} GPU-hours lost)` : "";
  return `${one.job}: ${one.effect === "done" ? "will change" : one.effect}${price}${one.why ? `: ${one.why}` : ""}`;
}

/**
 * How often each name occurs, the most frequent first.
 * @param {string} noun
 * @param {string[]} names
 */
function tally(noun, names) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const clipped = (/** @type {string} */ name) => (name.length > NAME_SHOWN ? `${name.slice(0, NAME_SHOWN)}…` : name);
  const shown = sorted.slice(0, NAMES_SHOWN).map(([name, often]) => `${clipped(name) || "none"} (${number(often)})`);
  if (sorted.length > shown.length) shown.push(`${number(sorted.length - shown.length)} more`);
  return `${noun}${sorted.length === 1 ? "" : "s"}: ${shown.join(", ")}.`;
}

/** To which tenants and users the jobs that change belong. */
function hit(/** @type {any} */ acted) {
  const changed = new Set(acted.effects.filter((/** @type {Effect} */ one) => one.effect === "done").map((/** @type {Effect} */ one) => one.job));
  const jobs = acted.jobs.filter((/** @type {any} */ job) => changed.has(job.id));
  if (jobs.length === 0) return "";
  return ["tenant", "user"].map((key) => tally(key === "tenant" ? "Tenant" : "User", jobs.map((/** @type {any} */ job) => job[key]))).join(" ");
}

/** @returns {Told} */
function jobsActed(/** @type {any} */ acted) {
  const { done = 0, unchanged = 0, refused = 0 } = acted.counts;
  if (done === 0 && acted.effects.length === 1) {
    const [{ job, why }] = acted.effects;
    return { summary: `Nothing is changed: ${job} ${why || "is as wanted already"}.`, lines: [], changes: false };
  }
  const parts = [done ? `It changes ${count(done, "job")}.` : "Nothing is changed.", hit(acted)];
  if (unchanged) parts.push(`${count(unchanged, "job")} ${unchanged === 1 ? "stays" : "stay"} as now.`);
  if (refused) parts.push(`${count(refused, "job")} cannot be changed so.`);
  parts.push(cost(acted.gpus, acted.lost_gpu_h, acted.verb));
  return { summary: parts.filter(Boolean).join(" "), lines: acted.effects.map(effect), changes: done > 0 };
}

/** @returns {Told} */
function tenantPaused(/** @type {any} */ acted) {
  const wait = `${count(acted.waiting, "job")} of it ${acted.waiting === 1 ? "waits" : "wait"}, and ${count(acted.running, "job")} ${acted.running === 1 ? "has" : "have"} GPUs.`;
  const stops = acted.stops.length ? `${count(acted.stops.length, "job")} stop${acted.stops.length === 1 ? "s" : ""} at a checkpoint: ${cost(acted.gpus, acted.lost_gpu_h)}` : "None of these is stopped.";
  return { summary: `${wait} ${stops}`, lines: acted.stops.map(effect), changes: true };
}

/** @returns {Told} */
function hostsActed(/** @type {any} */ acted) {
  const changed = acted.effects.filter((/** @type {any} */ one) => one.effect === "done").length;
  const parts = [changed ? `It changes ${count(changed, "host")} with ${count(acted.gpus, "GPU")}.` : "Nothing is changed."];
  const moves = new Map(acted.drains.flatMap((/** @type {any} */ one) => one.moves).map((/** @type {any} */ one) => [one.job, one]));
  if (acted.verb !== "drain") {
    if (acted.verb === "cordon" && acted.jobs.length) parts.push(`${count(acted.jobs.length, "job")} there ${acted.jobs.length === 1 ? "goes" : "go"} on.`);
  } else if (moves.size === 0) parts.push("No job runs there.");
  const lines = [...moves.values()].map((/** @type {any} */ one) => one.moves
    ? `${one.job} moves to ${one.to_cluster} (${one.to_hosts.join(", ")}): ${number(one.cost_gpu_s / 3600)} GPU-hours lost`
    : `${one.job} stays: ${one.why}`);
  const going = [...moves.values()].filter((/** @type {any} */ one) => one.moves);
  if (moves.size) {
    const lost = going.reduce((sum, /** @type {any} */ one) => sum + one.cost_gpu_s / 3600, 0);
    parts.push(`${count(going.length, "job")} ${going.length === 1 ? "moves" : "move"} elsewhere, ${count(moves.size - going.length, "job")} ${moves.size - going.length === 1 ? "stays" : "stay"}. ${cost(0, lost)}`);
  }
  return { summary: parts.join(" "), lines, changes: changed > 0 || acted.verb === "drain" };
}

/**
 * Many of one kind: a line for each, and what they come to.
 * @param {any[]} all
 * @param {(one: any) => Told} one
 * @param {(one: any) => string} name
 * @param {string} noun
 * @returns {Told}
 */
function many(all, one, name, noun) {
  const each = all.map((acted) => ({ ...one(acted), name: name(acted) }));
  const changed = each.filter((found) => found.changes).length;
  const stay = each.length - changed;
  const summary = [
    `It changes ${count(changed, noun)}.`,
    stay ? `${count(stay, noun)} ${stay === 1 ? "stays" : "stay"} as now.` : "",
  ];
  return {
    summary: summary.filter(Boolean).join(" "), changes: changed > 0,
    lines: each.flatMap((found) => [`${found.name}: ${found.summary}`, ...found.lines]),
  };
}

/** @returns {Told} */
function clusterActed(/** @type {any} */ acted) {
  const jobs = acted.jobs.length ? ` ${count(acted.jobs.length, "job")} there ${acted.jobs.length === 1 ? "goes" : "go"} on.` : "";
  const hosts = `${count(acted.cluster.hosts, "host")} with ${count(acted.cluster.gpus, "GPU")}`;
  const does = acted.verb === "close" ? `${hosts} take no new work.` : `${hosts} take work again.`;
  return { summary: (acted.effect === "done" ? does : "Nothing is changed.") + jobs, lines: [], changes: acted.effect === "done" };
}

function profileNamed(/** @type {any} */ profile) {
  const options = Object.entries(profile.options).map(([name, value]) => `${name}=${value}`).join(", ");
  return profile.name + (options ? ` with ${options}` : "");
}

/** @returns {Told} */
function profileSet(/** @type {any} */ acted) {
  if (acted.effect === "unchanged") return { summary: "Nothing is changed: the next leader decides so already.", lines: [], changes: false };
  return {
    summary: `The next leader decides by ${profileNamed(acted.later)}. This one goes on by ${profileNamed(acted.now)} until another takes over, or it is started again.`,
    lines: [], changes: true,
  };
}

/** @returns {Told} */
function datasetActed(/** @type {any} */ dataset) {
  const there = dataset.replicas.filter((/** @type {any} */ one) => one.state === "complete").map((/** @type {any} */ one) => one.region);
  return { summary: `Now it is complete in ${there.join(", ") || "no region"}.`, lines: [], changes: true };
}

function amounts(/** @type {Record<string, number>} */ quota) {
  return Object.entries(quota).map(([model, gpus]) => `${number(gpus)} ${model}`).join(", ") || "none";
}

/** @returns {Told} */
function quotaActed(/** @type {any} */ acted) {
  const until = acted.until_s === null ? "for good" : `until ${moment(acted.until_s)}`;
  const jobs = `${count(acted.waiting, "job")} of it ${acted.waiting === 1 ? "waits" : "wait"}, and ${count(acted.running, "job")} ${acted.running === 1 ? "has" : "have"} GPUs.`;
  const old = acted.replaces;
  const gone = old ? ` In place of ${amounts(old.quota)} until ${moment(old.until_s)}, by ${old.by}.` : "";
  return { summary: `Its quota is ${amounts(acted.quota)} instead of ${amounts(acted.before)}, ${until}.${gone} ${jobs}`, lines: [], changes: true };
}

/** @returns {Told} */
function reserved(/** @type {any} */ view) {
  const jobs = view.jobs.length ? ` ${count(view.jobs.length, "job")} may still run there when it begins:` : "";
  return {
    summary: `${count(view.hosts.length, "host")} with ${count(view.gpus, "GPU")}, from ${moment(view.from_s)} to ${moment(view.until_s)}.${jobs}`,
    lines: view.jobs, changes: true,
  };
}

/**
 * An answer in words.
 * @param {any} answer
 * @returns {Told}
 */
export function told(answer) {
  if (answer.counts) return jobsActed(answer);
  if (answer.stops) return tenantPaused(answer);
  if (answer.tenants && answer.from_s === undefined) return many(answer.tenants, tenantPaused, (one) => one.tenant, "tenant");
  if (answer.drains) return hostsActed(answer);
  if (answer.clusters) return many(answer.clusters, clusterActed, (one) => one.cluster.name, "cluster");
  if (answer.now && answer.later) return profileSet(answer);
  if (answer.replicas) return datasetActed(answer);
  if (answer.cluster?.name) return clusterActed(answer);
  if (answer.quota) return quotaActed(answer);
  if (answer.from_s !== undefined && answer.hosts) return reserved(answer);
  return { summary: "", lines: [], changes: true };
}
