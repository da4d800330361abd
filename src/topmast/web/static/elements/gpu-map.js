// <gpu-map>: every GPU of the fleet as a cell, and a list beside it for the keyboard.
//
// Its data is that of GET /api/v1/fleet/map, given in a script or fetched from the address in
// `src`. A script beside `src` is about a job: notes on clusters, by region and name, a list of lines
// each; and for hosts by name why they are no place for it.
// The attribute `by` says what colours tell: tenant, band, use, health, or job.

import { count, dataOf, make, number, onTheme, placeFor } from "./common.js";
import { KINDS, OF_JOB, kindsOf } from "./gpu-kinds.js";
import { Plot, cellFor } from "./gpu-plot.js";

/**
 * @typedef {{name: string, rack: string, model: string, gpus: number, state: string,
 *   closed: string, held: Record<string, number>}} Host
 * @typedef {{name: string, hosts: Host[]}} Cluster
 * @typedef {{name: string, reachable: boolean, clusters: Cluster[]}} Region
 * @typedef {{tenant: string, band: string, state: string, name: string}} Job
 * @typedef {{at_s: number, jobs: Record<string, Job>, regions: Region[]}} Fleet
 */

/** What a region takes of the width beside its canvases: padding and border. */
const REGION = 28;
const MOST_ROWS = 200;
const SENTENCES = /** @type {Record<string, string>} */ ({
  healthy: "It takes work.",
  suspect: "It has not been heard of for a moment; it takes no new work until it answers.",
  draining: "It takes no new work; what can move elsewhere moves.",
  cordoned: "An operator closed it to new work; what runs there goes on.",
  closed: "Its own cluster gives it no new work.",
  down: "It does not answer, and what ran there is lost.",
  stopped: "It starts nothing until it goes on.",
});

class GpuMap extends HTMLElement {
  static observedAttributes = ["by"];
  /** @type {Fleet | null} */
  #fleet = null;
  /** @type {Map<string, Plot>} */
  #plots = new Map();
  /** @type {string[]} */
  #path = [];
  #chosen = "";
  #shown = "";
  /** @type {(import("./gpu-kinds.js").OfJob & {notes: Record<string, string[]>}) | null} */
  #ofJob = null;
  #width = 0;
  /** @type {import("./gpu-plot.js").Stamps} */
  #stamps = new Map();
  /** @type {(() => void)[]} */
  #ends = [];

