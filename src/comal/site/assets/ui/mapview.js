/**
 * The map: a quiet ground with a graticule, and one group of layers per source.
 */

import * as maplibre from "../../vendor/maplibre-gl/maplibre-gl.js";
import { tilePosition } from "../lib/quadbin.js";
import { watchGraticule } from "./graticule.js";
import { layerColor } from "./palette.js";
import { currentTheme, token } from "./theme.js";

/**
 * What the map needs to know of a source.
 * @typedef {object} TileInfo
 * @property {string} name
 * @property {string[]} tiles templates of addresses; empty before it is known how to draw
 * @property {number} minzoom
 * @property {number} maxzoom
 * @property {[number, number, number, number]} bounds
 * @property {{id: string}[]} [vector_layers]
 * @property {"vector" | "raster"} type
 * @property {number} tileSize pixels of a side
 * @property {boolean} isSharp whether its pixels stay squares
 */

/**
 * What the map shows of a source.
 * @typedef {object} SourceState
 * @property {string} id
 * @property {TileInfo} info
 * @property {boolean} visible
 * @property {number} opacity
 * @property {Set<number>} hidden vector layers that are switched off
 */

const GROUND = "ground";
const GRATICULE = "graticule";
const MARK = "mark";
/** Opacities of the kinds of vector layers at full strength. */
const STRENGTH = { fill: 0.42, line: 0.95, circle: 0.9 };

maplibre.setWorkerUrl(
  new URL("../../vendor/maplibre-gl/maplibre-gl-worker.js", import.meta.url).href,
);

/** @param {HTMLElement} container */
export function createMap(container) {
  const map = new maplibre.Map({
    container,
    style: /** @type {any} */ ({
      version: 8,
      sources: {
        [GRATICULE]: { type: "geojson", data: { type: "FeatureCollection", features: [] } },
        [MARK]: { type: "geojson", data: { type: "FeatureCollection", features: [] } },
      },
      layers: [
        { id: GROUND, type: "background", paint: { "background-color": token("--ground") } },
        {
          id: GRATICULE,
          type: "line",
          source: GRATICULE,
          paint: { "line-color": token("--ground-line"), "line-width": 1 },
        },
        {
          id: MARK,
          type: "line",
          source: MARK,
          paint: { "line-color": token("--accent"), "line-width": 2.5 },
        },
      ],
    }),
    center: [0, 20],
    zoom: 1,
    maxZoom: 22,
    hash: "map",
    attributionControl: false,
    dragRotate: false,
    pitchWithRotate: false,
    touchPitch: false,
    validateStyle: false,
    fadeDuration: 120,
  });
  map.touchZoomRotate.disableRotation();
  map.keyboard.disableRotation();
  map.addControl(new maplibre.NavigationControl({ showCompass: false }), "top-right");
  map.addControl(new maplibre.ScaleControl({ maxWidth: 120 }), "bottom-right");
  // Whether something still moves, fades or loads; pictures of the page wait for it.
  map.on("render", () => (container.dataset.drawing = "true"));
  map.on("idle", () => delete container.dataset.drawing);
  watchGraticule(map, GRATICULE);
  return map;
}

/** Colours of the ground after a change of theme. @param {maplibre.Map} map */
export function repaint(map) {
  map.setPaintProperty(GROUND, "background-color", token("--ground"));
  map.setPaintProperty(GRATICULE, "line-color", token("--ground-line"));
  map.setPaintProperty(MARK, "line-color", token("--accent"));
}

/**
 * Add a source with its layers, below those of the source above it in the list.
 * @param {maplibre.Map} map
 * @param {SourceState} state
 * @param {string} tiles
 * @param {SourceState | undefined} above
 */
export function addSource(map, state, tiles, above) {
  const below = (above && layerIds(map, above)[0]) ?? MARK;
  const { id, info } = state;
  const [west, south, east, north] = info.bounds;
  const shared = {
    tiles: [tiles],
    minzoom: info.minzoom,
    maxzoom: info.maxzoom,
    // A box that crosses the antimeridian is none to MapLibre.
    ...(west < east && south < north ? { bounds: info.bounds } : {}),
  };
  if (info.type === "vector") {
    map.addSource(id, /** @type {any} */ ({ type: "vector", ...shared }));
    addVectorLayers(map, state, below);
  } else {
    map.addSource(
      id,
      /** @type {any} */ ({ type: "raster", tileSize: info.tileSize, ...shared }),
    );
    const paint = {
      "raster-opacity": state.opacity,
      "raster-fade-duration": 120,
      "raster-resampling": info.isSharp ? "nearest" : "linear",
    };
    map.addLayer({ id, type: "raster", source: id, paint: /** @type {any} */ (paint) }, below);
  }
}

