/**
 * Controls of a raster: what is drawn, in which colours, which values, which time.
 */

import { h, newId } from "../ui/dom.js";
import { value as shown } from "../ui/format.js";
import { histogram } from "../ui/histogram.js";
import { debounced, emptiness, failure, field, fill, waiting } from "../ui/page.js";
import { reasonOf } from "../ui/query.js";
import { fullRange, isPaletted, physical, valueParameters } from "../ui/rasterstyle.js";
import { getJson } from "./api.js";
import { READS } from "./host.js";
import { timeControl } from "../ui/timesteps.js";

/** @typedef {import("../ui/rasterstyle.js").RasterStyle} RasterStyle */

/**
 * What a band's values are like.
 * @typedef {object} Counted
 * @property {string} name
 * @property {number[]} counts
 * @property {number[]} edges
 * @property {number} min
 * @property {number} max
 * @property {number} [percentile_2]
 * @property {number} [percentile_98]
 */

/** @typedef {{name: string, title?: string, colors: string[]}} Colourmap */

/** @type {Promise<Colourmap[]> | null} */
let asked = null;

/** Colour maps, asked for once. @returns {Promise<Colourmap[]>} */
function colourmaps() {
  asked ??= getJson("colormaps.json").then((found) => found.colormaps);
  asked.catch(() => (asked = null));
  return asked;
}

/** Black to white, for bands without a colour map. */
const GREYS = Array.from({ length: 16 }, (_, step) => `hsl(0 0% ${Math.round(6 + step * 5.8)}%)`);

const MODES = /** @type {const} */ ([
  ["one", "One band"],
  ["rgb", "RGB"],
  ["formula", "Formula"],
]);
const CHANNELS = ["Red", "Green", "Blue"];
const CHANNEL_COLORS = [
  ["#5a0f0f", "#e5645b"],
  ["#0f4a1a", "#4fae62"],
  ["#10256b", "#5b8def"],
];
/** Tables have 256 entries; a legend of all would hide everything else. */
const MOST_LEGEND = 32;

/** The controls of one raster. */
export class RasterControls {
  /**
   * @param {string} name the source's as it stands in an address
   * @param {any} detail bands, time and defaults of it
   * @param {RasterStyle} style changed in place
   * @param {() => void} onChange
   */
  constructor(name, detail, style, onChange) {
    this.name = name;
    this.detail = detail;
    this.style = style;
    /** Whether the values of a band are counted that has no stretch before. */
    this.isCounting = false;
    this.onChange = debounced(() => this.isCounting || onChange(), 150);
    /** @type {AbortController | null} */
    this.asking = null;
    /** @type {{asked: string, found: Counted}[]} what was counted last, for each stretch */
    this.known = [];
    this.fields = h("div", { class: "fields" });
    this.colours = h("div", { class: "fields" });
    this.stretch = h("div", { class: "stretch" });
    this.ramp = h("div", { class: "ramp", "aria-hidden": "true" });
    this.element = h(
      "div",
      { class: "controls" },
      this.modes(),
      this.fields,
      this.stretch,
      this.time(),
    );
    this.draw();
    this.drawStretch();
  }

  time() {
    return timeControl(this.detail.time, this.style.time, (step) => {
      this.style.time = step;
      // The stretch stays, so that steps can be compared.
      this.onChange();
      this.restyle();
    });
  }

  modes() {
    const name = newId();
    const possible = MODES.filter(
      ([mode]) =>
        (mode !== "rgb" || this.detail.bands.length >= 3) &&
        (mode !== "formula" || !READS),
    );
    if (possible.length < 2) return null;
    const choices = possible.map(([mode, text]) => {
      const id = newId();
      const change = () => this.changeMode(mode);
      const input = h("input", {
        type: "radio",
        name,
        id,
        value: mode,
        checked: this.style.mode === mode,
        change,
      });
      return h("span", { class: "segment" }, input, h("label", { for: id }, text));
    });
    return h(
      "div",
      { class: "segments", role: "radiogroup", "aria-label": "What is drawn" },
      ...choices,
    );
  }

