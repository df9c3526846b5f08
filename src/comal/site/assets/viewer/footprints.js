/**
 * Footprints of samples on the map: outlines, and from afar the points in their middles.
 */

import { layerColor } from "../ui/palette.js";
import { currentTheme, token } from "../ui/theme.js";

const PARTS = ["fill", "line", "point"];
const AREAS = ["match", ["geometry-type"], ["Polygon", "MultiPolygon"], true, false];
const CHOSEN = ["boolean", ["feature-state", "chosen"], false];

/** Groups of footprints by key, each in a colour of its own. */
export class Footprints {
  /** @param {import("../../vendor/maplibre-gl/maplibre-gl.js").Map} map */
  constructor(map) {
    this.map = map;
    /** @type {Map<string, number>} which colour, by key; -1 is the accent of the page */
    this.groups = new Map();
  }

  /**
   * Show footprints, in place of those of this key so far.
   * @param {string} key
   * @param {{features: any[]}} collection GeoJSON; ids stand in `comal:path`
   * @param {number} color which of the colours that take turns; -1 for the accent
   */
  show(key, collection, color) {
    const features = collection.features
      .filter((feature) => feature.geometry)
      .map((feature) => ({
        type: "Feature",
        geometry: feature.geometry,
        properties: { path: feature["comal:path"] ?? feature.id },
      }));
    const sets = [features, features.map(middleOf)];
    const known = this.groups.has(key);
    this.groups.set(key, color);
    sources(key).forEach((id, index) => {
      const data = /** @type {any} */ ({ type: "FeatureCollection", features: sets[index] });
      const source = /** @type {any} */ (this.map.getSource(id));
      if (source) source.setData(data);
      else this.map.addSource(id, { type: "geojson", data, promoteId: "path" });
    });
    if (!known) for (const layer of this.layers(key)) this.map.addLayer(layer);
  }

  /** @param {string} key @returns {any[]} */
  layers(key) {
    const [areas, middles] = sources(key);
    const color = this.color(key);
    return [
      {
        id: layerId(key, "fill"),
        type: "fill",
        source: areas,
        filter: AREAS,
        paint: { "fill-color": color, "fill-opacity": ["case", CHOSEN, 0.5, 0.16] },
      },
      {
        id: layerId(key, "line"),
        type: "line",
        source: areas,
        filter: AREAS,
        paint: { "line-color": color, "line-width": ["case", CHOSEN, 3, 1.25] },
      },
      {
        id: layerId(key, "point"),
        type: "circle",
        source: middles,
        paint: {
          "circle-color": color,
          "circle-radius": ["case", CHOSEN, 8, 4.5],
          "circle-stroke-color": token("--surface"),
          "circle-stroke-width": 1.5,
        },
      },
    ];
  }

  /** @param {string} key */
  color(key) {
    const index = this.groups.get(key) ?? -1;
    return index < 0 ? token("--accent") : swatchOf(index);
  }

  /** Colours anew, after the page went light or dark. */
  repaint() {
    for (const key of this.groups.keys()) {
      const color = this.color(key);
      this.map.setPaintProperty(layerId(key, "fill"), "fill-color", color);
      this.map.setPaintProperty(layerId(key, "line"), "line-color", color);
      this.map.setPaintProperty(layerId(key, "point"), "circle-color", color);
      this.map.setPaintProperty(layerId(key, "point"), "circle-stroke-color", token("--surface"));
    }
  }

  /** @param {string} key */
  hide(key) {
    if (!this.groups.delete(key)) return;
    for (const part of PARTS) this.map.removeLayer(layerId(key, part));
    for (const id of sources(key)) this.map.removeSource(id);
  }

  /** Make one footprint stand out, or none. @param {string} key @param {string | null} path */
  choose(key, path) {
    if (!this.groups.has(key)) return;
    for (const source of sources(key)) {
      this.map.removeFeatureState({ source });
      if (path !== null) this.map.setFeatureState({ source, id: path }, { chosen: true });
    }
  }

  /**
   * The footprint at a place of the window.
   * @param {import("../../vendor/maplibre-gl/maplibre-gl.js").PointLike} point
   * @returns {{key: string, path: string} | null}
   */
  at(point) {
    const layers = [...this.groups.keys()].flatMap((key) =>
      PARTS.map((part) => layerId(key, part)),
    );
    const [found] = layers.length ? this.map.queryRenderedFeatures(point, { layers }) : [];
    return found
      ? { key: found.layer.id.split(" ")[1], path: String(found.properties.path) }
      : null;
  }
}

/** The colour of the n-th group. @param {number} index */
export function swatchOf(index) {
  return layerColor("", index, currentTheme() === "dark");
}

/** @param {string} key */
const sources = (key) => [`footprints ${key}`, `footprints ${key} middles`];

/** @param {string} key without spaces @param {string} part */
const layerId = (key, part) => `footprints ${key} ${part}`;

/**
 * The middle of the box of a footprint, as a point with the same properties.
 * @param {{geometry: any, properties: object}} feature
 */
function middleOf({ geometry, properties }) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  const visit = (/** @type {any} */ coordinates) => {
    if (typeof coordinates[0] !== "number") {
      coordinates.forEach(visit);
      return;
    }
    const [x, y] = coordinates;
    box.splice(
      0,
      4,
      Math.min(box[0], x),
      Math.min(box[1], y),
      Math.max(box[2], x),
      Math.max(box[3], y),
    );
  };
  // Of a footprint that the antimeridian cuts, one side is enough.
  visit(geometry.type === "MultiPolygon" ? geometry.coordinates[0] : (geometry.coordinates ?? []));
  const coordinates = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
  return { type: "Feature", properties, geometry: { type: "Point", coordinates } };
}
