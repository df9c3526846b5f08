/**
 * One source in the list: its card, its controls, and what of it the map shows.
 */

import { facts, h, icon, plainText } from "./dom.js";
import { layerLegend, recolorLegend } from "./legend.js";
import { debounced, slider } from "./page.js";
import { queryOf } from "./query.js";
import { RasterControls } from "./rastercontrols.js";
import { initialStyle, tileParameters } from "./rasterstyle.js";
import { detailOf, readRaster } from "./readraster.js";

/**
 * TileJSON as the engine, or a server, answers it.
 * @typedef {object} TileInfo
 * @property {string} name
 * @property {string} description
 * @property {string} attribution
 * @property {string[]} tiles
 * @property {number} minzoom
 * @property {number} maxzoom
 * @property {[number, number, number, number]} bounds
 * @property {{id: string}[]} [vector_layers]
 * @property {any} comal
 */

/**
 * @typedef {object} SourceState
 * @property {string} id
 * @property {TileInfo} info
 * @property {boolean} visible
 * @property {number} opacity
 * @property {Set<number>} hidden vector layers that are switched off
 * @property {URLSearchParams} look how a raster is drawn
 */

/**
 * What a card tells the page.
 * @typedef {object} Listener
 * @property {(state: SourceState) => void} changed visibility, opacity, layers
 * @property {(state: SourceState) => void} redrawn another look: other tiles
 * @property {(state: SourceState) => void} zoom
 * @property {(state: SourceState, parameters: Record<string, unknown>) => Promise<any>} statistics
 */

const KINDS = { vector: "Vector", raster: "Raster", raquet: "RaQuet" };
const FIT =
  "M3 7V4.5A1.5 1.5 0 0 1 4.5 3H7m6 0h2.500A1.5 1.5 0 0 1 17 4.500V7m0 6v2.500a1.5 1.5 0 0 1-1.5 1.500H13m-6 0H4.500A1.5 1.5 0 0 1 3 15.500V13";

/** The card of a source. */
export class SourceCard {
  /** @param {SourceState} state @param {Listener} listener */
  constructor(state, listener) {
    this.state = state;
    this.listener = listener;
    this.hint = h("p", { class: "notice", hidden: true });
    this.fault = h("p", { class: "notice notice--danger", role: "status", hidden: true });
    this.failed = 0;
    this.element = h("li", { class: "source" }, this.head(), this.body());
  }

  head() {
    const { state, listener } = this;
    const box = h("input", {
      type: "checkbox",
      checked: true,
      change: () => {
        state.visible = box.checked;
        listener.changed(state);
      },
    });
    const kind =
      state.info.comal.kind === "raquet"
        ? KINDS.raquet
        : KINDS[/** @type {"vector"} */ (state.info.comal.type)];
    const zoom = h(
      "button",
      {
        class: "button button--icon button--plain",
        type: "button",
        "aria-label": `Zoom to ${state.info.name}`,
        title: "Zoom to it",
        click: () => listener.zoom(state),
      },
      icon(FIT),
    );
    return h(
      "div",
      { class: "source__head" },
      h("label", {}, box, h("h2", { title: state.info.name }, state.info.name)),
      h("span", { class: "chip" }, kind),
      zoom,
    );
  }

  body() {
    const { info } = this.state;
    const description = plainText(info.description ?? "");
    return h(
      "div",
      { class: "source__body" },
      description && h("p", { class: "source__text" }, clipped(description)),
      this.opacity(),
      info.comal.type === "vector" && this.legend(),
      info.comal.kind === "raquet" && this.raster(),
      this.hint,
      this.fault,
      this.details(),
    );
  }

  opacity() {
    const range = { min: 0, max: 1, step: 0.01, value: this.state.opacity };
    return slider("Opacity", range, percent, (share) => {
      this.state.opacity = share;
      this.listener.changed(this.state);
    });
  }

  /** Bands, colours and stretch of a raster; what is chosen becomes the query of its tiles. */
  raster() {
    const { state, listener } = this;
    const detail = detailOf(state.info);
    const style = initialStyle(detail);
    const apply = () => (state.look = queryOf(tileParameters(detail, style)));
    const redraw = debounced(() => {
      apply();
      listener.redrawn(state);
    }, 150);
    apply();
    const data = readRaster((parameters) => listener.statistics(state, parameters), detail);
    return new RasterControls(data, detail, style, redraw).element;
  }

  legend() {
    if (!this.state.info.vector_layers?.length)
      return h(
        "p",
        { class: "notice" },
        "The metadata names no layers, and the first tile holds none.",
      );
    this.list = layerLegend(this.state, () => this.listener.changed(this.state));
    return this.list;
  }

  /** Swatches in the colours of the theme. */
  recolor() {
    if (this.list) recolorLegend(this.list, this.state);
  }

  details() {
    const { info } = this.state;
    const { comal } = info;
    return h(
      "details",
      {},
      h("summary", {}, "Details"),
      facts([
        ["Attribution", plainText(info.attribution ?? "")],
        [
          "Zooms",
          info.minzoom === info.maxzoom ? info.minzoom : `${info.minzoom} to ${info.maxzoom}`,
        ],
        ["West, south", `${degrees(info.bounds[0])}, ${degrees(info.bounds[1])}`],
        ["East, north", `${degrees(info.bounds[2])}, ${degrees(info.bounds[3])}`],
        ["Formats", comal.formats && Object.keys(comal.formats).join(", ")],
        ["Archives at", comal.materializedZooms && `zoom ${comal.materializedZooms.join(", ")}`],
        ["Metatile", comal.metatile && `${comal.metatile} × ${comal.metatile} tiles`],
        ["Tile", comal.block && `${comal.block.join(" × ")} pixels`],
        [
          "Bands",
          comal.bands?.map((/** @type {any} */ band) => `${band.name} (${band.type})`).join(", "),
        ],
      ]),
    );
  }

  /** Say that the map is not near enough, or nothing. @param {string} text */
  tell(text) {
    this.hint.textContent = text;
    this.hint.hidden = !text;
  }

  /** Say that a tile cannot be shown. @param {string} reason */
  fail(reason) {
    this.failed += 1;
    const count =
      this.failed === 1 ? "A tile cannot be read" : `${this.failed} tiles cannot be read`;
    this.fault.replaceChildren(h("strong", {}, count), clipped(reason));
    this.fault.hidden = false;
  }
}

/** @param {number} share */
const percent = (share) => `${Math.round(share * 100)} %`;

/** @param {number} value */
const degrees = (value) => `${Number(value.toFixed(4))}°`;

/** @param {string} text */
function clipped(text) {
  return text.length > 240 ? `${text.slice(0, 239)}…` : text;
}
