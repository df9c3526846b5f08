/**
 * Which pixels the source of a raster covered: what lies outside of `custom.comal.source` is
 * padding and has no value, though a band without nodata is filled with zeros there.
 */

import { tilePosition } from "./quadbin.js";

/** @typedef {[number, number, number, number]} Edge from (u, v) to (u, v), in parts of the world */

/** Corners of footprints that are taken from a document. */
const MOST_POINTS = 200_000;

/**
 * The edges of what sources cover, of each by itself; null where a document does not say it.
 * @param {unknown[]} sources as the files of a raster say them
 * @returns {Edge[][] | null}
 */
export function edgesOf(sources) {
  const different = [...new Map(sources.map((one) => [JSON.stringify(one), one])).values()];
  try {
    const edges = different.map((one) => ringsOf(one).flatMap(edgesOfRing));
    const count = edges.flat().length;
    return count > 0 && count <= MOST_POINTS ? edges : null;
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}

/** Rings in degrees; the document may come from anybody. @param {any} source @returns {any[]} */
function ringsOf({ footprint, bounds }) {
  if (footprint !== null && footprint !== undefined) {
    if (footprint.type !== "MultiPolygon") throw new TypeError("another geometry");
    return footprint.coordinates.flat();
  }
  const [west, south, east, north] = bounds;
  if (!(south < north) || west === east) throw new TypeError("no bounds");
  const spans = west < east ? [[west, east]] : [[west, 180], [-180, east]];
  return spans.map(([left, right]) => {
    const [first, last] = [[left, north], [left, south]];
    return [first, [right, north], [right, south], last, first];
  });
}

/** @param {any} ring @returns {Edge[]} */
function edgesOfRing(ring) {
  const points = ring.map((/** @type {any} */ [lon, lat]) => {
    const usable = [lon, lat].every((one) => Number.isFinite(one) && Math.abs(one) <= 360);
    if (!usable) throw new TypeError("no degrees");
    return tilePosition(lon, lat, 0);
  });
  const closed = points.length > 3 && String(points[0]) === String(points.at(-1));
  if (!closed) throw new TypeError("an open ring");
  return points
    .slice(1)
    .map((/** @type {number[]} */ end, /** @type {number} */ at) => [...points[at], ...end]);
}

/**
 * Which pixels of a tile are covered: 1 for those whose middle is.
 * @param {Edge[][]} sources
 * @param {number} z @param {number} x @param {number} y
 * @param {number} width @param {number} height
 */
export function coveredPixels(sources, z, x, y, width, height) {
  const mask = new Uint8Array(width * height);
  const row = (/** @type {number} */ v) => (v * 2 ** z - y) * height - 0.5;
  const column = (/** @type {number} */ u) => (u * 2 ** z - x) * width - 0.5;
  const inside = (/** @type {number} */ at) => Math.max(0, Math.min(width, Math.ceil(at)));
  for (const edges of sources) {
    const crossings = Array.from({ length: height }, () => /** @type {number[]} */ ([]));
    for (const [u0, v0, u1, v1] of edges) {
      const [start, end] = [row(v0), row(v1)];
      const last = Math.min(height, Math.ceil(Math.max(start, end)));
      for (let at = Math.max(0, Math.ceil(Math.min(start, end))); at < last; at++) {
        crossings[at].push(column(u0 + ((u1 - u0) * (at - start)) / (end - start)));
      }
    }
    crossings.forEach((found, at) => {
      found.sort((a, b) => a - b);
      for (let i = 0; i + 1 < found.length; i += 2) {
        mask.fill(1, at * width + inside(found[i]), at * width + inside(found[i + 1]));
      }
    });
  }
  return mask;
}
