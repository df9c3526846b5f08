/**
 * Pixels of any type to colours.
 */

import { colormap } from "./colormaps.js";
import { RequestError } from "./errors.js";

/** @typedef {import("./raquet.js").Metadata} Metadata */
/** @typedef {import("./raquet.js").Band} Band */
/** @typedef {import("./raquet.js").RasterTile} RasterTile */

/**
 * How a raster is drawn.
 * @typedef {object} Look
 * @property {number[]} bands from 0; one, or three for red, green and blue
 * @property {([number, number] | undefined)[]} ranges what becomes dark and bright, by drawn band
 * @property {string | undefined} colormap of a single band; its own colour table if absent
 * @property {number | undefined} time
 * @property {number} alpha the band that says how opaque the others are; -1 if there is none
 */

/**
 * The bands that are drawn when none are asked for.
 * @param {Metadata} metadata
 */
export function defaultBands({ bands }) {
  const named = ["red", "green", "blue"].map((color) =>
    bands.findIndex((band) => band.interpretation === color),
  );
  if (named.every((index) => index >= 0)) return named;
  const bytes =
    bands.length === 3 || bands.length === 4 ? bands.every((band) => band.type === "uint8") : false;
  return bytes ? [0, 1, 2] : [0];
}

/** @param {Band} band */
export function defaultColormap(band) {
  return band.type === "uint8" ? "gray" : "viridis";
}

/**
 * Read titiler's parameters `bidx`, `rescale` and `colormap_name`, and `time`.
 * @param {URLSearchParams} query
 * @param {Metadata} metadata
 * @returns {Look}
 */
export function parseLook(query, metadata) {
  const listed = query.getAll("bidx").flatMap((value) => value.split(","));
  const bands = listed.length ? listed.map((value) => Number(value) - 1) : defaultBands(metadata);
  if (bands.length > 3 || bands.length === 2 || bands.some((band) => !metadata.bands[band])) {
    throw new RequestError("bidx must name one band or three", {
      hint: `1 to ${metadata.bands.length}`,
    });
  }
  const ranges = query.getAll("rescale").map((value) => value.split(",").map(Number));
  if (ranges.some((range) => range.length !== 2 || !range.every(Number.isFinite))) {
    throw new RequestError("rescale must be two numbers");
  }
  const name = query.get("colormap_name") ?? undefined;
  if (name !== undefined && !colormap(name)) throw new RequestError("unknown colormap_name");
  const time = query.has("time") ? Number(query.get("time")) : undefined;
  if (time !== undefined && !(Number.isInteger(time) && time >= 0))
    throw new RequestError("time must be a number");
  return {
    bands,
    ranges: bands.map((_, index) => /** @type {[number, number]} */ (ranges[index] ?? ranges[0])),
    colormap: name,
    time,
    alpha:
      bands.length === 3 ? metadata.bands.findIndex((band) => band.interpretation === "alpha") : -1,
  };
}

/**
 * Red, green, blue and alpha of each pixel. Nodata and bands that are not stored are transparent.
 * @param {RasterTile} tile with the bands of `look`, the alpha band last
 * @param {Metadata} metadata
 * @param {Look} look whose ranges are all known
 * @returns {Uint8ClampedArray<ArrayBuffer>}
 */
export function draw(tile, metadata, look) {
  const colors = new Uint8ClampedArray(tile.width * tile.height * 4);
  const bands = look.bands.map((index) => metadata.bands[index]);
  if (bands.length === 3) {
    bands.forEach((band, channel) => {
      paint(tile.pixels[channel], band, (value, at) => {
        colors[at + channel] = scaled(value, look.ranges[channel]);
        colors[at + 3] = 255;
      });
    });
    const opacity = look.alpha < 0 ? null : tile.pixels[3];
    if (opacity) for (let i = 0; i < opacity.length; i++) colors[i * 4 + 3] = Number(opacity[i]);
    return colors;
  }
  const [band] = bands;
  if (band.colors && look.colormap === undefined) {
    const palette = band.colors;
    paint(tile.pixels[0], band, (value, at) => colors.set(palette.get(value) ?? [0, 0, 0, 0], at));
    return colors;
  }
  const table = /** @type {Uint8Array} */ (colormap(look.colormap ?? defaultColormap(band)));
  paint(tile.pixels[0], band, (value, at) => {
    const entry = Math.round(Math.min(255, Math.max(0, scaled(value, look.ranges[0])))) * 3;
    colors[at] = table[entry];
    colors[at + 1] = table[entry + 1];
    colors[at + 2] = table[entry + 2];
    colors[at + 3] = 255;
  });
  return colors;
}

/** @param {number} value @param {[number, number] | undefined} range */
function scaled(value, range) {
  const [low, high] = range ?? [0, 255];
  return high > low ? ((value - low) / (high - low)) * 255 : value >= high ? 255 : 0;
}

/**
 * Call `put` with every valid pixel's value and its place among bytes of four.
 * @param {import("./pixels.js").Pixels | null} pixels
 * @param {Band} band
 * @param {(value: number, at: number) => void} put
 */
function paint(pixels, band, put) {
  if (!pixels) return;
  for (let i = 0; i < pixels.length; i++) {
    if (isValid(pixels[i], band)) put(Number(pixels[i]), i * 4);
  }
}

/** @param {number | bigint} value @param {Band} band */
export function isValid(value, band) {
  return value === value && value !== band.nodata; // NaN differs from itself
}

/**
 * What a band's values are like: extremes, percentiles and a histogram of a sample.
 * @param {(import("./pixels.js").Pixels | null)[]} samples
 * @param {Band} band
 */
export function summarize(samples, band) {
  /** @type {number[]} */
  const values = [];
  const count = samples.reduce((sum, pixels) => sum + (pixels?.length ?? 0), 0);
  const every = Math.max(1, Math.floor(count / 200_000));
  let seen = 0;
  for (const pixels of samples) {
    for (const value of pixels ?? []) {
      if (seen++ % every === 0 && isValid(value, band) && Number.isFinite(Number(value)))
        values.push(Number(value));
    }
  }
  if (!values.length) return null;
  const sorted = Float64Array.from(values).sort();
  const at = (/** @type {number} */ share) => sorted[Math.floor(share * (sorted.length - 1))];
  const [min, max] = [sorted[0], sorted[sorted.length - 1]];
  return {
    count: sorted.length,
    min,
    max,
    p2: at(0.02),
    p98: at(0.98),
    histogram: histogram(sorted, min, max),
  };
}

/** @param {Float64Array} sorted @param {number} min @param {number} max */
function histogram(sorted, min, max) {
  const counts = new Array(48).fill(0);
  const width = (max - min) / counts.length || 1;
  for (const value of sorted)
    counts[Math.min(counts.length - 1, Math.floor((value - min) / width))] += 1;
  return counts;
}
