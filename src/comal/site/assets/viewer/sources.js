/**
 * The sources: what is known of each, what is chosen, and what of it the map shows.
 */

import { h, plainText } from "../ui/dom.js";
import { firstZoom } from "../ui/mapview.js";
import { address, getJson, tileUrl } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { SourceCard } from "./card.js";
import { FootprintLoader } from "./footprintloader.js";
import { READS } from "./host.js";
import { counted } from "../ui/format.js";
import { announce, emptiness, failure, fill, waiting } from "../ui/page.js";
import { initialStyle, tileParameters } from "../ui/rasterstyle.js";

/** @typedef {import("../ui/mapview.js").SourceState} SourceState */

const FILL_SERVER = "Start the server with the path of an archive: comal serve elevation.parquet";
const FILL_SITE = "Name some in site.json beside this page, or write the site again with sources.";
const WORLD = [-180, -85.0511287798066, 180, 85.0511287798066];

/**
 * One source of the list.
 * @typedef {object} Entry
 * @property {any} source as the list has it
 * @property {SourceCard} card
 * @property {SourceState} state as the map draws it; without tiles before it was asked for
 * @property {import("../ui/rasterstyle.js").RasterStyle | null} style
 * @property {number} color of footprints, which take turns
 * @property {FootprintLoader} [footprints] of samples that were shown
 */

/** Sources that the page has. */
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
    this.title = "comal";
    /** @type {Map<string, Promise<any>>} */
    this.details = new Map();
    /** @type {string | null} the source whose samples have a page of their own now */
    this.elsewhere = null;
  }

  /**
   * Ask what there is, and show it.
   * @param {boolean} [fits] whether the map moves to what is shown
   */
  async load(fits = true) {
    fill(this.panel, waiting("Looking for sources"));
    this.panel.setAttribute("aria-busy", "true");
    try {
      const { sources, title } = await getJson("sources.json");
      this.title = title || this.title;
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
      fill(this.panel, emptiness("No sources", READS ? FILL_SITE : FILL_SERVER));
      return;
    }
    const title = h("h1", { class: "panel__title" }, counted(this.entries.length, "source"));
    const cards = this.entries.map(({ card }) => card.element);
    fill(this.panel, title, h("ul", { class: "sources", "aria-label": "Sources" }, ...cards));
  }

  /**
   * Show all sources of a site, which were chosen for one map, or the first of a server that can be
   * shown, so that nobody begins with an empty map.
   * @param {boolean} fits
   */
  async begin(fits) {
    const ready = this.entries.filter(({ source }) => source.kind);
    const first = ready.find(({ source }) => source.kind !== "samples") ?? ready[0];
    const begun = READS ? ready : first ? [first] : [];
    await Promise.all(begun.map((entry) => this.toggle(entry, true)));
    const placed = [...begun, ...ready].filter(({ source }) => source.bounds);
    if (placed.length && fits && !this.view.isPlaced)
      this.fit(READS ? placed : placed.slice(0, 1), false);
  }

  /** Ask anew for a source that could not be opened. @param {Entry} entry */
  async again(entry) {
    const at = this.entries.indexOf(entry);
    try {
      const { sources } = await getJson("sources.json");
      const found = sources.find((/** @type {any} */ one) => one.name === entry.source.name);
      this.entries[at] = this.entry(found ?? entry.source, at);
    } catch (error) {
      entry.card.refuse(reasonOf(error), () => this.again(entry));
      return;
    }
    const fresh = this.entries[at];
    entry.card.element.replaceWith(fresh.card.element);
    if (fresh.source.kind) await this.toggle(fresh, true);
  }

  /** @param {any} source @param {number} index @returns {Entry} */
  entry(source, index) {
    const clipped = source.bounds ?? WORLD;
    /** @type {SourceState} */
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
        type: "raster",
        tileSize: 256,
        isSharp: source.kind === "raster",
      },
      visible: false,
      opacity: 1,
      hidden: new Set(),
    };
    const entry = /** @type {any} */ ({ source, state, style: null, color: index });
    entry.card = new SourceCard(entry, this);
    return entry;
  }

  /** What is known of one source, asked once. @param {string} name */
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
      if (state.visible) card.refuse(reasonOf(error), () => this.toggle(entry, true));
    }
    this.credit();
  }

  /** What the map needs to know before it draws. @param {Entry} entry @param {any} detail */
  prepare(entry, detail) {
    const { source, state } = entry;
    state.info.type = detail.type ?? "raster";
    state.info.tileSize = detail.type === "vector" ? 512 : (detail.tilesize ?? 256);
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
    const asked = await tileUrl(tiles);
    this.view.show(entry.state, this.above(entry), asked);
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

  /** Move the map to sources. @param {Entry[]} entries @param {boolean} animate */
  fit(entries, animate) {
    const boxes = entries.map(({ source: { bounds: [west, south, east, north] } }) =>
      west > east ? [west, south, east + 360, north] : [west, south, east, north],
    );
    const first = (/** @type {number} */ at) => Math.min(...boxes.map((box) => box[at]));
    const last = (/** @type {number} */ at) => Math.max(...boxes.map((box) => box[at]));
    if (boxes.length > 1) {
      this.view.fit([first(0), first(1), last(2), last(3)], { animate });
      return;
    }
    const [{ source, state }] = entries;
    const least = source.kind === "samples" ? -2 : firstZoom(state) + 0.01;
    this.view.fit(source.bounds, { animate, least });
  }

  /** Say which sources have no tiles at so small a scale. */
  tellZooms() {
    for (const { card, state } of this.shown()) {
      const isFar = this.view.zoom() < firstZoom(state);
      card.tell(isFar ? "Zoom in to see it: there are no tiles at so small a scale." : "");
    }
  }

  /** A tile that failed. @param {string} id @param {string} reason */
  report(id, reason) {
    const entry = this.byId(id);
    if (entry?.state.visible) entry.card.fail(reason);
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
