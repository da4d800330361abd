// Times by the server's clock: what the reader's clock says does not matter.

/** Seconds that the server's clock is ahead of this machine's. */
let aheadS = 0;
/** The time of a clock that stands: pages of a replay. @type {number | null} */
let stillS = null;

/** Note what the server's clock said in a page that has just come. */
export function setClock(/** @type {DOMStringMap | undefined} */ page) {
  if (!page?.now) return;
  aheadS = Number(page.now) - Date.now() / 1000;
  stillS = page.still === undefined ? null : Number(page.now);
}

/** The server's time. */
export function serverNowS() {
  return stillS ?? Date.now() / 1000 + aheadS;
}

/** A duration in its two largest units, as the command line writes it. */
export function duration(/** @type {number} */ seconds) {
  let rest = Math.max(0, Math.round(seconds));
  if (rest >= 86400) rest = 3600 * Math.round(rest / 3600);
  else if (rest >= 3600) rest = 60 * Math.round(rest / 60);
  const parts = [];
  for (const [unit, size] of /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["m", 60], ["s", 1]])) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count}${unit}`);
  }
  return parts.join("") || "0s";
}

/** Made when a page needs it: that takes 40 ms. @type {Intl.DateTimeFormat | undefined} */
let zoned;

/** A moment in the reader's time zone, which it names: 2030-01-31 12:00:00 UTC, as the server writes it. */
export function moment(/** @type {number} */ at_s) {
  zoned ??= new Intl.DateTimeFormat("en", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", timeZoneName: "short",
  });
  const of = Object.fromEntries(zoned.formatToParts(at_s * 1000).map((part) => [part.type, part.value]));
  return `${of.year}-${of.month}-${of.day} ${of.hour}:${of.minute}:${of.second} ${of.timeZoneName}`;
}

function write(/** @type {HTMLElement} */ element, /** @type {number} */ nowS) {
  const { ago, since, until, at } = element.dataset;
  let text = "";
  if (ago) text = `${duration(nowS - Number(ago))} ago`;
  else if (since) text = duration(nowS - Number(since));
  else if (until) text = `in ${duration(Number(until) - nowS)}`;
  else if (at) text = moment(Number(at));
  if (text && element.textContent !== text) element.textContent = text;
}

/** Bring every time on the page up to date. */
export function tick() {
  if (document.hidden) return;
  const nowS = serverNowS();
  for (const element of document.querySelectorAll("time")) write(element, nowS);
}

setClock(document.getElementById("main")?.dataset);
