// What the cells of <gpu-map> can tell: a kind for each GPU, with its colour and texture.

/**
 * @typedef {{label: string, colour: string, texture: number, look: string, count: number, sought?: string}} Kind `sought`: what the legend says if no cell is of this kind
 * @typedef {{list: Kind[], of: (host: import("./gpu-map.js").Host) => Kind[]}} Kinds
 * @typedef {import("./gpu-map.js").Fleet} Fleet
 * @typedef {import("./gpu-map.js").Host} Host
 * @typedef {import("./gpu-map.js").Job} Job
 */

/** The ways to tell cells apart, in words. */
export const KINDS = /** @type {Record<string, string>} */ ({
  tenant: "the tenant",
  band: "the priority",
  use: "idle but held",
  health: "the health of hosts",
});

/** The way that there is only for a job: which hosts are no place for it, and why. */
export const OF_JOB = "job";

/** @typedef {{name: string, reasons: Record<string, string>, hosts: Record<string, string>}} OfJob By reason: in words; by host: its reason. */

const OTHERS = "other tenants";
const MOST_TENANTS = 8;
const HEALTHS = ["healthy", "suspect", "draining", "cordoned", "closed", "down", "stopped"];
const BANDS = ["critical", "high", "normal", "low", "opportunistic"];

/** Textures: a hollow box, a full one, and boxes with lines. */
export const HOLLOW = 0, FULL = 1, RISING = 2, FALLING = 3, ACROSS = 4, DOWN = 5, DOT = 6, CROSS = 7;
const TEXTURES = [FULL, RISING, ACROSS, DOT, FALLING, DOWN, CROSS, FULL];

/**
 * The kinds for one way of telling cells apart; with how many cells each has.
 * @param {string} by
 * @param {Fleet} fleet
 * @param {OfJob | null} [ofJob]
 * @returns {Kinds}
 */
export function kindsOf(by, fleet, ofJob = null) {
  const list = /** @type {Kind[]} */ ([]);
  const add = (/** @type {string} */ label, /** @type {string} */ colour, /** @type {number} */ texture) => {
    const kind = { label, colour, texture, look: `${colour}${texture}`, count: 0 };
    list.push(kind);
    return kind;
  };
  const of = by === OF_JOB && ofJob !== null ? byReason(ofJob, add)
    : by === "health" ? byHealth(add) : byJob(by, fleet, add);
  /** @type {Map<Host, Kind[]>} */
  const cells = new Map();
  for (const region of fleet.regions) {
    for (const cluster of region.clusters) {
      for (const host of cluster.hosts) {
        const kinds = of(host);
        cells.set(host, kinds);
        for (const kind of kinds) kind.count += 1;
      }
    }
  }
  return { list, of: (host) => cells.get(host) ?? [] };
}

/** @typedef {(label: string, colour: string, texture: number) => Kind} Add */

/** @type {WeakMap<Kind, Kind[][]>} */
const ALIKE = new WeakMap();
/** @type {WeakMap<Kind[], string>} */
const LOOKS = new WeakMap();

/**
 * So many cells of one kind, which hosts share: most of a large fleet have no others.
 * @param {Kind} kind
 * @param {number} count
 */
function alike(kind, count) {
  let known = ALIKE.get(kind);
  if (known === undefined) ALIKE.set(kind, (known = []));
  return (known[count] ??= Array(count).fill(kind));
}

/**
 * How cells look together.
 * @param {Kind[]} cells
 */
export function lookOf(cells) {
  let look = LOOKS.get(cells);
  if (look === undefined) LOOKS.set(cells, (look = cells.map((kind) => kind.look).join()));
  return look;
}

/** @param {Add} add */
function byHealth(add) {
  const kinds = new Map(HEALTHS.map((state, at) =>
    [state, add(state, state === "healthy" ? "--good" : `--series-${at + 1}`, TEXTURES[at])]));
  const unknown = add("unknown", "--dim", HOLLOW);
  return (/** @type {Host} */ host) => alike(kinds.get(host.state) ?? unknown, host.gpus);
}

/** Textures that differ: eight colours return with another one each time, 56 kinds in all. */
const DIFFERENT = TEXTURES.slice(0, 7);