/** @param {maplibre.Map} map @param {SourceState} state @param {string} below */
function addVectorLayers(map, state, below) {
  const dark = currentTheme() === "dark";
  const layers = state.info.vector_layers ?? [];
  /** @type {["fill" | "line" | "circle", string[]][]} polygons below lines below points */
  const kinds = [
    ["fill", ["Polygon"]],
    ["line", ["LineString", "Polygon"]],
    ["circle", ["Point"]],
  ];
  for (const [type, geometries] of kinds) {
    layers.forEach((layer, index) => {
      map.addLayer(
        /** @type {any} */ ({
          id: `${state.id} ${type} ${index}`,
          type,
          source: state.id,
          "source-layer": layer.id,
          filter: [
            "match",
            ["geometry-type"],
            geometries.flatMap((name) => [name, `Multi${name}`]),
            true,
            false,
          ],
          paint: vectorPaint(type, layerColor(layer.id, index, dark), state.opacity),
        }),
        below,
      );
    });
  }
}

/** @param {"fill" | "line" | "circle"} type @param {string} color @param {number} opacity */
function vectorPaint(type, color, opacity) {
  const strength = STRENGTH[type] * opacity;
  if (type === "fill") return { "fill-color": color, "fill-opacity": strength };
  if (type === "line") {
    const width = ["interpolate", ["linear"], ["zoom"], 2, 0.8, 14, 2.2];
    return { "line-color": color, "line-opacity": strength, "line-width": width };
  }
  const radius = ["interpolate", ["linear"], ["zoom"], 0, 2.5, 14, 5.5];
  return {
    "circle-color": color,
    "circle-opacity": strength,
    "circle-radius": radius,
    "circle-stroke-color": token("--surface"),
    "circle-stroke-width": 1,
    "circle-stroke-opacity": strength,
  };
}

/** The ids of a source's layers on the map. @param {maplibre.Map} map @param {SourceState} state */
export function layerIds(map, state) {
  return map.getLayersOrder().filter((id) => id === state.id || id.startsWith(`${state.id} `));
}

/**
 * Show a source as its state says: visibility, opacity, hidden vector layers, colours.
 * @param {maplibre.Map} map
 * @param {SourceState} state
 */
export function applyState(map, state) {
  const dark = currentTheme() === "dark";
  for (const id of layerIds(map, state)) {
    const [, type, number] = id.split(" ");
    const index = Number(number);
    const shown = state.visible && !(type && state.hidden.has(index));
    map.setLayoutProperty(id, "visibility", shown ? "visible" : "none");
    if (!type) {
      map.setPaintProperty(id, "raster-opacity", state.opacity);
      continue;
    }
    const name = state.info.vector_layers?.[index]?.id ?? "";
    const kind = /** @type {"fill" | "line" | "circle"} */ (type);
    for (const [key, value] of Object.entries(
      vectorPaint(kind, layerColor(name, index, dark), state.opacity),
    )) {
      map.setPaintProperty(id, /** @type {any} */ (key), value);
    }
  }
}

/**
 * Outline a tile, or nothing.
 * @param {maplibre.Map} map
 * @param {[z: number, x: number, y: number] | undefined} tile
 */
export function mark(map, tile) {
  const source = /** @type {maplibre.GeoJSONSource} */ (map.getSource(MARK));
  /** @type {any[]} */
  const features = [];
  if (tile) {
    const [z, x, y] = tile;
    const lon = (/** @type {number} */ column) => (column / 2 ** z) * 360 - 180;
    const lat = (/** @type {number} */ row) =>
      (Math.atan(Math.sinh(Math.PI * (1 - (2 * row) / 2 ** z))) * 180) / Math.PI;
    const [west, north, east, south] = [lon(x), lat(y), lon(x + 1), lat(y + 1)];
    const ring = [
      [west, north],
      [east, north],
      [east, south],
      [west, south],
      [west, north],
    ];
    features.push({
      type: "Feature",
      properties: {},
      geometry: { type: "LineString", coordinates: ring },
    });
  }
  source.setData({ type: "FeatureCollection", features });
}

/**
 * The zoom of the tiles of a source that the map shows.
 * @param {maplibre.Map} map
 * @param {SourceState} state
 */
export function zoomAt(map, { info: { maxzoom, type, tileSize } }) {
  const level = map.getZoom() + Math.log2(512 / tileSize);
  return Math.max(0, Math.min(maxzoom, type === "vector" ? Math.floor(level) : Math.round(level)));
}

/**
 * The tile of a source that the map shows at a place, if the source has tiles there.
 * @param {maplibre.Map} map
 * @param {SourceState} state
 * @param {{lng: number, lat: number}} place
 * @returns {[z: number, x: number, y: number] | undefined}
 */
export function tileAt(map, state, { lng, lat }) {
  const z = zoomAt(map, state);
  if (z < state.info.minzoom) return undefined;
  const [x, y] = tilePosition(lng, lat, z).map(Math.floor);
  return [z, x % 2 ** z, y];
}

/** The smallest zoom of the map at which a source shows. @param {SourceState} state */
export function firstZoom({ info: { minzoom, type, tileSize } }) {
  return minzoom - Math.log2(512 / tileSize) - (type === "vector" ? 0 : 0.5);
}