  connectedCallback() {
    this.#ofJob = this.getAttribute("src") === null ? null : dataOf(this);
    if (placeFor(this).childElementCount === 0) this.#frame();
    this.#chosen = this.getAttribute("chosen") ?? "";
    const watch = new ResizeObserver(() => this.#resized());
    watch.observe(this);
    const again = () => void this.refresh();
    document.addEventListener("topmast:drawn", again);
    this.#ends = [
      () => watch.disconnect(), onTheme(() => this.#redraw()),
      () => document.removeEventListener("topmast:drawn", again),
    ];
    void this.refresh();
  }

  disconnectedCallback() {
    for (const end of this.#ends) end();
  }

  attributeChangedCallback() {
    if (this.#fleet !== null) this.#redraw();
  }

  /** Show the fleet as it is now. */
  async refresh() {
    const source = this.getAttribute("src");
    const answer = source === null ? null : await fetch(source, { redirect: "error" });
    const data = answer === null ? dataOf(this) : answer.ok ? await answer.json() : null;
    const ofJob = source === null ? null : dataOf(this);
    const changed = JSON.stringify(ofJob) !== JSON.stringify(this.#ofJob);
    this.#ofJob = ofJob;
    if (changed && data !== null) this.#fleet = null;
    if (data !== null) this.update(data);
  }

  /**
   * Show a fleet; of one that has the same hosts only what changed is drawn.
   * @param {Fleet} fleet
   */
  update(fleet) {
    const before = this.#fleet;
    this.#fleet = fleet;
    if (before === null || shape(before) !== shape(fleet)) {
      this.#redraw();
      return;
    }
    const kinds = kindsOf(this.by, fleet, this.#ofJob);
    for (const region of fleet.regions) {
      for (const cluster of region.clusters) {
        this.#plots.get(`${region.name}/${cluster.name}`)?.update(cluster, kinds);
      }
    }
    this.#tell(kinds);
  }

  get by() {
    const by = this.getAttribute("by") ?? "";
    return by in KINDS || (by === OF_JOB && this.#ofJob !== null) ? by : "tenant";
  }

  #frame() {
    placeFor(this).append(
      make("div", { class: "choices" }), make("div", { class: "legend" }),
      make("div", { class: "panes" },
        make("div", { class: "drawn" }),
        make("div", { class: "beside" },
          make("nav", { class: "list", "aria-label": "Places of the fleet" }),
          make("div", { class: "about", role: "status" }))),
    );
    const label = make("label", {}, "Colours tell ");
    const select = /** @type {HTMLSelectElement} */ (make("select", { name: "by" }));
    const job = this.#ofJob;
    const ways = job === null ? KINDS : { [OF_JOB]: `why not ${job.name}`, ...KINDS };
    for (const [key, words] of Object.entries(ways)) {
      select.append(make("option", { value: key, ...(key === this.by ? { selected: "" } : {}) }, words));
    }
    select.addEventListener("change", () => {
      this.setAttribute("by", select.value);
      remember("by", select.value);
    });
    label.append(select);
    // Keys of the page are not for a select.
    select.addEventListener("keydown", (event) => event.stopPropagation());
    this.#part("choices").append(label);
    this.#part("list").addEventListener("keydown", (event) => step(/** @type {KeyboardEvent} */ (event)));
  }

  /** @param {string} name */
  #part(name) {
    return /** @type {HTMLElement} */ (placeFor(this).querySelector(`.${name}`));
  }

  #resized() {
    const width = this.#part("drawn").clientWidth;
    if (this.#fleet !== null && Math.abs(width - this.#width) > 8) this.#redraw();
  }

  #redraw() {
    const fleet = this.#fleet;
    if (fleet === null) return;
    const drawn = this.#part("drawn");
    drawn.replaceChildren();
    this.#plots.clear();
    this.#width = drawn.clientWidth;
    const kinds = kindsOf(this.by, fleet, this.#ofJob);
    const gpus = hostsOf(fleet).reduce((sum, host) => sum + host.gpus, 0);
    const cell = cellFor(gpus);
    this.#stamps = new Map();
    for (const region of fleet.regions) {
      const away = region.reachable ? "" : " (out of reach: as last known)";
      const clusters = make("div", { class: "clusters" });
      for (const cluster of region.clusters) clusters.append(this.#figure(region, cluster, kinds, cell));
      drawn.append(make("div", { class: "region" }, make("h2", {}, `${region.name}${away}`), clusters));
    }
    this.#tell(kinds);
  }

  /**
   * @param {Region} region
   * @param {Cluster} cluster
   * @param {import("./gpu-kinds.js").Kinds} kinds
   * @param {number} cell
   */
  #figure(region, cluster, kinds, cell) {
    const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", {
      role: "img", "aria-label": `GPUs of ${cluster.name}: ${summary(cluster.hosts)}`,
    }));
    const figure = make("figure", {}, make("figcaption", {}, cluster.name), canvas);
    const notes = this.#ofJob?.notes[`${region.name}/${cluster.name}`] ?? [];
    if (notes.length) figure.append(make("ul", { class: "notes" }, ...notes.map((line) => make("li", {}, line))));
    const plot = new Plot(canvas, this, cell, this.#stamps);
    plot.draw(cluster, kinds, Math.max(120, this.#width - REGION));
    this.#plots.set(`${region.name}/${cluster.name}`, plot);
    canvas.addEventListener("click", (event) => {
      const host = plot.hostAt(event.offsetX, event.offsetY);
      if (host !== null) this.choose(host.name);
    });
    return figure;
  }

  /**
   * What is beside the cells: the legend, the list and the chosen host.
   * @param {import("./gpu-kinds.js").Kinds} kinds
   */
  #tell(kinds) {
    const legend = kinds.list.filter((kind) => kind.count > 0 || kind.sought);
    const shown = legend.map((kind) => `${kind.label}${number(kind.count)}`).join();
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.#part("legend").replaceChildren(...legend.map((kind) => {
        if (kind.count === 0) return make("span", {}, kind.sought ?? "");
        const sample = /** @type {HTMLCanvasElement} */ (make("canvas", { "aria-hidden": "true" }));
        Plot.sample(sample, this, kind);
        return make("span", { class: "kind" }, sample, `${kind.label} (${number(kind.count)})`);
      }));
    }
    this.#list();
    if (this.#chosen) this.#about();
  }