/**
 * Every GPU of a host tells why the host is no place for a job.
 * @param {OfJob} ofJob
 * @param {Add} add
 */
function byReason(ofJob, add) {
  const fits = add("on a host that could take a task", "--good", FULL);
  const kinds = new Map(Object.entries(ofJob.reasons).map(([reason, words], at) =>
    [reason, add(words, `--series-${(at % 8) + 1}`, DIFFERENT[(at + 1 + 3 * Math.floor(at / 8)) % DIFFERENT.length])]));
  return (/** @type {Host} */ host) => alike(kinds.get(ofJob.hosts[host.name] ?? "") ?? fits, host.gpus);
}

/**
 * @param {string} by
 * @param {Fleet} fleet
 * @param {Add} add
 */
function byJob(by, fleet, add) {
  const choose = by === "band" ? bands(add) : by === "use" ? uses(add) : tenants(fleet, add);
  const free = add("free", "--dim", HOLLOW);
  const closed = add("free, but its host takes no work", "--bad", CROSS);
  return (/** @type {Host} */ host) => {
    const held = Object.entries(host.held);
    const rest = alike(host.state === "healthy" ? free : closed, host.gpus);
    if (held.length === 0) return rest;
    if (held.length === 1 && held[0][1] >= host.gpus) return alike(choose(fleet.jobs[held[0][0]]), host.gpus);
    // Whole GPUs first, then shares: those that fit on one GPU have one cell, of the largest of them.
    held.sort((a, b) => Math.min(1, b[1]) - Math.min(1, a[1]));
    const cells = [...rest];
    let cell = 0, room = 0;
    for (const [id, gpus] of held) {
      if (gpus <= room + 1e-6) {
        room -= gpus;
        continue;
      }
      room = Math.max(0, 1 - gpus);
      const kind = choose(fleet.jobs[id]);
      for (let left = Math.ceil(gpus - 1e-6); left > 0 && cell < host.gpus; left -= 1) cells[cell++] = kind;
    }
    return cells;
  };
}

/** @param {Add} add */
function bands(add) {
  const kinds = new Map(BANDS.map((band, at) => [band, add(band, `--series-${at + 1}`, TEXTURES[at])]));
  const other = add("unknown", "--series-8", FULL);
  return (/** @type {Job | undefined} */ job) => kinds.get(job?.band ?? "") ?? other;
}

/** @param {Add} add */
function uses(add) {
  const running = add("in use by a job that runs", "--series-1", FULL);
  const idle = add("held by a job that does not run", "--series-2", RISING);
  idle.sought = "No GPU is idle but held.";
  return (/** @type {Job | undefined} */ job) => (job === undefined || job.state === "RUNNING" ? running : idle);
}

/** @type {Map<string, number>} */
const SLOTS = new Map();

/**
 * The colour of each tenant: by its name, so that it stays when others come and go. Of two that would
 * have the same, the one that was seen first keeps it.
 * @param {string[]} names at most as many as there are slots
 */
function slotsOf(names) {
  for (const known of [...SLOTS.keys()]) if (!names.includes(known)) SLOTS.delete(known);
  for (const name of names) {
    if (SLOTS.has(name)) continue;
    let slot = [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 9_973, 0);
    const taken = [...SLOTS.values()];
    do slot = (slot + 1) % (MOST_TENANTS - 1); while (taken.includes(slot));
    SLOTS.set(name, slot);
  }
  return SLOTS;
}

/**
 * The tenants with the most jobs have a kind each.
 * @param {Fleet} fleet
 * @param {Add} add
 */
function tenants(fleet, add) {
  /** @type {Map<string, number>} */
  const jobs = new Map();
  for (const job of Object.values(fleet.jobs)) jobs.set(job.tenant, (jobs.get(job.tenant) ?? 0) + 1);
  const most = [...jobs].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, MOST_TENANTS - 1);
  const names = most.map(([name]) => name).sort();
  const slots = slotsOf(names);
  const kinds = new Map(names.map((name) => {
    const slot = slots.get(name) ?? 0;
    return [name, add(name, `--series-${slot + 1}`, TEXTURES[slot])];
  }));
  const others = add(OTHERS, "--series-8", FULL);
  return (/** @type {Job | undefined} */ job) => kinds.get(job?.tenant ?? "") ?? others;
}
