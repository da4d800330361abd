// Makes one element like another, and keeps what a reader has in hand: the focus, what is typed and
// selected, open details, and elements that draw themselves.

/** Elements with this attribute keep their children: a script owns them. */
const OWN = "data-own";

function keyOf(/** @type {Node} */ node) {
  return node instanceof Element ? node.getAttribute("data-key") || node.id : "";
}

function alike(/** @type {Node} */ a, /** @type {Node} */ b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function copyAttributes(/** @type {Element} */ old, /** @type {Element} */ fresh) {
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    // What the reader opened stays open; what a script marked or made ready for the focus stays so.
    if (!fresh.hasAttribute(name) && !["open", "tabindex"].includes(name) && !name.startsWith("data-ui-")) {
      old.removeAttribute(name);
    }
  }
}

/** Make `old` like `fresh`, which may be taken apart; the focus stays where it is. */
export function redraw(/** @type {Element} */ old, /** @type {Element} */ fresh) {
  const held = document.activeElement;
  morph(old, fresh);
  // A browser takes the focus from an element that finds another place.
  if (held instanceof HTMLElement && held.isConnected && held !== document.activeElement) held.focus({ preventScroll: true });
}

function morph(/** @type {Element} */ old, /** @type {Element} */ fresh) {
  if (old.isEqualNode(fresh)) return;
  copyAttributes(old, fresh);
  if (old.hasAttribute(OWN) || old === document.activeElement && old.matches("input, select, textarea")) return;
  const before = dataOf(old);
  children(old, fresh);
  // An element that draws itself looks at its data again when that is other data.
  if (old.localName.includes("-") && before !== dataOf(old)) {
    const drawn = /** @type {any} */ (old);
    drawn.refresh?.();
  }
}

function dataOf(/** @type {Element} */ element) {
  return element.localName.includes("-")
    ? element.querySelector(':scope > script[type="application/json"]')?.textContent
    : undefined;
}

function children(/** @type {Element} */ old, /** @type {Element} */ fresh) {
  /** @type {Map<string, Element>} */
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const known = key ? keyed.get(key) : undefined;
    if (known && known !== at && alike(known, wanted)) {
      old.insertBefore(known, at);
      morph(known, /** @type {Element} */ (wanted));
      continue;
    }
    if (at && alike(at, wanted)) {
      if (at instanceof Element) morph(at, /** @type {Element} */ (wanted));
      else if (at.nodeValue !== wanted.nodeValue) at.nodeValue = wanted.nodeValue;
      at = at.nextSibling;
    } else {
      old.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
