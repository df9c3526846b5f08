/**
 * Colour maps that the server knows, asked for once.
 */

import { getJson } from "./api.js";

/** Black to white, for bands without a colour map. */
export const GREYS = Array.from(
  { length: 16 },
  (_, step) => `hsl(0 0% ${Math.round(6 + step * 5.8)}%)`,
);

/** @typedef {{name: string, colors: string[]}} Colourmap */

/** @type {Promise<Colourmap[]> | null} */
let asked = null;

/** @returns {Promise<Colourmap[]>} */
export function colourmaps() {
  asked ??= getJson("colormaps.json").then((found) => found.colormaps);
  asked.catch(() => (asked = null));
  return asked;
}

/**
 * Colours from low to high.
 * @param {string | null} name null for grey
 */
export async function rampOf(name) {
  if (!name) return GREYS;
  const found = (await colourmaps()).find((one) => one.name === name);
  return found ? found.colors : GREYS;
}
