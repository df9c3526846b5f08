/**
 * What lies at a place: values of rasters while the pointer moves, headers of tiles on a click.
 */

import { facts, h, iconButton } from "../ui/dom.js";
import { mark, tileAt, zoomAt } from "../ui/mapview.js";
import { addressOf, headerFacts, tileArticle } from "../ui/tileinfo.js";
import { ApiError, getHeaders, getJson, isAbort } from "./api.js";
import { READS } from "./host.js";
import { reasonOf } from "../ui/query.js";
import { debounced, emptiness, failure, fill, waiting } from "../ui/page.js";
import { place as placeText, value as shown } from "../ui/format.js";
import { physical, valueParameters } from "../ui/rasterstyle.js";

/** @typedef {import("./map.js").Place} Place */
/** @typedef {import("./sources.js").Entry} Entry */

const CLOSE = "m5 5 10 10M15 5 5 15";
const FEATURES = 8;
const FEATURE_NAMES = ["name", "name:en", "title", "label", "kind", "class", "type", "id"];

/** Values under the pointer, and the panel about a place. */
export class Inspector {
  /**
   * @param {{readout: HTMLElement, panel: HTMLElement, sources: import("./sources.js").Sources,
   *   view: import("./map.js").MapView}} parts
   */
  constructor({ readout, panel, sources, view }) {
    this.readout = readout;
    this.panel = panel;
    this.sources = sources;
    this.view = view;
    /** @type {AbortController | null} */
    this.asking = null;
    this.inspected = 0;
    this.readSoon = debounced((/** @type {Place | null} */ place) => this.read(place), 60);
  }

  /** @param {Place | null} place */
  hover(place) {
    if (place === null) {
      this.asking?.abort();
      this.readout.hidden = true;
    }
    this.readSoon(place);
  }

  /** @param {Place | null} place */
  async read(place) {
    this.asking?.abort();
    if (place === null) return;
    this.asking = new AbortController();
    try {
      const readings = await this.values(place, this.asking.signal);
      const at = h("span", { class: "readout__place" }, placeText(place.lng, place.lat));
      fill(this.readout, ...readings, at);
      this.readout.hidden = false;
    } catch (error) {
      if (!isAbort(error)) this.readout.hidden = true;
    }
  }

  /** A line for every source that has something to say. @param {Place} place @param {AbortSignal} signal */
  async values(place, signal) {
    const shown = this.sources.shown().filter(({ state }) => state.info.tiles.length);
    const told = shown.map(async (entry) => {
      if (entry.style) return [nameOf(entry), await this.valueAt(entry, place, signal)];
      return entry.state.info.type === "vector" ? this.featureAt(entry, place) : null;
    });
    const found = (await Promise.all(told)).filter((one) => one !== null);
    return found.slice(0, 4).map(([name, text]) => {
      const label = h("span", { class: "readout__name", dir: "auto" }, name);
      return h("span", { class: "readout__value" }, label, " ", h("b", {}, text));
    });
  }

  /** @param {Entry} entry @param {Place} place */
  featureAt({ state }, place) {
    const [feature] = this.view.featuresAt(place, [state]);
    if (!feature) return null;
    const key = FEATURE_NAMES.find((name) => feature.properties[name] !== undefined);
    const text = String(key ? feature.properties[key] : "feature");
    return [feature.sourceLayer ?? state.info.name, text.slice(0, 60)];
  }

  /** @param {Entry} entry @param {Place} place @param {AbortSignal} signal */
  async valueAt({ source, state, style }, place, signal) {
    const path = `${encodeURIComponent(source.name)}/point/${place.lng.toFixed(7)},${place.lat.toFixed(7)}`;
    try {
      const detail = await this.sources.detail(source.name);
      // Who reads archives has the tiles of the scale that is shown at hand.
      const zoom = READS ? zoomAt(this.view.map, state) : null;
      const parameters = { ...(style && valueParameters(detail, style)), zoom };
      const { values } = await getJson(path, parameters, { signal });
      const isKnown = values.some((/** @type {unknown} */ one) => one !== null);
      const bands = (style?.mode === "formula" ? [] : (style?.bands ?? [])).map(
        (band) => detail.bands[band - 1],
      );
      const unit = bands[0]?.unit;
      const numbers = values.map((/** @type {any} */ one, /** @type {number} */ at) =>
        shown(physical(bands[at]).of(one)),
      );
      const text = isKnown ? numbers.join(", ") : "no data";
      return unit && isKnown ? `${text} ${unit}` : text;
    } catch (error) {
      if (isAbort(error)) throw error;
      const isOutside = error instanceof ApiError && [400, 404].includes(error.status);
      return isOutside ? "outside" : reasonOf(error);
    }
  }

  /** Everything about a place, until it is closed. @param {Place} place */
  async inspect(place) {
    this.inspected += 1;
    const own = this.inspected;
    const close = iconButton("Close", CLOSE, () => this.close());
    const title = h("h2", { id: "inspector-title", tabindex: -1 }, placeText(place.lng, place.lat));
    const body = h("div", { class: "inspector__body", "aria-live": "polite" }, waiting("Asking"));
    fill(this.panel, h("header", {}, title, close), body);
    this.panel.hidden = false;
    const found = this.sources
      .shown()
      .map((entry) => ({ entry, tile: tileAt(this.view.map, entry.state, place) }));
    const [first] = found.filter(({ tile }) => tile);
    mark(this.view.map, first?.tile);
    const sections = await Promise.all(found.map(({ entry, tile }) => this.about(entry, tile)));
    if (own !== this.inspected) return;
    const nothing = emptiness(
      "Nothing is shown here",
      "Switch a source on, and choose a place again.",
    );
    fill(body, ...(sections.length ? sections : [nothing]), this.features(place));
  }

  /** @returns {boolean} whether there was anything to close */
  close() {
    const wasOpen = !this.panel.hidden;
    const hadFocus = this.panel.contains(document.activeElement);
    this.inspected += 1;
    this.panel.hidden = true;
    if (wasOpen) mark(this.view.map, undefined);
    if (hadFocus) this.view.map.getCanvas().focus();
    return wasOpen;
  }

  /** @param {Entry} entry @param {import("../ui/tileinfo.js").TileAddress | undefined} tile */
  async about(entry, tile) {
    const { state } = entry;
    const about = (/** @type {(Node | string)[]} */ ...parts) =>
      tileArticle(nameOf(entry), tile, ...parts);
    if (!tile) return about(h("p", { class: "caption" }, "It has no tiles at so small a scale."));
    const [template] = state.info.tiles;
    if (!template) return about();
    try {
      const headers = await getHeaders(addressOf(template, tile));
      return about(headers ? headerFacts(headers) : h("p", {}, "There is no tile here."));
    } catch (error) {
      return about(failure("The tile cannot be read", reasonOf(error)));
    }
  }

  /** @param {Place} place */
  features(place) {
    const vectors = this.sources.shownStates().filter(({ info }) => info.type === "vector");
    const found = this.view.featuresAt(place, vectors).slice(0, FEATURES);
    if (!found.length) return null;
    const lists = found.map((feature) => {
      const rows = Object.entries(feature.properties).map(
        ([name, one]) => /** @type {[string, string]} */ ([name, String(one)]),
      );
      const title = feature.sourceLayer ?? "feature";
      return h(
        "details",
        { open: found.length === 1 },
        h("summary", { dir: "auto" }, title),
        facts(rows),
      );
    });
    return h("article", { class: "tile" }, h("h3", {}, "Features"), ...lists);
  }
}

/** @param {Entry} entry */
function nameOf({ source }) {
  return String(source.title ?? source.name);
}
