// What the elements share: their data, pictures in SVG, and words for numbers.

import { SHEET } from "./styles.js";

export { moment } from "../times.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * The data that a page gives an element in a script of type application/json.
 * @param {HTMLElement} element
 * @returns {any}
 */
export function dataOf(element) {
  const script = element.querySelector(':scope > script[type="application/json"]');
  return script === null ? null : JSON.parse(script.textContent ?? "null");
}

/**
 * An element of HTML. What is given as text stays text.
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} content
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {(Node | string)[]} content
 * @returns {SVGElement}
 */
export function draw(tag, attributes = {}, ...content) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...content);
  return made;
}

/**
 * The place for the picture of an element, before what the page gives it: in a shadow, so that a page
 * that is drawn anew leaves it alone.
 * @param {HTMLElement} element
 * @param {string[]} sheets further style sheets
 * @returns {HTMLElement}
 */
export function placeFor(element, ...sheets) {
  const shadow = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  if (shadow.childElementCount === 0) {
    shadow.adoptedStyleSheets = [SHEET];
    for (const sheet of sheets) {
      shadow.append(make("link", { rel: "stylesheet", href: new URL(sheet, import.meta.url).href }));
    }
    shadow.append(make("div", { class: element.localName }), make("slot"));
  }
  return /** @type {HTMLElement} */ (shadow.querySelector(`.${element.localName}`));
}

/**
 * A colour that the style sheets name, as it is in the theme of the page.
 * @param {HTMLElement} element
 * @param {string} name
 */
export function colour(element, name) {
  const probe = placeFor(element);
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = "";
  return found;
}

/**
 * A length of time in words: `4 s`, `12 min`, `3 h 20 min`, `5 d 2 h`.
 * @param {number} seconds
 */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(s / 3600);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

/**
 * @param {number} large
 * @param {string} unit
 * @param {number} small
 * @param {string} part
 */
function pair(large, unit, small, part) {
  return small ? `${large} ${unit} ${small} ${part}` : `${large} ${unit}`;
}

/**
 * A number as people write it, with at most two digits after the point.
 * @param {number} value
 */
export function number(value) {
  // A formatter of `Intl` takes some 30 ms to make, before anything is drawn.
  const [whole, part] = String(Math.round(value * 100) / 100).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

/**
 * A number with its noun: `1 GPU`, `3 GPUs`.
 * @param {number} value
 * @param {string} noun
 */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/**
 * Call a function when the page changes between light and dark.
 * @param {() => void} redraw
 * @returns {() => void} ends it
 */
export function onTheme(redraw) {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const watch = new MutationObserver(redraw);
  scheme.addEventListener("change", redraw);
  watch.observe(document.documentElement, { attributeFilter: ["data-theme", "class"] });
  return () => {
    scheme.removeEventListener("change", redraw);
    watch.disconnect();
  };
}

/**
 * Draw an element again whenever its width changes by more than a little.
 * @param {HTMLElement} element
 * @param {() => void} redraw
 * @returns {() => void} ends it
 */
export function onWidth(element, redraw) {
  let width = element.clientWidth;
  const watch = new ResizeObserver(() => {
    if (Math.abs(element.clientWidth - width) < 8) return;
    width = element.clientWidth;
    redraw();
  });
  watch.observe(element);
  return () => watch.disconnect();
}
