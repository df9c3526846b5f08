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
  const visible = [...bands.keys()].filter((at) => bands[at].interpretation !== "alpha");
  const first = visible.slice(0, 3);
  const areBytes = first.length === 3 && first.every((at) => bands[at].type === "uint8");
  return areBytes ? first : [first[0] ?? 0];
}

/** @param {Band} band */
export function defaultColormap(band) {
  return band.type === "uint8" ? "gray" : "viridis";
}

/** The band whose zeros hide the others; -1 if there is none. @param {Metadata} metadata */
export function alphaOf({ bands }) {
  return bands.length > 1 ? bands.findIndex((band) => band.interpretation === "alpha") : -1;
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
  const alpha = alphaOf(metadata);
  if (time !== undefined && !(Number.isInteger(time) && time >= 0))
    throw new RequestError("time must be a number");
  return {
    bands,
    ranges: bands.map((_, index) => /** @type {[number, number]} */ (ranges[index] ?? ranges[0])),
    colormap: name,
    time,
    alpha: bands.length === 1 && bands[0] === alpha ? -1 : alpha,
  };
}

/**
 * Red, green, blue and alpha of each pixel: transparent where no band that is drawn has a value.
 * @param {RasterTile} tile with the bands of `look`, the alpha band last
 * @param {Metadata} metadata
 * @param {Look} look whose ranges are all known
 * @returns {Uint8ClampedArray<ArrayBuffer>}
 */
export function draw(tile, metadata, look) {
  const colors = new Uint8ClampedArray(tile.width * tile.height * 4);
  const bands = look.bands.map((index) => metadata.bands[index]);
  const opacity = look.alpha < 0 ? null : opacityOf(tile, bands.length);
  if (bands.length === 3) {
    bands.forEach((band, channel) => {
      const hiding = look.bands[channel] === look.alpha ? null : opacity;
      paint(tile, channel, band, hiding, (value, at) => {
        colors[at + channel] = scaled(value, look.ranges[channel]);
        colors[at + 3] = 255;
      });
    });
    return colors;
  }
  const [band] = bands;
  if (band.colors && look.colormap === undefined) {
    const palette = band.colors;
    paint(tile, 0, band, opacity, (value, at) =>
      colors.set(palette.get(value) ?? [0, 0, 0, 0], at),
    );
    return colors;
  }
  const table = /** @type {Uint8Array} */ (colormap(look.colormap ?? defaultColormap(band)));
  paint(tile, 0, band, opacity, (value, at) => {
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
 * The alpha band, which stands behind the others; one that is not stored hides them all.
 * @param {RasterTile} tile @param {number} at
 */
function opacityOf({ width, height, pixels }, at) {
  return pixels[at] ?? new Uint8Array(width * height);
}

/**
 * Call `put` with every valid pixel's value and its place among bytes of four.
 * @param {RasterTile} tile
 * @param {number} index of the band in the tile
 * @param {Band} band
 * @param {import("./pixels.js").Pixels | null} opacity
 * @param {(value: number, at: number) => void} put
 */
function paint(tile, index, band, opacity, put) {
  const [pixels, covered] = [tile.pixels[index], tile.covered?.[index]];
  if (!pixels) return;
  for (let i = 0; i < pixels.length; i++) {
    if (isValid(pixels[i], band, opacity?.[i], covered?.[i])) put(Number(pixels[i]), i * 4);
  }
}

/**
 * Whether a pixel has a value: no nodata, finite, not hidden by the alpha band, if there is one,
 * and no padding.
 * @param {number | bigint} value @param {Band} band @param {number | bigint} [opacity]
 * @param {number} [covered]
 */
export function isValid(value, band, opacity, covered = 1) {
  const finite = covered !== 0 && (typeof value === "bigint" || Number.isFinite(value));
  return finite && value !== band.nodata && (opacity === undefined || Number(opacity) !== 0);
}

/**
 * What a band's values are like: extremes, percentiles and a histogram of a sample.
 * @param {RasterTile[]} samples tiles of that band, and of the alpha band that hides it
 * @param {Band} band
 * @param {boolean} hidden whether there is such a band
 */
export function summarize(samples, band, hidden) {
  /** @type {number[]} */
  const values = [];
  const count = samples.reduce((sum, { pixels }) => sum + (pixels[0]?.length ?? 0), 0);
  const every = Math.max(1, Math.floor(count / 200_000));
  let seen = 0;
  for (const tile of samples) {
    const pixels = tile.pixels[0] ?? [];
    const opacity = hidden ? opacityOf(tile, 1) : null;
    for (let i = 0; i < pixels.length; i++) {
      if (seen++ % every === 0 && isValid(pixels[i], band, opacity?.[i], tile.covered?.[0]?.[i]))
        values.push(Number(pixels[i]));
    }
  }
  if (!values.length) return null;
  const sorted = Float64Array.from(values).sort();
  const at = (/** @type {number} */ share) => sorted[Math.floor(share * (sorted.length - 1))];
  return {
    count: sorted.length,
    min: sorted[0],
    max: at(1),
    median: at(0.5),
    percentile_2: at(0.02),
    percentile_98: at(0.98),
    histogram: histogram(sorted),
  };
}

/** Counts, and edges between which they lie. @param {Float64Array} sorted */
function histogram(sorted) {
  const [min, max] = [sorted[0], sorted[sorted.length - 1]];
  const counts = new Array(48).fill(0);
  const width = (max - min) / counts.length || 1;
  for (const value of sorted)
    counts[Math.min(counts.length - 1, Math.floor((value - min) / width))] += 1;
  const edges = Array.from({ length: counts.length + 1 }, (_, index) => min + width * index);
  return [counts, edges];
}
