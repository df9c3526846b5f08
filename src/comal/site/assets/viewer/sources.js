/**
 * The sources of the server: what is known of each, what is chosen, and what of it the map shows.
 */

import { h, plainText } from "../ui/dom.js";
import { firstZoom } from "../ui/mapview.js";
import { address, getJson } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { SourceCard } from "./card.js";
import { FootprintLoader } from "./footprintloader.js";
import { counted } from "../ui/format.js";
import { announce, debounced, emptiness, failure, fill, waiting } from "../ui/page.js";
import { initialStyle, tileParameters } from "../ui/rasterstyle.js";

/** @typedef {import("../ui/sources.js").SourceState} SourceState */

const WORLD = [-180, -85.0511287798066, 180, 85.0511287798066];

/**
 * One source of the list.
 * @typedef {object} Entry
 * @property {any} source as the list of the server has it
 * @property {SourceCard} card
 * @property {SourceState} state as the map draws it; without tiles before it was asked for
 * @property {import("../ui/rasterstyle.js").RasterStyle | null} style
 * @property {number} color of footprints, which take turns
 * @property {FootprintLoader} [footprints] of samples that were shown
 */

/** Sources of the server. */
export class Sources {
  /**
   * @param {HTMLElement} panel
   * @param {import("./map.js").MapView} view
   */
  constructor(panel, view) {
    this.panel = panel;
    this.view = view;
    /** @type {Entry[]} the first lies above the others */
    this.entries = [];
    /** @type {Map<string, Promise<any>>} */
    this.details = new Map();
    /** @type {string | null} the source whose samples have a page of their own now */
    this.elsewhere = null;
    this.redrawSoon = debounced((/** @type {Entry} */ entry) => this.draw(entry), 150);
  }

  /**
   * Ask the server what there is, and show it.
   * @param {boolean} [fits] whether the map moves to the first of them
   */
  async load(fits = true) {
    fill(this.panel, waiting("Looking for sources"));
    this.panel.setAttribute("aria-busy", "true");
    try {
      const { sources } = await getJson("sources.json");
      this.entries = sources.map((/** @type {any} */ source, /** @type {number} */ index) =>
        this.entry(source, index),
      );
      this.list();
    } catch (error) {
      fill(
        this.panel,
        failure("The sources could not be listed", reasonOf(error), () => this.load(fits)),
      );
    } finally {
      this.panel.removeAttribute("aria-busy");
    }
    await this.begin(fits);
  }

  list() {
    if (!this.entries.length) {
      const hint = "Start the server with the path of an archive: comal serve elevation.parquet";
      fill(this.panel, emptiness("No sources", hint));
      return;
    }
    const title = h("h1", { class: "panel__title" }, counted(this.entries.length, "source"));
    fill(
      this.panel,
      title,
      h("ul", { class: "sources" }, ...this.entries.map(({ card }) => card.element)),
    );
  }

  /**
   * Show the first source that can be shown, so that nobody begins with an empty map.
   * @param {boolean} fits
   */
  async begin(fits) {
    const ready = this.entries.filter(({ source }) => source.kind);
    const first = ready.find(({ source }) => source.kind !== "samples") ?? ready[0];
    if (!first) return;
    await this.toggle(first, true);
    const placed = first.source.bounds ? first : ready.find(({ source }) => source.bounds);
    if (placed && fits && !this.view.isPlaced) this.fit(placed, false);
  }

  /** @param {any} source @param {number} index @returns {Entry} */
  entry(source, index) {
    const clipped = source.bounds ?? WORLD;
    /** @type {any} */
    const state = {
      id: `s${index}`,
      info: {
        name: source.title ?? source.name,
        tiles: [],
        minzoom: source.minzoom ?? 0,
        maxzoom: source.maxzoom ?? 22,
        bounds: [
          clipped[0],
          Math.max(clipped[1], WORLD[1]),
          clipped[2],
          Math.min(clipped[3], WORLD[3]),
        ],
        comal: { kind: source.format, type: "raster", tileSize: 256 },
      },
      visible: false,
      opacity: 1,
      hidden: new Set(),
      look: new URLSearchParams(),
    };
    const entry = /** @type {any} */ ({ source, state, style: null, color: index });
    entry.card = new SourceCard(entry, this);
    return entry;
  }

  /** What the server says of one source, asked once. @param {string} name */
  detail(name) {
    let asked = this.details.get(name);
    if (!asked) {
      asked = getJson(encodeURIComponent(name));
      this.details.set(name, asked);
      asked.catch(() => this.details.delete(name));
    }
    return asked;
  }

  /** Sources of tiles that the map shows, the uppermost first. */
  shown() {
    return this.entries.filter(({ source, state }) => state.visible && source.kind !== "samples");
  }

  /** @returns {SourceState[]} */
  shownStates() {
    return this.shown()
      .map(({ state }) => state)
      .filter(({ info }) => info.tiles.length);
  }

  /** @param {string} id of a state, as the map knows it */
  byId(id) {
    return this.entries.find(({ state }) => state.id === id);
  }

