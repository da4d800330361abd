// <quota-tree>: the tenants of one GPU model as a tree with bars, each of which leads to its tenant.
//
// Its data is the list of tenants (`topmast tenants --json`). The attribute `model` chooses a model;
// by default it is the first.

import { count, dataOf, draw, number, onWidth, placeFor } from "./common.js";

/**
 * @typedef {{name: string, gpu_model: string, nominal: number | null, used: number,
 *   borrowed: number, lent: number, pending: number, parent: string | null}} Tenant
 * @typedef {{left: number, scale: number, figures: number}} Axis where bars begin, the pixels of
 *   one GPU, and where figures begin
 */

const LEAST_WIDTH = 280;
/** Where there is less room, the figures of a tenant begin below its name, not below its bar. */
const WIDE = 480;
const ROW = 44;
/** The part of the width, and the most, that names have. */
const NAMES = { part: 0.3, most: 240 };
const LETTER = 8;
const INDENT = 18;
const BAR = 16;

class QuotaTree extends HTMLElement {
  static observedAttributes = ["model"];
  /** @type {Tenant[]} */
  #tenants = [];

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

  attributeChangedCallback() {
    if (this.isConnected) this.update(this.#tenants);
  }

  /** @param {Tenant[]} tenants */
  update(tenants) {
    this.#tenants = tenants;
    const model = this.getAttribute("model") ?? tenants[0]?.gpu_model ?? "";
    const rows = ordered(tenants.filter((t) => t.gpu_model === model));
    if (rows.length === 0) return;
    const most = Math.max(1, ...rows.map(({ tenant: t }) => extent(t)));
    const width = Math.max(LEAST_WIDTH, this.clientWidth);
    const left = Math.min(NAMES.most, NAMES.part * width);
    const picture = draw("svg", {
      width, height: ROW * rows.length, role: "list", class: "tree",
      "aria-label": `Quota and use of ${model || "GPUs"} by tenant`,
    });
    rows.forEach(({ tenant, depth }, at) => {
      const scale = (width - left - 8) / most;
      const figures = width < WIDE ? depth * INDENT : left;
      picture.append(row(tenant, depth, at * ROW, { left, scale, figures }));
    });
    placeFor(this).replaceChildren(picture);
  }
}

/**
 * The most GPUs that a row shows.
 * @param {Tenant} t
 */
function extent(t) {
  return Math.max(t.nominal ?? 0, t.used + t.borrowed + t.pending, (t.nominal ?? 0) + t.borrowed);
}

/**
 * Children after their parents, with their depth.
 * @param {Tenant[]} tenants
 */
function ordered(tenants) {
  const names = new Set(tenants.map((t) => t.name));
  /** @type {Map<string, Tenant[]>} */
  const below = new Map();
  for (const tenant of tenants) {
    const parent = tenant.parent !== null && names.has(tenant.parent) ? tenant.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), tenant]);
  }
  /** @type {{tenant: Tenant, depth: number}[]} */
  const rows = [];
  const visit = (/** @type {string} */ parent, /** @type {number} */ depth) => {
    for (const tenant of below.get(parent) ?? []) {
      rows.push({ tenant, depth });
      visit(tenant.name, depth + 1);
    }
  };
  visit("", 0);
  return rows;
}

/**
 * @param {Tenant} t
 * @param {number} depth
 * @param {number} y
 * @param {Axis} axis
 */
function row(t, depth, y, axis) {
  const { left, scale } = axis;
  const quota = t.nominal === null ? "no quota" : `a quota of ${count(t.nominal, "GPU")}`;
  const words = [
    `${t.name}: ${quota}`, `${number(t.used)} used within it`, `${number(t.borrowed)} borrowed`,
    `${number(t.lent)} lent`, `${number(t.pending)} asked for by jobs that wait`,
  ].join(", ");
  const link = draw("a", { href: `/tenants?tenant=${encodeURIComponent(t.name)}`, "aria-label": words });
  const top = y + 4;
  const most = Math.floor((left - depth * INDENT) / LETTER);
  const short = t.name.length > most ? `${t.name.slice(0, Math.max(1, most - 1))}…` : t.name;
  const bar = (/** @type {number} */ from, /** @type {number} */ gpus, /** @type {string} */ kind) =>
    draw("rect", {
      x: left + from * scale, y: top, width: Math.max(0, gpus * scale), height: BAR, class: kind,
    });
  link.append(draw("title", {}, words));
  link.append(draw("text", { x: depth * INDENT, y: top + 13, class: "name" }, short));
  link.append(bar(0, t.nominal ?? 0, "quota"), bar(0, t.used, "used"));
  link.append(bar(t.used, t.borrowed, "borrowed"), ...hatched(t.used, t.borrowed, axis, top));
  link.append(bar(t.used + t.borrowed, t.pending, "pending"));
  if (t.lent > 0 && t.nominal !== null) link.append(bar(t.nominal - t.lent, t.lent, "lent"));
  if (t.nominal !== null) {
    const x = left + t.nominal * scale;
    link.append(draw("path", { d: `M${x} ${top - 3}v${BAR + 6}`, class: "mark" }));
  }
  link.append(draw("text", { x: axis.figures, y: top + BAR + 14, class: "figures" }, figures(t)));
  return draw("g", { role: "listitem", "aria-label": words }, link);
}

/**
 * Lines over the part that is borrowed, so that it is told apart without its colour.
 * @param {number} from
 * @param {number} gpus
 * @param {Axis} axis
 * @param {number} top
 */
function hatched(from, gpus, { left, scale }, top) {
  const lines = [];
  const end = left + (from + gpus) * scale;
  for (let x = left + from * scale + 5; x < end; x += 6) {
    lines.push(draw("path", { d: `M${x} ${top}l-5 ${BAR}`, class: "hatch" }));
  }
  return lines;
}

/** @param {Tenant} t */
function figures(t) {
  const parts = [t.nominal === null ? `${number(t.used)} used` : `${number(t.used)} of ${number(t.nominal)} used`];
  if (t.borrowed > 0) parts.push(`${number(t.borrowed)} borrowed`);
  if (t.lent > 0) parts.push(`${number(t.lent)} lent`);
  if (t.pending > 0) parts.push(`${number(t.pending)} waiting`);
  return parts.join(" · ");
}

customElements.define("quota-tree", QuotaTree);
