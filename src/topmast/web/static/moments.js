// Times that a reader types: dates without a time zone are the reader's, as those that pages show are.

const DATE = /^\d{4}-\d\d-\d\d(?:[T ](\d\d:\d\d(?::\d\d)?))?$/;

/** The same with the offset of the reader's zone at that time; other texts as they are. */
export function zoned(/** @type {string} */ text) {
  const found = DATE.exec(text.trim());
  if (!found) return text;
  const local = found[1] ? text.trim().replace(" ", "T") : `${text.trim()}T00:00`;
  const minutes = -new Date(local).getTimezoneOffset();
  if (Number.isNaN(minutes)) return text;
  const two = (/** @type {number} */ value) => String(Math.floor(value)).padStart(2, "0");
  return `${local}${minutes < 0 ? "-" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`;
}

document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  for (const field of form.querySelectorAll("input[data-moment]")) {
    const input = /** @type {HTMLInputElement} */ (field);
    input.value = zoned(input.value);
  }
});
