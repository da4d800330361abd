// One cluster of <gpu-map> on its canvas: where its hosts are, and how a cell is drawn.

import { ACROSS, CROSS, DOT, DOWN, FALLING, HOLLOW, RISING, lookOf } from "./gpu-kinds.js";
import { colour } from "./common.js";

/**
 * @typedef {import("./gpu-kinds.js").Kind} Kind
 * @typedef {import("./gpu-kinds.js").Kinds} Kinds
 * @typedef {import("./gpu-map.js").Host} Host
 * @typedef {import("./gpu-map.js").Cluster} Cluster
 * @typedef {{host: Host, x: number, y: number, width: number, height: number, look: string}} Box
 * @typedef {Map<string, ImageBitmap>} Stamps pictures of cells and hosts, each drawn once
 */

/** Cells in pixels, by how many there are at most. */
const CELLS = /** @type {[number, number][]} */ ([[128, 26], [400, 18], [2_000, 12], [20_000, 8], [60_000, 5], [Infinity, 4]]);
const ACROSS_HOST = 4;
const NAMED = 18;
/** What the name of a host needs. */
const NAME = 56;
const TEXTURED = 5;
const MOST_PIXELS = 15_000;
const MOST_STAMPS = 4_000;

/**
 * How large a cell of so many is.
 * @param {number} gpus
 */
export function cellFor(gpus) {
  return /** @type {[number, number]} */ (CELLS.find(([most]) => gpus <= most))[1];
}

export class Plot {
  /** @type {Box[]} */
  #boxes = [];
  #marked = "";

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {HTMLElement} owner whose style sheet has the colours
   * @param {number} cell
   * @param {Stamps} stamps
   */
  constructor(canvas, owner, cell, stamps) {
    this.canvas = canvas;
    this.owner = owner;
    this.cell = cell;
    this.stamps = stamps;
    this.ratio = Math.min(2, devicePixelRatio || 1);
  }

  /**
   * @param {Cluster} cluster
   * @param {Kinds} kinds
   * @param {number} most how wide it may be
   */
  draw(cluster, kinds, most) {
    const { width, height } = this.#place(cluster.hosts, most);
    const ratio = height * this.ratio > MOST_PIXELS ? 1 : this.ratio;
    this.ratio = ratio;
    this.canvas.width = Math.ceil(width * ratio);
    this.canvas.height = Math.ceil(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.#context();
    for (const box of this.#boxes) this.#host(context, box, kinds.of(box.host));
  }

  /**
   * Draw the hosts that changed, of a cluster with the same hosts.
   * @param {Cluster} cluster
   * @param {Kinds} kinds
   */
  update(cluster, kinds) {
    const context = this.#context();
    const hosts = cluster.hosts.filter((host) => host.gpus > 0);
    this.#boxes.forEach((box, at) => {
      box.host = hosts[at];
      this.#host(context, box, kinds.of(hosts[at]));
    });
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {Host | null}
   */
  hostAt(x, y) {
    const found = this.#boxes.find((box) =>
      x >= box.x - 1 && x <= box.x + box.width + 1 && y >= box.y - 1 && y <= box.y + box.height + 1);
    return found?.host ?? null;
  }

  /**
   * Draw a frame around one host, and take away that of another.
   * @param {string} name
   */
  mark(name) {
    const before = this.#boxes.find((box) => box.host.name === this.#marked);
    const box = this.#boxes.find((each) => each.host.name === name);
    const context = this.#context();
    if (before !== undefined && before !== box) this.#frame(context, before, "--paper");
    if (box !== undefined) this.#frame(context, box, "--ink");
    this.#marked = box === undefined ? "" : name;
  }

  /**
   * One cell, for the legend.
   * @param {HTMLCanvasElement} canvas
   * @param {HTMLElement} owner
   * @param {Kind} kind
   */
  static sample(canvas, owner, kind) {
    canvas.width = canvas.height = 14;
    const plot = new Plot(canvas, owner, 14, new Map());
    plot.ratio = 1;
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(plot.#stamp(kind), 0, 0);
  }

  #context() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    return context;
  }

