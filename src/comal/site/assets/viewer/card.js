/**
 * One source in the list: what it is, its switch, and its controls.
 */

import { facts, h, iconButton, plainText } from "../ui/dom.js";
import { swatchOf } from "./footprints.js";
import { count, counted, day } from "../ui/format.js";
import { codeBlock, failure, fill, slider, waiting } from "../ui/page.js";
import { layerLegend, recolorLegend } from "../ui/legend.js";
import { RasterControls } from "./rastercontrols.js";

/** @typedef {import("./sources.js").Entry} Entry */
/** @typedef {import("./sources.js").Sources} Sources */

const KINDS = { raster: "Raster", tiles: "Tiles", samples: "Samples" };
const FORMATS = {
  taco: "TACO",
  tortilla: "Tortilla",
  "taco-v1": "TACO 1",
  raquet: "RaQuet",
  tapalcatl: "Tapalcatl",
};
const FIT =
  "M3 7V4.5A1.5 1.5 0 0 1 4.5 3H7m6 0h2.500A1.5 1.5 0 0 1 17 4.500V7" +
  "m0 6v2.500a1.5 1.5 0 0 1-1.5 1.500H13m-6 0H4.500A1.5 1.5 0 0 1 3 15.500V13";

/** The card of a source. */
export class SourceCard {
  /** @param {Entry} entry @param {Sources} sources what acts on choices */
  constructor(entry, sources) {
    this.entry = entry;
    this.sources = sources;
    this.title = String(entry.source.title ?? entry.source.name);
    this.failed = 0;
    this.box = h("input", { type: "checkbox" });
    this.hint = h("p", { class: "notice", role: "status", hidden: true });
    this.fault = h("div", { class: "notice notice--danger", role: "status", hidden: true });
    this.body = h("div", { class: "source__body", hidden: true });
    this.element = entry.source.kind ? this.usable() : this.broken();
  }

  usable() {
    const { source } = this.entry;
    const description = plainText(source.description ?? "");
    return h(
      "li",
      { class: "source", "data-source": source.name },
      this.head(),
      h("p", { class: "source__facts" }, summary(source)),
      description && h("p", { class: "source__text", dir: "auto" }, description),
      source.kind === "samples" && this.explore(),
      this.body,
      this.hint,
      this.fault,
    );
  }

  broken() {
    const { source } = this.entry;
    const problem = source.problem ?? {};
    const reason = [problem.title, problem.detail].filter(Boolean).join(": ");
    const again = () => this.sources.again(this.entry);
    fill(this.body, failure("This source cannot be opened", reason, again));
    this.body.hidden = false;
    return h(
      "li",
      { class: "source", "data-source": source.name },
      h(
        "div",
        { class: "source__head" },
        h("h2", { class: "source__title", dir: "auto" }, this.title),
      ),
      this.body,
    );
  }

  head() {
    const { source } = this.entry;
    const { box } = this;
    box.addEventListener("change", () => this.sources.toggle(this.entry, box.checked));
    const label = h(
      "span",
      { class: "source__title", dir: "auto", title: this.title },
      ...breakable(this.title),
    );
    const format = FORMATS[/** @type {"taco"} */ (source.format)] ?? source.format;
    this.swatch = source.kind === "samples" ? h("i", { class: "swatch" }) : null;
    this.recolor();
    const fit = () => this.sources.fit([this.entry], true);
    return h(
      "div",
      { class: "source__head" },
      h("h2", {}, h("label", {}, this.box, this.swatch, label)),
      h("span", { class: "chip" }, format),
      source.bounds && iconButton(`Zoom to ${this.title}`, FIT, fit),
    );
  }

  explore() {
    const href = `#data=${encodeURIComponent(this.entry.source.name)}`;
    return h(
      "p",
      { class: "source__actions" },
      h("a", { class: "button button--primary", href }, "Explore the samples"),
    );
  }

  /** @param {boolean} on */
  switched(on) {
    this.box.checked = on;
    this.body.hidden = !on;
  }

  wait() {
    fill(this.body, waiting("Opening"));
  }

