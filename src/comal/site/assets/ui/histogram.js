/**
 * A histogram with two handles: a stretch of values that is chosen by mouse, keys or numbers.
 */

import { h, svg } from "./dom.js";
import { value as shown } from "./format.js";

const WIDTH = 256;
const HEIGHT = 56;

/**
 * @param {object} options
 * @param {number[]} options.edges one more than counts
 * @param {number[]} options.counts
 * @param {[number, number]} options.chosen
 * @param {string} options.label what the values are
 * @param {(chosen: [number, number]) => void} options.onChange called while handles move
 * @param {string[] | null} [options.colors] from low to high: the bars inside take them
 * @param {(number: number) => string} [options.format]
 * @param {(text: string, isHigh: boolean) => number} [options.parse] NaN for what is no value
 */
export function histogram({
  edges,
  counts,
  chosen,
  label,
  onChange,
  colors = null,
  format = shown,
  parse = Number,
}) {
  const low = edges[0];
  const high = edges[edges.length - 1];
  const step = high > low ? (high - low) / 1000 : 1;
  const current = [chosen[0], chosen[1]];
  const bars = drawBars(counts);
  const inputs = ["lowest", "highest"].map((end, which) =>
    h("input", {
      type: "range",
      class: `handle handle--${which ? "high" : "low"}`,
      min: low,
      max: high,
      step,
      "aria-label": `${end} ${label}`,
      input: (/** @type {Event} */ event) => move(which, Number(inputOf(event).value)),
    }),
  );
  const numbers = [0, 1].map((which) =>
    h("input", {
      type: "text",
      inputmode: "decimal",
      class: "number",
      "aria-label": `${which ? "highest" : "lowest"} ${label}, typed`,
      change: (/** @type {Event} */ event) => typed(which, inputOf(event)),
    }),
  );

  /** @param {number} which @param {number} to */
  function move(which, to) {
    current[which] = which ? Math.max(to, current[0]) : Math.min(to, current[1]);
    refresh();
    onChange([current[0], current[1]]);
  }

  /** @param {number} which @param {HTMLInputElement} input */
  function typed(which, input) {
    const number = input.value.trim() === "" ? NaN : parse(input.value, which === 1);
    if (Number.isFinite(number)) move(which, number);
    else refresh();
  }

  function refresh() {
    inputs.forEach((input, which) => {
      input.value = String(clamp(current[which], low, high));
      input.setAttribute("aria-valuetext", format(current[which]));
    });
    numbers.forEach((input, which) => (input.value = format(current[which])));
    paintBars(bars, edges, current, colors);
  }

  refresh();
  return h(
    "div",
    { class: "histogram" },
    h("div", { class: "histogram__plot" }, bars, ...inputs),
    h(
      "div",
      { class: "histogram__ends" },
      numbers[0],
      h("span", { "aria-hidden": "true" }, "to"),
      numbers[1],
    ),
  );
}

/** @param {Event} event */
function inputOf(event) {
  return /** @type {HTMLInputElement} */ (event.target);
}

/** @param {number[]} counts */
function drawBars(counts) {
  const most = Math.max(1, ...counts);
  const wide = WIDTH / counts.length;
  const bars = counts.map((number, index) => {
    // The root keeps rare values visible beside a peak.
    const tall = number ? Math.max(1.5, Math.sqrt(number / most) * HEIGHT) : 0;
    return svg("rect", {
      x: (index * wide).toFixed(2),
      y: (HEIGHT - tall).toFixed(2),
      width: Math.max(0.5, wide - 0.6).toFixed(2),
      height: tall.toFixed(2),
    });
  });
  const frame = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
  return svg("svg", { ...frame, class: "histogram__bars", "aria-hidden": "true" }, ...bars);
}

/** @param {Element} bars @param {number[]} edges @param {number[]} chosen @param {string[] | null} colors */
function paintBars(bars, edges, [low, high], colors) {
  [...bars.children].forEach((child, index) => {
    const bar = /** @type {SVGElement} */ (child);
    const middle = (edges[index] + edges[index + 1]) / 2;
    const isInside = edges[index + 1] >= low && edges[index] <= high;
    bar.classList.toggle("is-inside", isInside);
    if (colors === null) return;
    const share = high > low ? clamp((middle - low) / (high - low), 0, 1) : 0;
    bar.style.fill = isInside ? colors[Math.round(share * (colors.length - 1))] : "";
  });
}

/** @param {number} number @param {number} low @param {number} high */
function clamp(number, low, high) {
  return Math.min(Math.max(number, low), high);
}
