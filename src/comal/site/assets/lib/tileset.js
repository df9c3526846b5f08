/**
 * The document of a Tapalcatl 2 tileset, and the arithmetic that it asks for.
 */

/** @typedef {[name: string, value: string]} Header */

/**
 * A tileset document, made regular.
 * @typedef {object} Metadata
 * @property {string} name
 * @property {string} description
 * @property {string} attribution
 * @property {number} minzoom
 * @property {number} maxzoom
 * @property {[number, number, number, number]} bounds
 * @property {Map<string, Header[]>} formats headers by extension
 * @property {number} minscale
 * @property {number} maxscale
 * @property {number} metatile root tiles per side of an archive
 * @property {number[]} zooms at which archives exist, ascending
 * @property {string | undefined} source template of addresses
 * @property {Array<{id: string, fields: Record<string, string>}>} layers of vector tiles
 */

const WORLD = /** @type {[number, number, number, number]} */ ([
  -180, -85.0511287798066, 180, 85.0511287798066,
]);
const MAX_ZOOM = 26;

/**
 * Read a document of unknown origin; what is missing or of the wrong type gets its default.
 * @param {unknown} document
 * @returns {Metadata}
 */
export function parseMetadata(document) {
  const given = /** @type {Record<string, unknown>} */ (isObject(document) ? document : {});
  const minzoom = zoomOf(given.minzoom, 0);
  const metatile = powerOfTwo(given.metatile);
  return {
    name: textOf(given.name),
    description: textOf(given.description),
    attribution: textOf(given.attribution),
    minzoom,
    maxzoom: Math.max(minzoom, zoomOf(given.maxzoom, MAX_ZOOM)),
    bounds: boundsOf(given.bounds),
    formats: formatsOf(given.formats),
    minscale: positive(given.minscale, 1),
    maxscale: positive(given.maxscale, positive(given.minscale, 1)),
    metatile,
    zooms: zoomsOf(given, minzoom),
    source: typeof given.source === "string" ? given.source : undefined,
    layers: layersOf(given.vector_layers),
  };
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {unknown} value */
function textOf(value) {
  return typeof value === "string" ? value : "";
}

/** @param {unknown} value @param {number} fallback */
function zoomOf(value, fallback) {
  return Number.isInteger(value) ? Math.min(MAX_ZOOM, Math.max(0, Number(value))) : fallback;
}

/** @param {unknown} value @param {number} fallback */
function positive(value, fallback) {
  return typeof value === "number" && value > 0 && value <= 16 ? value : fallback;
}

/** @param {unknown} value */
function powerOfTwo(value) {
  const number = typeof value === "number" ? value : 1;
  return Number.isInteger(number) && number > 0 && (number & (number - 1)) === 0 ? number : 1;
}

/** Four numbers, else the whole world. @param {unknown} value */
export function boundsOf(value) {
  const usable = Array.isArray(value) && value.length === 4 && value.every(Number.isFinite);
  return usable ? /** @type {[number, number, number, number]} */ (value) : WORLD;
}

/** @param {Record<string, unknown>} given @param {number} minzoom */
function zoomsOf(given, minzoom) {
  const root = /^(\d+)\/\d+\/\d+$/.exec(textOf(given.root));
  const listed = Array.isArray(given.materializedZooms) ? given.materializedZooms : [];
  const zooms = listed.filter((zoom) => Number.isInteger(zoom) && zoom >= 0 && zoom <= MAX_ZOOM);
  if (!zooms.length) return [root ? zoomOf(Number(root[1]), 0) : minzoom];
  return [...new Set(zooms)].sort((a, b) => a - b);
}

/** @param {unknown} value */
function formatsOf(value) {
  /** @type {Map<string, Header[]>} */
  const formats = new Map();
  for (const [extension, given] of Object.entries(isObject(value) ? value : {})) {
    formats.set(
      extension,
      typeof given === "string" ? [["Content-Type", given]] : headersOf(given),
    );
  }
  return formats;
}

/** Lists of one-key objects, and the object form of before December 2018. @param {unknown} value */
export function headersOf(value) {
  const objects = Array.isArray(value) ? value.filter(isObject) : isObject(value) ? [value] : [];
  return objects.flatMap((object) =>
    Object.entries(object)
      .filter(([, content]) => typeof content === "string" || typeof content === "number")
      .map(([name, content]) => /** @type {Header} */ ([name, String(content)])),
  );
}

/** @param {unknown} value */
function layersOf(value) {
  return (Array.isArray(value) ? value : [])
    .filter((layer) => isObject(layer) && typeof layer.id === "string")
    .map((layer) => ({ id: layer.id, fields: isObject(layer.fields) ? layer.fields : {} }));
}

/**
 * The archive of a tile: its zoom, column and row.
 * @param {Metadata} metadata
 * @param {number} z
 * @param {number} x
 * @param {number} y
 */
export function archiveOf(metadata, z, x, y) {
  const zoom = metadata.zooms.findLast((candidate) => candidate <= z);
  if (zoom === undefined) return undefined;
  const [column, row] = [Math.floor(x / 2 ** (z - zoom)), Math.floor(y / 2 ** (z - zoom))];
  return { z: zoom, x: column - (column % metadata.metatile), y: row - (row % metadata.metatile) };
}
