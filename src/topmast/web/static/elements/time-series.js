// <time-series>: lines over time, drawn by uPlot.
//
// Its data: {"x": [seconds since the epoch ...], "series": [{"label": ..., "values": [...]}],
// "unit": "GPUs", "label": "what it shows"}. With "elapsed": true, x are seconds from a start, or steps;
// with "zero": true, the axis begins at 0; "span": the first and the last x of the axis.

import uPlot from "../vendor/uplot.js";
import { moment } from "../times.js";
import { colour, dataOf, make, number, onTheme, placeFor } from "./common.js";

/**
 * @typedef {{x: number[], series: {label: string, values: (number | null)[]}[], unit?: string,
 *   label?: string, elapsed?: boolean, zero?: boolean, span?: [number, number]}} Series
 */

const HEIGHT = 220;
/** So that lines are told apart without their colours. */
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 4], [1, 4], [12, 6], [6, 2, 2, 2]];
/** Beside the lines, so that a date below the last of the axis is whole. */
const BESIDE = 36;
const DAY = "{YYYY}-{MM}-{DD}";
/** How the axis writes times, as the rest of the page does: by the seconds between two of them. */
const TIMES = [
  [86400, DAY, null, null, null, null, null, null, 0],
  [60, "{HH}:{mm}", `\n${DAY}`, null, `\n${DAY}`, null, null, null, 1],
  [0, "{HH}:{mm}:{ss}", `\n${DAY}`, null, `\n${DAY}`, null, null, null, 1],
];

class TimeSeries extends HTMLElement {
  /** @type {Series | null} */
  #data = null;
  /** @type {any} */
  #plot = null;
  /** @type {(() => void)[]} */
  #ends = [];

  connectedCallback() {
    const watch = new ResizeObserver(() => this.#plot?.setSize({ width: this.#width(), height: HEIGHT }));
    watch.observe(this);
    this.#ends = [() => watch.disconnect(), onTheme(() => this.#draw())];
    this.refresh();
  }

  /** Draw the data that the page has now. */
  refresh() {
    const data = dataOf(this);
    if (data !== null) this.update(data);
  }

  disconnectedCallback() {
    for (const end of this.#ends) end();
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** @param {Series} data */
  update(data) {
    const same = this.#data !== null && labels(this.#data) === labels(data);
    this.#data = data;
    if (this.#plot !== null && same) this.#plot.setData(columns(data));
    else this.#draw();
  }

  #width() {
    return Math.max(200, this.clientWidth);
  }

  #draw() {
    const data = this.#data;
    this.#plot?.destroy();
    this.#plot = null;
    if (data === null || data.x.length === 0) return;
    const box = make("div", { role: "img", "aria-label": summary(data) });
    placeFor(this, "../vendor/uplot.css").replaceChildren(box);
    const text = colour(this, "--dim");
    const grid = { stroke: colour(this, "--line"), width: 1 };
    const axis = { stroke: text, grid, ticks: grid };
    const time = { label: "Time", value: (/** @type {any} */ _, /** @type {number | null} */ at_s) => (at_s === null ? "" : moment(at_s)) };
    this.#plot = new uPlot(
      {
        width: this.#width(), height: HEIGHT, padding: [null, data.elapsed ? null : BESIDE, null, null],
        scales: {
          x: { time: data.elapsed !== true, ...(data.span ? { range: () => /** @type {Series} */ (this.#data).span } : {}) },
          y: data.zero ? { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, most * 1.05 || 1] } : {},
        },
        hooks: { ready: [this.#showLast.bind(this)], setLegend: [this.#showLast.bind(this)] },
        axes: [{ ...axis, space: 75, ...(data.elapsed ? {} : { values: TIMES }) }, { ...axis, label: data.unit ?? "", size: 64 }],
        series: [data.elapsed ? { label: "Step" } : time, ...data.series.map((each, at) => ({
          label: each.label, width: 2, dash: DASHES[at % DASHES.length],
          stroke: colour(this, `--series-${(at % 8) + 1}`),
        }))],
      },
      columns(data), box,
    );
  }

  /**
   * Without a pointer on the lines the legend tells of their end.
   * @param {any} plot
   */
  #showLast(plot) {
    const data = this.#data;
    if (data === null || plot.cursor.idx != null) return;
    let last = data.x.length - 1;
    while (last > 0 && data.series.every((each) => each.values[last] === null)) last -= 1;
    plot.setLegend({ idx: last }, false);
  }
}

/** @param {Series} data */
function labels(data) {
  return JSON.stringify(data.series.map((each) => each.label));
}

/** @param {Series} data */
function columns(data) {
  return [data.x, ...data.series.map((each) => each.values)];
}

/**
 * What a reader learns that does not see the lines.
 * @param {Series} data
 */
function summary(data) {
  const lines = data.series.map((each) => {
    const known = each.values.filter((value) => value !== null);
    if (known.length === 0) return `${each.label}: nothing`;
    const last = /** @type {number} */ (known[known.length - 1]);
    const most = known.reduce((a, b) => Math.max(/** @type {number} */ (a), /** @type {number} */ (b)));
    return `${each.label}: last ${number(last)}, at most ${number(/** @type {number} */ (most))}`;
  });
  return `${data.label ?? "Over time"} (${data.unit ?? ""}). ${lines.slice(0, 8).join("; ")}`;
}

customElements.define("time-series", TimeSeries);