  /** @param {string} name */
  choose(name) {
    this.#chosen = name;
    for (const plot of this.#plots.values()) plot.mark(name);
    remember("host", name);
    this.#about();
  }

  #about() {
    const about = this.#part("about");
    const fleet = /** @type {Fleet} */ (this.#fleet);
    const host = hostsOf(fleet).find((each) => each.name === this.#chosen);
    if (host === undefined) return;
    const told = make("div", {}, make("h2", {}, host.name));
    told.append(make("p", {}, `${host.state}. ${SENTENCES[host.state] ?? ""} ${host.closed}`));
    told.append(make("p", {}, host.gpus ? `${count(host.gpus, "GPU")} ${host.model}, ${number(free(host))} free.` : "No GPUs."));
    const ofJob = this.#ofJob;
    if (ofJob !== null) {
      told.append(make("p", {}, `For ${ofJob.name}: ${ofJob.reasons[ofJob.hosts[host.name] ?? ""] ?? "it could take a task"}.`));
    }
    const jobs = make("ul");
    for (const [id, gpus] of Object.entries(host.held)) {
      const job = fleet.jobs[id];
      const words = job ? ` ${job.name} of ${job.tenant}, ${job.band}, ${job.state.toLowerCase()}` : "";
      const link = job && job.name ? make("a", { href: `/jobs/${encodeURIComponent(id)}` }, id) : "a job";
      jobs.append(make("li", {}, `${count(gpus, "GPU")}: `, link, words));
    }
    told.append(jobs.children.length ? jobs : make("p", {}, "No job has GPUs here."));
    const text = told.textContent ?? "";
    if (about.textContent !== text) about.replaceChildren(...told.childNodes);
    for (const plot of this.#plots.values()) plot.mark(this.#chosen);
  }

  #list() {
    const fleet = /** @type {Fleet} */ (this.#fleet);
    const list = this.#part("list");
    const focused = this.shadowRoot?.activeElement?.getAttribute("data-key");
    const { rows, more } = places(fleet, this.#path);
    const path = make("p", { class: "path" }, this.#way("All regions", []));
    this.#path.forEach((name, at) => path.append(" › ", this.#way(name, this.#path.slice(0, at + 1))));
    const items = make("ul");
    for (const row of rows) {
      const button = make("button", { type: "button", "data-key": row.key }, make("b", {}, row.name), ` ${row.words}`);
      button.addEventListener("click", () => {
        if (row.host) this.choose(row.name);
        else this.#go([...this.#path, row.name]);
      });
      items.append(make("li", {}, button));
    }
    list.replaceChildren(path, items, more ? make("p", {}, `and ${number(more)} more`) : "");
    if (focused) {
      /** @type {HTMLElement | null} */ (list.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus();
    }
  }

  /**
   * @param {string} words
   * @param {string[]} path
   */
  #way(words, path) {
    const button = make("button", { type: "button", "data-key": `way ${path.length}` }, words);
    button.addEventListener("click", () => this.#go(path));
    return button;
  }

  /** @param {string[]} path */
  #go(path) {
    this.#path = path;
    this.#list();
    /** @type {HTMLElement | null} */ (this.#part("list").querySelector("li button"))?.focus();
  }
}

/**
 * What is directly below a path of region, cluster and rack.
 * @param {Fleet} fleet
 * @param {string[]} path
 */
function places(fleet, path) {
  const [region, cluster, rack] = path;
  /** @type {{name: string, key: string, words: string, host: boolean}[]} */
  const rows = [];
  const add = (/** @type {string} */ name, /** @type {Host[]} */ hosts, host = false) => {
    const words = host ? `${hosts[0].state}, ${summary(hosts)}` : summary(hosts);
    rows.push({ name, key: `${path.length} ${name}`, words, host });
  };
  const clusters = fleet.regions.find((each) => each.name === region)?.clusters ?? [];
  const hosts = clusters.find((each) => each.name === cluster)?.hosts ?? [];
  const racks = [...new Set(hosts.map((host) => host.rack))];
  if (region === undefined) {
    for (const each of fleet.regions) add(each.name, each.clusters.flatMap((c) => c.hosts));
  } else if (cluster === undefined) {
    for (const each of clusters) add(each.name, each.hosts);
  } else if (rack === undefined && racks.length > 1) {
    for (const name of racks) add(name || "no rack", hosts.filter((host) => host.rack === name));
  } else {
    const here = hosts.filter((host) => rack === undefined || (host.rack || "no rack") === rack);
    for (const host of here.slice(0, MOST_ROWS)) add(host.name, [host], true);
    return { rows, more: Math.max(0, here.length - MOST_ROWS) };
  }
  return { rows: rows.slice(0, MOST_ROWS), more: Math.max(0, rows.length - MOST_ROWS) };
}

/** @param {Fleet} fleet */
function hostsOf(fleet) {
  return fleet.regions.flatMap((region) => region.clusters.flatMap((cluster) => cluster.hosts));
}

/** @param {Host} host */
function free(host) {
  if (host.state !== "healthy") return 0;
  return Math.max(0, host.gpus - Object.values(host.held).reduce((sum, gpus) => sum + gpus, 0));
}

/** @param {Host[]} hosts */
function summary(hosts) {
  const gpus = hosts.reduce((sum, host) => sum + host.gpus, 0);
  const open = hosts.reduce((sum, host) => sum + free(host), 0);
  const sick = hosts.filter((host) => host.state !== "healthy").length;
  const out = sick && hosts.length > 1 ? `, ${count(sick, "host")} out of service` : "";
  return `${number(open)} of ${count(gpus, "GPU")} free${out}`;
}

/**
 * Two fleets with the same shape have the same cells.
 * @param {Fleet} fleet
 */
function shape(fleet) {
  return fleet.regions.map((region) => [region.name, region.reachable, ...region.clusters.map((cluster) =>
    `${cluster.name} ${cluster.hosts.length} ${cluster.hosts[0]?.name} ${cluster.hosts.at(-1)?.name}`)].join()).join(";");
}

/** @param {KeyboardEvent} event */
function step(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by === undefined) return;
  const buttons = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("button")];
  const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (event.target));
  buttons[at + by]?.focus();
  event.preventDefault();
}

/**
 * Keep a choice in the address, so that it can be sent to others.
 * @param {string} name
 * @param {string} value
 */
function remember(name, value) {
  const url = new URL(location.href);
  url.searchParams.set(name, value);
  history.replaceState(history.state, "", url);
}

customElements.define("gpu-map", GpuMap);