  /** @param {RasterStyle["mode"]} mode */
  changeMode(mode) {
    const { style, detail } = this;
    style.mode = mode;
    this.chooseColormap();
    if (mode === "rgb") {
      style.bands = [0, 1, 2].map(
        (index) => style.bands[index] ?? Math.min(index + 1, detail.bands.length),
      );
    }
    style.rescale =
      mode === "formula" ? [null] : style.bands.map((band) => fullRange(detail, band));
    this.draw();
    if (mode === "formula" && !style.expression) this.drawStretch();
    else this.restyle();
  }

  draw() {
    const { style, detail } = this;
    const fields = [];
    if (style.mode === "one" && detail.bands.length > 1) fields.push(this.bandField("Band", 0));
    if (style.mode === "rgb")
      fields.push(...CHANNELS.map((label, index) => this.bandField(label, index)));
    if (style.mode === "formula") fields.push(this.formulaField());
    fill(this.colours, ...this.colourFields());
    fill(this.fields, ...fields, this.colours);
  }

  /** @param {string} label @param {number} index */
  bandField(label, index) {
    const { style, detail } = this;
    const options = detail.bands.map((/** @type {any} */ band) =>
      h(
        "option",
        { value: band.index, selected: style.bands[index] === band.index },
        titleOf(band),
      ),
    );
    const select = h("select", { class: "select" }, ...options);
    select.addEventListener("change", () => {
      style.bands[index] = Number(select.value);
      style.rescale[index] = fullRange(detail, style.bands[index]);
      this.chooseColormap();
      fill(this.colours, ...this.colourFields());
      this.restyle();
    });
    return field(label, select);
  }

  formulaField() {
    const { style, detail } = this;
    const example = detail.bands.length > 1 ? "(b2-b1)/(b2+b1)" : "b1*0.1";
    const input = h("input", {
      type: "text",
      class: "number",
      value: style.expression,
      placeholder: example,
      spellcheck: "false",
      autocomplete: "off",
    });
    input.addEventListener("change", () => {
      style.expression = input.value.trim();
      style.rescale = [null];
      this.restyle();
    });
    return field(
      "Formula",
      input,
      h("p", { class: "caption" }, `b1 is the first band, as in ${example}`),
    );
  }

  /** A band without colours of its own gets a colour map, where grey is one of those. */
  chooseColormap() {
    const band = this.detail.bands[this.style.bands[0] - 1];
    if (!band?.has_colortable) this.style.colormap ??= band?.colormap_name ?? null;
  }

  /** @returns {HTMLElement[]} */
  colourFields() {
    const { style } = this;
    if (style.mode === "rgb") return [];
    const band = this.detail.bands[style.bands[0] - 1];
    const isOwn = band?.has_colortable && style.mode === "one";
    const plain = isOwn ? "Its own colours" : !band?.colormap_name && "Grey";
    const select = h("select", { class: "select" }, plain && h("option", { value: "" }, plain));
    select.addEventListener("change", () => {
      style.colormap = select.value || null;
      this.restyle();
    });
    colourmaps().then(
      (found) =>
        select.append(
          ...found.map(({ name, title = name }) =>
            h("option", { value: name, selected: name === style.colormap }, title),
          ),
        ),
      () => select.setAttribute("title", "The colour maps could not be loaded."),
    );
    return [field("Colours", select)];
  }

  /** Show the stretch anew, and then the tiles with it: a new band has none before it is counted. */
  async restyle() {
    await this.drawStretch();
    this.onChange();
  }

  /** A histogram for each band that is stretched. */
  async drawStretch() {
    const { style, detail } = this;
    this.asking?.abort();
    this.isCounting = false;
    if (isPaletted(detail, style)) {
      fill(this.stretch, legend(detail.bands[style.bands[0] - 1].colortable));
      return;
    }
    if (style.mode === "formula" && !style.expression) {
      fill(this.stretch);
      return;
    }
    this.asking = new AbortController();
    const { signal } = this.asking;
    if (!this.stretch.childElementCount) fill(this.stretch, waiting("Counting values"));
    const wanted = style.mode === "rgb" ? [0, 1, 2] : [0];
    this.isCounting = wanted.some((index) => !style.rescale[index]);
    try {
      const found = await Promise.all(
        wanted.map((index) => this.counted(index, signal)),
      );
      const ramp = style.mode === "rgb" ? null : await this.rampOf(style.colormap);
      signal.throwIfAborted();
      const plots = found.map((one, index) => this.plot(one, index, ramp));
      const isOpen = this.stretch.querySelector("details")?.open ?? false;
      fill(this.stretch, style.mode === "rgb" ? folded(plots, isOpen) : plots[0]);
    } catch (error) {
      if (signal.aborted) return;
      fill(
        this.stretch,
        failure("No histogram", reasonOf(error), () => this.restyle()),
      );
    }
    this.isCounting = false;
  }