  /**
   * Hosts from left to right, with a gap between racks; the size.
   * @param {Host[]} hosts
   * @param {number} most
   */
  #place(hosts, most) {
    const gap = this.cell >= 8 ? 6 : 2;
    const name = this.cell >= NAMED ? 16 : 0;
    let x = 2, y = 2, tall = 0, wide = 0, rack = "";
    this.#boxes = [];
    for (const host of hosts) {
      if (host.gpus <= 0) continue;
      const across = Math.min(host.gpus, ACROSS_HOST);
      const box = {
        host, x, y, look: "", width: across * this.cell,
        height: Math.ceil(host.gpus / ACROSS_HOST) * this.cell,
      };
      const room = Math.max(box.width, name ? NAME : 0);
      if (rack && host.rack !== rack && x > 2) x += 2 * gap;
      rack = host.rack;
      if (x + room > most - 2 && x > 2) {
        x = 2;
        y += tall + gap + name;
        tall = 0;
      }
      box.x = x;
      box.y = y;
      x += room + gap;
      tall = Math.max(tall, box.height);
      wide = Math.max(wide, x);
      this.#boxes.push(box);
    }
    return { width: Math.min(most, wide + 2), height: y + tall + name + 4 };
  }

  /**
   * Draw a host, unless it looks as it did.
   * @param {CanvasRenderingContext2D} context
   * @param {Box} box
   * @param {Kind[]} cells
   */
  #host(context, box, cells) {
    const look = lookOf(cells);
    if (look === box.look) return;
    const isNew = box.look === "";
    box.look = look;
    if (!isNew) context.clearRect(box.x, box.y, box.width, box.height);
    context.drawImage(this.#hostStamp(cells, look, box), box.x, box.y, box.width, box.height);
    if (this.cell >= NAMED && isNew) {
      context.fillStyle = colour(this.owner, "--dim");
      context.font = "11px system-ui, sans-serif";
      context.fillText(short(box.host.name), box.x, box.y + box.height + 12);
    }
  }

  /**
   * The picture of a host; hosts that look the same share it.
   * @param {Kind[]} cells
   * @param {string} look
   * @param {Box} box
   */
  #hostStamp(cells, look, box) {
    const known = this.stamps.get(look);
    if (known !== undefined) return known;
    const { canvas, context } = blank(box.width * this.ratio, box.height * this.ratio);
    context.scale(this.ratio, this.ratio);
    cells.forEach((kind, at) => {
      const x = (at % ACROSS_HOST) * this.cell;
      const y = Math.floor(at / ACROSS_HOST) * this.cell;
      context.drawImage(this.#stamp(kind), x, y, this.cell, this.cell);
    });
    const stamp = canvas.transferToImageBitmap();
    if (this.stamps.size < MOST_STAMPS) this.stamps.set(look, stamp);
    return stamp;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Box} box
   * @param {string} name
   */
  #frame(context, box, name) {
    context.strokeStyle = colour(this.owner, name);
    context.lineWidth = 2;
    context.strokeRect(box.x - 1, box.y - 1, box.width + 1, box.height + 1);
  }

  /**
   * The picture of a cell, made once for each kind.
   * @param {Kind} kind
   */
  #stamp(kind) {
    const known = this.stamps.get(`cell ${kind.look}`);
    if (known !== undefined) return known;
    const size = Math.round(this.cell * this.ratio);
    const { canvas, context } = blank(size, size);
    const ink = colour(this.owner, kind.colour);
    const side = size - Math.max(1, Math.round(size / 8));
    context.fillStyle = context.strokeStyle = ink;
    if (kind.texture === HOLLOW) {
      context.lineWidth = 1;
      context.strokeRect(0.5, 0.5, side - 1, side - 1);
    } else {
      context.fillRect(0, 0, side, side);
      if (this.cell >= TEXTURED) texture(context, kind.texture, side, colour(this.owner, "--paper"));
    }
    const stamp = canvas.transferToImageBitmap();
    this.stamps.set(`cell ${kind.look}`, stamp);
    return stamp;
  }
}

/**
 * A canvas out of sight. What is drawn there is drawn elsewhere as a bitmap, which takes less than
 * from a canvas.
 * @param {number} width
 * @param {number} height
 */
function blank(width, height) {
  const canvas = new OffscreenCanvas(Math.round(width), Math.round(height));
  return { canvas, context: /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d")) };
}

/**
 * Lines over a cell, so that kinds are told apart without their colours.
 * @param {OffscreenCanvasRenderingContext2D} context
 * @param {number} kind
 * @param {number} side
 * @param {string} ink
 */
function texture(context, kind, side, ink) {
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = Math.max(1, side / 7);
  const lines = /** @type {Record<number, number[][]>} */ ({
    [RISING]: [[0, 1, 1, 0]], [FALLING]: [[0, 0, 1, 1]], [ACROSS]: [[0, 0.5, 1, 0.5]],
    [DOWN]: [[0.5, 0, 0.5, 1]], [CROSS]: [[0, 0, 1, 1], [0, 1, 1, 0]],
  });
  for (const [fromX, fromY, toX, toY] of lines[kind] ?? []) {
    context.beginPath();
    context.moveTo(fromX * side, fromY * side);
    context.lineTo(toX * side, toY * side);
    context.stroke();
  }
  if (kind === DOT) context.fillRect(side * 0.33, side * 0.33, side * 0.34, side * 0.34);
}

/** @param {string} name */
function short(name) {
  return name.length > 9 ? `${name.slice(0, 3)}…${name.slice(-5)}` : name;
}
