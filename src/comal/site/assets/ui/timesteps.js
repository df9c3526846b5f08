/**
 * The steps of a time series: a slider, and a list of them by name.
 */

import { h, newId } from "./dom.js";
import { instant } from "./format.js";

/** Beyond this many a list of steps helps nobody. */
const MOST_LISTED = 400;

/**
 * @param {{count: number, values: (string | null)[]} | null | undefined} time
 * @param {number} start the step that is chosen
 * @param {(step: number) => void} onChange called once a step is settled on
 * @returns {HTMLElement | null} null where there is nothing to choose
 */
export function timeControl(time, start, onChange) {
  const steps = time?.count ?? time?.values.length ?? 0;
  if (!time || steps < 2) return null;
  const name = (/** @type {number} */ step) =>
    time.values[step] ? instant(time.values[step]) : `step ${step + 1}`;
  const id = newId();
  const input = h("input", { id, type: "range", min: 0, max: steps - 1, step: 1, value: start });
  const place = h("output", { for: id });
  const list = h("select", { class: "select", "aria-label": "Time, by name" });
  const isListed = steps <= MOST_LISTED;
  if (isListed) {
    list.append(
      ...Array.from({ length: steps }, (_, step) => h("option", { value: step }, name(step))),
    );
  }
  const caption = h("p", { class: "caption" });

  function tell() {
    const step = Number(input.value);
    place.textContent = `${step + 1}/${steps}`;
    input.setAttribute("aria-valuetext", name(step));
    list.value = String(step);
    caption.textContent = name(step);
  }
  input.addEventListener("input", tell);
  input.addEventListener("change", () => onChange(Number(input.value)));
  list.addEventListener("change", () => {
    input.value = list.value;
    tell();
    onChange(Number(input.value));
  });
  tell();
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, "Time"),
    h("div", { class: "slider" }, input, place),
    isListed ? list : caption,
  );
}
