/**
 * Layers of vector tiles with their colours, each to be switched off.
 */

import { h } from "./dom.js";
import { layerColor } from "./palette.js";
import { currentTheme } from "./theme.js";

/**
 * @param {import("./mapview.js").SourceState} state whose `hidden` is changed in place
 * @param {() => void} onChange
 */
export function layerLegend(state, onChange) {
  const layers = state.info.vector_layers ?? [];
  const items = layers.map((layer, index) => {
    const change = () => {
      state.hidden[box.checked ? "delete" : "add"](index);
      onChange();
    };
    const box = h("input", { type: "checkbox", checked: !state.hidden.has(index), change });
    const name = h("span", { dir: "auto", title: layer.id }, layer.id);
    return h("li", {}, h("label", {}, box, h("i", { class: "swatch" }), name));
  });
  const legend = h("ul", { class: "layers", "aria-label": "Layers" }, ...items);
  recolorLegend(legend, state);
  return legend;
}

/** Swatches in the colours of the theme. @param {Element} legend @param {import("./mapview.js").SourceState} state */
export function recolorLegend(legend, { info }) {
  const isDark = currentTheme() === "dark";
  legend.querySelectorAll(".swatch").forEach((swatch, index) => {
    const color = layerColor(info.vector_layers?.[index]?.id ?? "", index, isDark);
    /** @type {HTMLElement} */ (swatch).style.background = color;
  });
}
