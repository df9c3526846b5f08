/**
 * The map of the viewer: that of ../ui/mapview.js, with footprints and what people do on it.
 */

import { addSource, applyState, createMap, layerIds, repaint } from "../ui/mapview.js";
import { byId, h } from "../ui/dom.js";
import { wrapped } from "../ui/graticule.js";
import { problemOf } from "./api.js";
import { Footprints } from "./footprints.js";
import { fill } from "../ui/page.js";

/** @typedef {import("../ui/mapview.js").SourceState} SourceState */
/** @typedef {{lng: number, lat: number}} Place */

/**
 * What the map tells the page.
 * @typedef {object} Listeners
 * @property {() => void} onMove
 * @property {(place: Place | null) => void} onHover
 * @property {(place: Place) => void} onClick
 * @property {(key: string, path: string) => void} onSample
 * @property {(id: string, reason: string) => void} onFailure
 */

/** One map with what this page puts on it. */
export class MapView {
  /**
   * @param {HTMLElement} container
   * @param {Listeners} listeners
   */
  constructor(container, listeners) {
    this.listeners = listeners;
    /** Whether the address says where to look; the map writes that into it from now on. */
    this.isPlaced = location.hash.includes("map=");
    this.map = createMap(container);
    this.footprints = new Footprints(this.map);
    this.ready = new Promise((resolve) => this.map.once("load", () => resolve(true)));
    this.watchPointer();
    this.watchKeys();
    this.map.on("moveend", () => listeners.onMove());
    this.map.on("error", (event) => this.report(/** @type {any} */ (event)));
  }

  watchPointer() {
    const { map, listeners } = this;
    map.on("mousemove", (event) => {
      listeners.onHover(event.lngLat.wrap());
      map.getCanvas().style.cursor = this.footprints.at(event.point) ? "pointer" : "";
    });
    map.on("mouseout", () => listeners.onHover(null));
    map.on("click", (event) => {
      const sample = this.footprints.at(event.point);
      if (sample) listeners.onSample(sample.key, sample.path);
      else listeners.onClick(event.lngLat.wrap());
    });
  }

  /** Without a pointer the centre of the map is what is meant; a cross shows it. */
  watchKeys() {
    const { map, listeners } = this;
    const canvas = map.getCanvas();
    canvas.setAttribute(
      "aria-label",
      "Map. Arrow keys move it, plus and minus zoom, Enter inspects its centre.",
    );
    canvas.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      const centre = map.getCenter().wrap();
      const sample = this.footprints.at(map.project(centre));
      if (sample) listeners.onSample(sample.key, sample.path);
      else listeners.onClick(centre);
    });
    const tell = () => {
      if (canvas.matches(":focus-visible")) listeners.onHover(map.getCenter().wrap());
    };
    map.on("moveend", tell);
    canvas.addEventListener("focus", tell);
    canvas.addEventListener("blur", () => listeners.onHover(null));
  }

  /** @param {{sourceId?: string, error?: any}} event */
  async report({ sourceId, error }) {
    // A tile that is not there is no failure: sets of tiles are sparse.
    if (sourceId === undefined || error?.status === 404) return;
    const text = error?.body instanceof Blob ? await error.body.text().catch(() => "") : "";
    const told = error?.status ? problemOf(error.status, text) : error;
    this.listeners.onFailure(sourceId, told?.message || "unknown reason");
  }

  /** Say something about what is seen, or nothing. @param {string} text */
  note(text) {
    const place = byId("map-note");
    fill(place, text && h("p", { class: "notice" }, text));
    place.hidden = !text;
  }

  /** Colours anew, after the page went light or dark. @param {SourceState[]} states */
  repaint(states) {
    if (!this.map.getLayer("ground")) return;
    repaint(this.map);
    this.footprints.repaint();
    for (const state of states) applyState(this.map, state);
  }

  /** West, south, east, north of what is seen; west > east over the antimeridian. */
  bounds() {
    const box = this.map.getBounds();
    const [west, east] = [box.getWest(), box.getEast()];
    const south = Math.max(box.getSouth(), -90);
    const north = Math.min(box.getNorth(), 90);
    if (east - west >= 360) return [-180, south, 180, north];
    return [wrapped(west), south, wrapped(east), north];
  }

  /** The same as the server takes it. */
  box() {
    return this.bounds()
      .map((edge) => edge.toFixed(6))
      .join(",");
  }

  zoom() {
    return this.map.getZoom();
  }

  /**
   * Show a box, if it is one; west > east crosses the antimeridian.
   * @param {number[] | null | undefined} bounds
   * @param {{animate?: boolean, least?: number}} [options] `least` is the smallest zoom with tiles
   */
  fit(bounds, { animate = true, least = -2 } = {}) {
    if (!bounds) return;
    const [west, south, east, north] = bounds;
    const box = /** @type {[number, number, number, number]} */ ([
      west,
      Math.max(south, -80),
      Math.max(west > east ? east + 360 : east, west + 1e-6),
      Math.min(Math.max(north, south + 1e-6), 84),
    ]);
    const still = !animate || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const camera = this.map.cameraForBounds(box, { padding: 48, maxZoom: 16 });
    if (!camera) return;
    const zoom = Math.max(camera.zoom ?? 0, least);
    if (still) this.map.jumpTo({ center: camera.center, zoom });
    else this.map.flyTo({ center: camera.center, zoom, maxDuration: 1200 });
  }

  /**
   * Put a source on the map as its state says, below the one that stands above it in the list.
   * @param {SourceState} state
   * @param {SourceState | undefined} above
   * @param {string} tiles template of the addresses that the map asks for
   */
  show(state, above, tiles) {
    const source = /** @type {any} */ (this.map.getSource(state.id));
    if (!source) addSource(this.map, state, tiles, above);
    else if (source.tiles?.[0] !== tiles) source.setTiles([tiles]);
    applyState(this.map, state);
  }

  /** Take a source off the map. @param {SourceState} state */
  hide(state) {
    for (const id of layerIds(this.map, state)) this.map.removeLayer(id);
    if (this.map.getSource(state.id)) this.map.removeSource(state.id);
  }

  /** What vector tiles hold at a place. @param {Place} place @param {SourceState[]} states */
  featuresAt(place, states) {
    const layers = states.flatMap((state) => layerIds(this.map, state));
    if (!layers.length) return [];
    // Of the copies of the world the one that is seen.
    const turns = Math.round((this.map.getCenter().lng - place.lng) / 360);
    const point = this.map.project([place.lng + 360 * turns, place.lat]);
    return this.map.queryRenderedFeatures(point, { layers });
  }
}
