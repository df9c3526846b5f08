/**
 * How a raster is drawn: bands, colours, range; with a histogram of what it holds.
 */

import { COLORMAPS, colormap } from "../lib/colormaps.js";
import { h, icon, newId, svg } from "./dom.js";

/** @typedef {import("./sources.js").SourceState} SourceState */
/** @typedef {import("./sources.js").Listener} Listener */

/** The sign on the button that takes back a range. */
const BACK = "M4 8.500h8a4 4 0 0 1 0 8H8M4 8.5 7.5 5M4 8.5 7.5 12";

/** Bands, colours and their range, for rasters that are drawn here. */
export class LookControls {
  /** @param {SourceState} state @param {Listener} listener */
  constructor(state, listener) {
    this.state = state;
    this.listener = listener;
    const { bands, shown } = state.info.comal;
    this.band = shown.length === 3 ? "rgb" : String(shown[0]);
    this.canRgb = shown.length === 3 || bands.length >= 3;
    this.map = bands[shown[0] - 1].palette
      ? "palette"
      : bands[shown[0] - 1].type === "uint8"
        ? "gray"
        : "viridis";
    this.low = h("input", {
      class: "number",
      type: "number",
      step: "any",
      "aria-label": "Lowest value",
      change: () => this.ranged(),
    });
    this.high = h("input", {
      class: "number",
      type: "number",
      step: "any",
      "aria-label": "Highest value",
      change: () => this.ranged(),
    });
    this.picture = h("div");
    this.ramp = h("canvas", { class: "ramp", width: 256, height: 1, "aria-hidden": "true" });
    const reset = h(
      "button",
      {
        class: "button button--icon button--plain",
        type: "button",
        "aria-label": "Range of the data",
        title: "Range of the data",
        click: () => this.load(),
      },
      icon(BACK),
    );
    this.range = h(
      "div",
      { hidden: true },
      this.picture,
      this.ramp,
      h("div", { class: "range" }, this.low, this.high, reset),
    );
    this.mapField = this.select("Colours", this.colormaps(), this.map, (value) => {
      this.map = value;
      this.apply();
    });
    this.element = h("div", {}, this.bandField(), this.stepField(), this.mapField, this.range);
    this.apply(false);
    if (this.stretched) this.load(false);
  }

  /** Whether the values are stretched over a colour map, rather than colours themselves. */
  get stretched() {
    return this.band !== "rgb" && this.map !== "palette";
  }

  get palette() {
    return this.state.info.comal.bands[Number(this.band) - 1]?.palette;
  }

  bandField() {
    const { bands } = this.state.info.comal;
    if (bands.length === 1) return null;
    const choices = bands.map((/** @type {any} */ band, /** @type {number} */ index) => [
      String(index + 1),
      band.description || band.name,
    ]);
    if (this.canRgb) choices.unshift(["rgb", "Red, green, blue"]);
    return this.select("Band", choices, this.band, (value) => {
      this.band = value;
      if (this.map === "palette" && !this.palette) this.map = "viridis";
      if (this.stretched) this.load();
      else this.apply();
    });
  }

  /** Which step of a time series. */
  stepField() {
    const { steps } = this.state.info.comal;
    if (!(steps > 1)) return null;
    const id = newId();
    const shown = h("output", { for: id }, `1 / ${steps}`);
    const slider = h("input", {
      id,
      type: "range",
      min: 1,
      max: steps,
      step: 1,
      value: 1,
      change: () => {
        this.state.look.set("time", String(Number(slider.value) - 1));
        this.listener.redrawn(this.state);
      },
      input: () => {
        shown.textContent = `${slider.value} / ${steps}`;
      },
    });
    return h(
      "div",
      { class: "field" },
      h("label", { for: id }, "Step"),
      h("div", { class: "slider" }, slider, shown),
    );
  }

