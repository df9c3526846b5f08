/**
 * What the server knows of its rasters: colour maps, and how often values are.
 */

import { getJson } from "./api.js";

/** @typedef {{name: string, colors: string[]}} Colourmap */

/** @type {Promise<Colourmap[]> | null} */
let asked = null;

/** Colour maps, asked for once. @returns {Promise<Colourmap[]>} */
function colourmaps() {
  asked ??= getJson("colormaps.json").then((found) => found.colormaps);
  asked.catch(() => (asked = null));
  return asked;
}

/**
 * @param {string} name the source's as it stands in an address
 * @returns {import("../ui/rastercontrols.js").RasterData}
 */
export function servedRaster(name) {
  return {
    histogram: (parameters, signal) => getJson(`${name}/histogram`, parameters, { signal }),
    colourmaps,
    calculates: true,
    colormapOf: () => null,
  };
}
