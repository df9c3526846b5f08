/**
 * A raster that is read in the browser, as the controls of rasters take it.
 */

import { COLORMAPS, colormap } from "../lib/colormaps.js";

/** Colours of a ramp that is shown. */
const SHOWN = 16;

/**
 * Bands, time and defaults of a raster.
 * @param {import("./sources.js").TileInfo} info
 */
export function detailOf({ comal }) {
  const bands = comal.bands.map((/** @type {any} */ band, /** @type {number} */ index) => ({
    index: index + 1,
    name: band.name,
    description: band.description,
    unit: band.unit,
    dtype: band.type,
    has_colortable: Boolean(band.palette),
    colortable: band.palette && Object.entries(band.palette).map(entryOf),
  }));
  const [first] = comal.shown;
  const own = bands[first - 1].has_colortable ? null : colormapOf(bands[first - 1]);
  return {
    bands,
    time: comal.steps > 1 ? { count: comal.steps, values: [] } : null,
    defaults: { bidx: comal.shown, colormap_name: own },
  };
}

/**
 * @param {(parameters: Record<string, unknown>) => Promise<any>} statistics
 * @param {ReturnType<typeof detailOf>} detail
 * @returns {import("./rastercontrols.js").RasterData}
 */
export function readRaster(statistics, detail) {
  return {
    histogram: async (parameters) => countedOf((await statistics(parameters)).bands[0], detail),
    colourmaps: async () => MAPS,
    calculates: false,
    colormapOf,
  };
}

/** As the reader draws it. @param {{dtype: string}} band */
function colormapOf(band) {
  return band.dtype === "uint8" ? "gray" : "viridis";
}

/** @param {any} summary @param {ReturnType<typeof detailOf>} detail */
function countedOf({ band, histogram: counts = [], min, max, p2, p98 }, detail) {
  const { name } = detail.bands[band - 1];
  const edge = (/** @type {number} */ index) => min + ((max - min) * index) / counts.length;
  const edges = counts.length ? Array.from({ length: counts.length + 1 }, (_, i) => edge(i)) : [];
  return { name, counts, edges, min, max, percentile_2: p2, percentile_98: p98 };
}

/** @param {[string, any]} entry a value and its red, green, blue and opacity */
function entryOf([value, color]) {
  const hex = color.map((/** @type {number} */ part) => part.toString(16).padStart(2, "0"));
  return { value: Number(value), color: `#${hex.join("")}` };
}

const MAPS = Object.entries(COLORMAPS).map(([name, title]) => {
  const table = /** @type {Uint8Array} */ (colormap(name));
  const colors = Array.from({ length: SHOWN }, (_, index) => {
    const at = Math.round((index / (SHOWN - 1)) * 255) * 3;
    return `rgb(${table.subarray(at, at + 3).join(" ")})`;
  });
  return { name, title, colors };
});