  /** Show or hide a source. @param {Entry} entry @param {boolean} on */
  async toggle(entry, on) {
    const { source, state, card } = entry;
    state.visible = on;
    card.switched(on);
    card.clear();
    if (!on) {
      if (source.kind === "samples") entry.footprints?.close();
      else this.view.hide(state);
      announce(`${source.title ?? source.name} is hidden`);
      this.credit();
      return;
    }
    card.wait();
    try {
      const detail = await this.detail(source.name);
      await this.view.ready;
      if (!state.visible) return;
      if (source.kind === "samples") await this.showFootprints(entry);
      else this.prepare(entry, detail);
      card.open(detail);
      if (source.kind !== "samples") await this.draw(entry);
      announce(`${source.title ?? source.name} is shown`);
    } catch (error) {
      card.refuse(reasonOf(error), () => this.toggle(entry, true));
    }
    this.credit();
  }

  /** What the map needs to know before it draws. @param {Entry} entry @param {any} detail */
  prepare(entry, detail) {
    const { source, state } = entry;
    state.info.comal.type = detail.type ?? "raster";
    state.info.comal.tileSize = detail.type === "vector" ? 512 : (detail.tilesize ?? 256);
    state.info.vector_layers = detail.vector_layers ?? undefined;
    if (source.kind === "raster") entry.style ??= initialStyle(detail);
  }

  /** Put a source on the map as it is chosen. @param {Entry} entry */
  async draw(entry) {
    const detail = await this.detail(entry.source.name);
    await this.view.ready;
    if (!entry.state.visible) return;
    const tiles = this.template(entry, detail);
    if (tiles !== entry.state.info.tiles[0]) entry.card.clear();
    entry.state.info.tiles = [tiles];
    this.view.show(entry.state, this.above(entry));
    this.tellZooms();
  }

  /** The nearest source above one that is on the map. @param {Entry} entry */
  above(entry) {
    const before = this.entries.slice(0, this.entries.indexOf(entry));
    return before.findLast(({ state }) => this.view.map.getSource(state.id))?.state;
  }

  /** The address of tiles as the map asks for it. @param {Entry} entry @param {any} detail */
  template({ style }, detail) {
    const { extensions, scales = [1], template } = detail.tiles;
    const extension = detail.kind === "raster" ? "png" : extensions[0];
    const isSharp = devicePixelRatio > 1.5 && scales.includes(2);
    const scale = isSharp ? 2 : scales.includes(1) ? 1 : scales[0];
    const path = template
      .replace("{scale}", scale === 1 ? "" : `@${scale}x`)
      .replace(".{ext}", extension ? `.${extension}` : "");
    const url = address(path, style ? tileParameters(detail, style) : {});
    return url.replaceAll("%7B", "{").replaceAll("%7D", "}");
  }

  /** @param {Entry} entry */
  async showFootprints(entry) {
    const { source, state, card, color } = entry;
    const detail = await this.detail(source.name);
    const name = encodeURIComponent(source.name);
    entry.footprints ??= new FootprintLoader(
      this.view,
      { key: state.id, name, color, isPlaced: detail.placed !== false },
      (text) => card.tell(text),
    );
    if (source.name === this.elsewhere) return;
    await entry.footprints.load();
    if (!state.visible || source.name === this.elsewhere) entry.footprints.close();
  }

  /**
   * Leave the samples of a source to the page about them, which draws what fits its filters; those
   * that were left come back.
   * @param {string | null} name
   */
  leave(name) {
    const before = this.elsewhere;
    this.elsewhere = name;
    const on = this.entries.filter(
      ({ source, state }) => source.kind === "samples" && state.visible,
    );
    for (const entry of on) {
      if (entry.source.name === name) entry.footprints?.close();
      else if (entry.source.name === before) this.toggle(entry, true);
    }
  }

  /** The map was moved. */
  moved() {
    for (const { footprints, state } of this.entries) if (state.visible) footprints?.moved();
    this.tellZooms();
  }

  /** Move the map to a source. @param {Entry} entry @param {boolean} animate */
  fit({ source, state }, animate) {
    const least = source.kind === "samples" ? -2 : firstZoom(state) + 0.01;
    this.view.fit(source.bounds, { animate, least });
  }

  /** Say which sources have no tiles at so small a scale. */
  tellZooms() {
    for (const { card, state } of this.shown()) {
      const isFar = this.view.zoom() < firstZoom(state);
      card.tell(isFar ? "Zoom in to see it: there are no tiles for so small a scale." : "");
    }
  }

  /** A tile that failed. @param {string} id @param {string} reason */
  report(id, reason) {
    this.byId(id)?.card.fail(reason);
  }

  /** Colours anew, after the page went light or dark. */
  recolor() {
    for (const { card } of this.entries) card.recolor();
  }

  /** What the sources want to be said about them, as text. */
  credit() {
    const texts = this.shown()
      .map(({ source }) => plainText(source.attribution))
      .filter(Boolean);
    const credit = document.getElementById("credit");
    if (credit) credit.textContent = [...new Set(texts)].join(" · ").slice(0, 300);
  }
}