  /**
   * How often a band or a formula has which values. Other colours do not count them anew: the
   * histogram would be replaced while somebody types into it.
   * @param {number} index @param {AbortSignal} signal @returns {Promise<Counted>}
   */
  async counted(index, signal) {
    const parameters = { ...valueParameters(this.detail, this.style, index), bins: 64 };
    const asked = JSON.stringify(parameters);
    if (this.known[index]?.asked === asked) return this.known[index].found;
    const { statistics } = await getJson(`${this.name}/statistics`, parameters, { signal });
    const [name, found] = Object.entries(statistics)[0];
    const [counts, edges] = found?.histogram ?? [[], []];
    this.known[index] = { asked, found: { ...found, name, counts, edges } };
    return this.known[index].found;
  }

  /** Colours from low to high. @param {string | null} name null for grey */
  async rampOf(name) {
    const found = name ? await colourmaps() : [];
    return found.find((one) => one.name === name)?.colors ?? GREYS;
  }

  /** @param {Counted} found @param {number} index @param {string[] | null} ramp */
  plot(found, index, ramp) {
    const { style, detail } = this;
    if (!found.counts?.length) {
      // The server draws no tiles of most types without a stretch, not even empty ones.
      style.rescale[index] ??= [0, 1];
      return emptiness("No values", "No pixel has data.");
    }
    const { percentile_2 = found.min, percentile_98 = found.max } = found;
    const [low, high] = style.rescale[index] ?? [percentile_2, percentile_98];
    const half = low < high ? 0 : Math.max(1, Math.abs(low) / 16); // one value is middle grey
    const chosen = /** @type {[number, number]} */ ([low - half, high + half]);
    style.rescale[index] = chosen;
    const band = style.mode === "formula" ? null : detail.bands[style.bands[index] - 1];
    const { of, back } = physical(band);
    const what = ramp === null ? `${CHANNELS[index]}, ${found.name}` : "Values";
    return h(
      "div",
      {},
      h("p", { class: "caption", dir: "auto" }, band?.unit ? `${what} in ${band.unit}` : what),
      histogram({
        edges: found.edges,
        counts: found.counts,
        chosen,
        label: `value of ${found.name}`,
        colors: ramp ?? CHANNEL_COLORS[index],
        format: (number) => shown(of(number)),
        parse: back,
        onChange: (next) => {
          style.rescale[index] = next;
          this.onChange();
        },
      }),
      ramp && this.painted(ramp),
    );
  }

  /** @param {string[]} ramp */
  painted(ramp) {
    this.ramp.style.background = `linear-gradient(to right, ${ramp.join(", ")})`;
    return this.ramp;
  }
}

/**
 * Three histograms need more room than the map can spare, until they are wanted.
 * @param {Node[]} plots @param {boolean} open
 */
function folded(plots, open) {
  return h(
    "details",
    { open },
    h("summary", {}, "Stretch of each band"),
    h("div", { class: "stretch" }, ...plots),
  );
}

/** @param {{value: number, color: string}[] | null} table */
function legend(table) {
  if (!table) return null;
  // What stands for nothing is black or without any colour.
  const used = table.filter((entry) => !/^#0{6}|00$/.test(entry.color));
  const entries = used.slice(0, MOST_LEGEND).map((entry) => {
    const swatch = h("i", { class: "swatch" });
    swatch.style.background = entry.color;
    return h("li", {}, swatch, shown(entry.value));
  });
  const rest = used.length - entries.length;
  return h(
    "div",
    {},
    h("ul", { class: "colours", "aria-label": "Colours of values" }, ...entries),
    rest > 0 && h("p", { class: "caption" }, `and ${rest} more`),
  );
}

/** @param {any} band */
function titleOf(band) {
  return band.description ? `${band.name}: ${band.description}` : band.name;
}