  /** @returns {[string, string][]} */
  colormaps() {
    const maps = Object.entries(COLORMAPS);
    return this.palette ? [["palette", "Its own"], ...maps] : maps;
  }

  /**
   * @param {string} label @param {[string, string][]} choices @param {string} value
   * @param {(value: string) => void} chosen
   */
  select(label, choices, value, chosen) {
    const id = newId();
    const options = choices.map(([key, name]) =>
      h("option", { value: key, selected: key === value }, name),
    );
    const select = h(
      "select",
      { id, class: "select", change: () => chosen(select.value) },
      ...options,
    );
    return h("div", { class: "field" }, h("label", { for: id }, label), select);
  }

  /** Take over the numbers in the fields. */
  ranged() {
    this.apply();
    this.drawHistogram();
  }

  /** The look as parameters of the tiles. @param {boolean} [redraw] */
  apply(redraw = true) {
    const { look } = this.state;
    for (const name of ["bidx", "colormap_name", "rescale"]) look.delete(name);
    if (this.band === "rgb")
      for (const band of [1, 2, 3])
        look.append("bidx", String(this.state.info.comal.shown[band - 1] ?? band));
    else look.set("bidx", this.band);
    if (this.stretched) look.set("colormap_name", this.map);
    if (this.stretched && this.low.value !== "" && this.high.value !== "")
      look.set("rescale", `${Number(this.low.value)},${Number(this.high.value)}`);
    this.mapField.hidden = this.band === "rgb";
    this.range.hidden = !this.stretched;
    if (this.stretched) this.drawRamp();
    if (this.stretched && !this.summary) this.load(false);
    if (redraw) this.listener.redrawn(this.state);
  }

  /** Ask what the values are like, and stretch over most of them. @param {boolean} [redraw] */
  async load(redraw = true) {
    this.summary = {};
    const answer = await this.listener.statistics(this.state).catch(() => undefined);
    this.summary = answer?.bands?.[0] ?? {};
    const byte = this.state.info.comal.bands[Number(this.band) - 1]?.type === "uint8";
    const [low, high] = byte ? [0, 255] : [this.summary.p2, this.summary.p98];
    this.low.value = short(low);
    this.high.value = short(high);
    this.drawHistogram();
    this.apply(redraw);
  }

  drawHistogram() {
    const counts = this.summary?.histogram;
    if (!counts) {
      this.picture.replaceChildren();
      return;
    }
    const { min, max } = this.summary;
    const top = Math.max(...counts.map(Math.sqrt));
    const bars = counts.map((/** @type {number} */ count, /** @type {number} */ index) => {
      const height = (Math.sqrt(count) / top) * 50;
      const value = min + ((index + 0.5) / counts.length) * (max - min);
      const inside = value >= Number(this.low.value) && value <= Number(this.high.value);
      return svg("rect", {
        x: index * 4,
        y: 52 - height,
        width: 3,
        height: Math.max(height, count ? 1 : 0),
        class: inside ? "is-inside" : "",
      });
    });
    const label = `Values from ${short(min)} to ${short(max)}`;
    this.picture.replaceChildren(
      svg(
        "svg",
        {
          class: "histogram",
          viewBox: `0 0 ${counts.length * 4} 52`,
          preserveAspectRatio: "none",
          role: "img",
          "aria-label": label,
        },
        ...bars,
      ),
    );
  }

  drawRamp() {
    const table = colormap(this.map);
    const context = this.ramp.getContext("2d");
    if (!table || !context) return;
    const colors = new ImageData(256, 1);
    for (let i = 0; i < 256; i++)
      colors.data.set([table[i * 3], table[i * 3 + 1], table[i * 3 + 2], 255], i * 4);
    context.putImageData(colors, 0, 0);
  }
}

/** A number as people write it. @param {number | undefined} value */
export function short(value) {
  if (value === undefined || value === null || !Number.isFinite(Number(value))) return "";
  return String(Number(Number(value).toPrecision(6)));
}