  /** The controls, once it is known what there is to choose. @param {any} detail */
  open(detail) {
    const { source, state, style } = this.entry;
    const redraw = () => this.sources.draw(this.entry);
    if (source.kind === "samples") {
      fill(this.body);
      this.body.hidden = true;
      return;
    }
    const percent = (/** @type {number} */ share) => `${Math.round(share * 100)} %`;
    const change = (/** @type {number} */ share) => {
      state.opacity = share;
      redraw();
    };
    fill(
      this.body,
      style && new RasterControls(encodeURIComponent(source.name), detail, style, redraw).element,
      this.layers(),
      slider("Opacity", { min: 0, max: 1, step: 0.01, value: state.opacity }, percent, change),
      this.details(detail),
    );
  }

  /** Layers of vector tiles, each to be switched off. */
  layers() {
    const { state } = this.entry;
    if (state.info.type !== "vector") return null;
    const layers = state.info.vector_layers ?? [];
    if (!layers.length) {
      return h("p", { class: "notice" }, "Neither the archive nor its first tile says which layers there are.");
    }
    this.legend = layerLegend(state, () => this.sources.draw(this.entry));
    return this.legend;
  }

  /** Swatches in the colours of the theme. */
  recolor() {
    if (this.swatch) this.swatch.style.background = swatchOf(this.entry.color);
    if (this.legend) recolorLegend(this.legend, this.entry.state);
  }

  /** @param {any} detail */
  details(detail) {
    const { source } = this.entry;
    const bands = (detail.bands ?? []).map(
      (/** @type {any} */ band) => `${band.name} (${band.dtype})`,
    );
    const pixels = detail.width
      ? `${count(detail.width)} × ${count(detail.height)} pixels`
      : undefined;
    const known = facts([
      ["Name", source.name],
      ["Version", detail.version ?? undefined],
      ["Zooms", `${source.minzoom} to ${source.maxzoom}`],
      ["Size", pixels],
      ["Bands", bands.join(", ")],
      ["Formats", Object.keys(detail.formats ?? {}).join(", ")],
      ["Archives at", detail.materialized_zooms && `zoom ${detail.materialized_zooms.join(", ")}`],
      ["Metatile", detail.metatile && `${detail.metatile} × ${detail.metatile} tiles`],
      [
        "Box",
        source.bounds?.map((/** @type {number} */ edge) => Number(edge.toFixed(4))).join(", "),
      ],
      ["Credit", plainText(source.attribution ?? "")],
    ]);
    const python = detail.python && h("code", {}, detail.python);
    return h(
      "details",
      {},
      h("summary", {}, python ? "Details and Python" : "Details"),
      known,
      python && codeBlock(python),
    );
  }

  /** Say something about what is seen, or nothing. @param {string} text */
  tell(text) {
    this.hint.textContent = text;
    this.hint.hidden = !text;
  }

  /** The source cannot be shown. @param {string} reason @param {() => void} again */
  refuse(reason, again) {
    fill(this.body, failure("This source cannot be shown", reason, again));
    this.body.hidden = false;
  }

  /** A tile cannot be shown. @param {string} reason */
  fail(reason) {
    this.failed += 1;
    const what =
      this.failed === 1 ? "A tile cannot be read" : `${this.failed} tiles cannot be read`;
    fill(this.fault, h("strong", {}, what), h("p", { class: "clipped", dir: "auto" }, reason));
    this.fault.hidden = false;
  }

  /** Forget what failed: other tiles are asked for. */
  clear() {
    this.failed = 0;
    this.fault.hidden = true;
    this.tell("");
  }
}

/** @param {any} source */
function summary(source) {
  const parts = [];
  if (source.kind === "samples") {
    parts.push(counted(source.count, "sample"));
    if (source.time) parts.push(`${day(source.time[0])} to ${day(source.time[1])}`);
  } else {
    parts.push(KINDS[/** @type {"raster"} */ (source.kind)]);
    if (source.minzoom !== undefined) parts.push(`zoom ${source.minzoom} to ${source.maxzoom}`);
  }
  return parts.join(" · ");
}

/** A name that may break after its separators, rather than anywhere. @param {string} name */
function breakable(name) {
  const parts = name.split(/(?<=[_.\-/])/);
  return parts.flatMap((part, index) => (index ? [h("wbr"), part] : [part]));
}
