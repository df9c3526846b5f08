/**
 * Meridians and parallels on the ground, with their degrees at the edges of the map. They say where
 * one is, as no other map is asked for.
 */

import { h } from "./dom.js";

/** Degrees between lines, from the zoom at which they are drawn. */
const STEPS = [
  [0, 30],
  [2, 15],
  [4, 5],
  [6, 1],
  [8, 0.25],
  [10, 0.1],
  [12, 0.025],
  [14, 0.005],
  [17, 0.001],
];
/** Pixels from a corner in which no label stands: controls are there. */
const CORNER = 64;
/** Pixels that a label of a meridian takes. */
const ROOM = 60;
/** Degrees of latitude that the map shows at most. */
const HIGHEST = 85;

/** @typedef {import("../../vendor/maplibre-gl/maplibre-gl.js").Map} Map */
/** @typedef {{west: number, south: number, east: number, north: number}} Box */

/**
 * Keep lines and labels where the map looks.
 * @param {Map} map
 * @param {string} source of the lines
 */
export function watchGraticule(map, source) {
  const labels = h("div", { class: "degrees", "aria-hidden": "true" });
  map.getContainer().append(labels);
  const drawLines = () => /** @type {any} */ (map.getSource(source))?.setData(lines(map));
  const drawLabels = () => labels.replaceChildren(...labelsOf(map));
  for (const event of ["load", "moveend"]) map.on(event, drawLines);
  for (const event of ["load", "move", "resize"]) map.on(event, drawLabels);
}

/** @param {Map} map @returns {number} */
function stepOf(map) {
  return (STEPS.findLast(([zoom]) => map.getZoom() >= zoom) ?? STEPS[0])[1];
}

/** What the map shows; at most one and a half times around the world. @param {Map} map @returns {Box} */
function boxOf(map) {
  const box = map.getBounds();
  return {
    west: box.getWest(),
    south: Math.max(-HIGHEST, box.getSouth()),
    east: Math.min(box.getEast(), box.getWest() + 540),
    north: Math.min(HIGHEST, box.getNorth()),
  };
}

/** Multiples of a step within two ends. @param {number} from @param {number} to @param {number} step */
function multiples(from, to, step) {
  const first = Math.ceil(from / step);
  const count = Math.max(0, Math.floor(to / step) - first + 1);
  return Array.from({ length: count }, (_, index) => (first + index) * step);
}

/** @param {Map} map */
function lines(map) {
  const step = stepOf(map);
  const { west, south, east, north } = boxOf(map);
  const meridians = multiples(west, east, step).map((x) => [
    [x, south],
    [x, north],
  ]);
  const parallels = multiples(south, north, step).map((y) => [
    [west, y],
    [east, y],
  ]);
  const coordinates = [...meridians, ...parallels];
  return { type: "Feature", properties: {}, geometry: { type: "MultiLineString", coordinates } };
}

/** @param {Map} map */
function labelsOf(map) {
  const step = stepOf(map);
  const { west, south, east, north } = boxOf(map);
  const { clientWidth: width, clientHeight: height } = map.getContainer();
  const middle = map.getCenter();
  // Every second, third … meridian alone has a label where they stand close.
  const apart = map.project([middle.lng + step, middle.lat]).x - map.project(middle).x;
  const every = step * Math.max(1, Math.ceil(ROOM / apart));
  const above = multiples(west, east, every).flatMap((lng) => {
    const { x } = map.project([lng, middle.lat]);
    if (x < CORNER / 2 || x > width - CORNER) return [];
    return [label("degrees__meridian", "left", x, angle(wrapped(lng), step, "E", "W"))];
  });
  const beside = multiples(south, north, step).flatMap((lat) => {
    const { y } = map.project([middle.lng, lat]);
    if (y < 2.25 * CORNER || y > height - CORNER) return [];
    return [label("degrees__parallel", "top", y, angle(lat, step, "N", "S"))];
  });
  return [...above, ...beside];
}

/** @param {string} name @param {"left" | "top"} side @param {number} at @param {string} text */
function label(name, side, at, text) {
  const element = h("span", { class: name }, text);
  element.style[side] = `${Math.round(at)}px`;
  return element;
}

/** @param {number} value @param {number} step @param {string} positive @param {string} negative */
function angle(value, step, positive, negative) {
  const digits = step >= 1 ? 0 : step === 0.1 ? 1 : step === 0.25 ? 2 : 3;
  const shown = Math.abs(value).toFixed(digits);
  return Number(shown) === 0 || Number(shown) === 180
    ? `${shown}°`
    : `${shown}° ${value < 0 ? negative : positive}`;
}

/** The same longitude from -180 on, and below 180. @param {number} longitude */
export function wrapped(longitude) {
  return ((((longitude + 180) % 360) + 360) % 360) - 180;
}
