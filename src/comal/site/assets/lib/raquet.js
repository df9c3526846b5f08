/**
 * RaQuet: rasters as Parquet tables of tiles, read by the page index where there is one.
 */

import { text, viewOf } from "./bytes.js";
import { coveredPixels, edgesOf } from "./coverage.js";
import { AbsentError, ArchiveError, DamagedError } from "./errors.js";
import { exact } from "./json.js";
import { LIMITS } from "./limits.js";
import { ParquetFile } from "./parquet.js";
import { TYPES, decodeBand, decodeInterleaved } from "./pixels.js";
import { cellOf, tileOf, zoomRange } from "./quadbin.js";
import { RemoteFile } from "./ranges.js";
import { alphaOf } from "./render.js";
import { boundsOf } from "./tileset.js";
import { lowerBound } from "./zip.js";

/** @typedef {import("./pixels.js").Pixels} Pixels */

/**
 * @typedef {object} Band
 * @property {string} name
 * @property {string} type
 * @property {number | bigint | null} nodata
 * @property {string} description
 * @property {string} unit
 * @property {number} scale
 * @property {number} offset
 * @property {string} interpretation
 * @property {Map<number, number[]> | null} colors
 */

/**
 * Metadata of any version, made regular.
 * @typedef {object} Metadata
 * @property {string | null} compression
 * @property {boolean} interleaved
 * @property {number} width of a tile in pixels
 * @property {number} height
 * @property {number} minzoom
 * @property {number} maxzoom
 * @property {[number, number, number, number]} bounds
 * @property {Band[]} bands
 * @property {string} title
 * @property {boolean} timed
 * @property {unknown} source where the source lies, as the document says it
 */

/**
 * A tile: pixels by band, null where a band is not stored.
 * @typedef {object} RasterTile
 * @property {number} width
 * @property {number} height
 * @property {(Pixels | null)[]} pixels
 * @property {(Uint8Array | null)[]} [covered] by band 0 where a pixel is padding; null for none
 */

/**
 * @param {string} json
 * @param {string} where
 * @returns {Metadata}
 */
export function parseMetadata(json, where) {
  if (json.length > LIMITS.json)
    throw new DamagedError("the metadata is over the limit", { where });
  const given = parseLoosely(json);
  if (typeof given !== "object" || given === null || !Array.isArray(given.bands)) {
    throw new DamagedError("the metadata names no bands", { where });
  }
  const tiling = given.tiling ?? given;
  const set = given.tile_matrix_set ?? "WebMercatorQuad";
  if (set !== "WebMercatorQuad")
    throw new ArchiveError(`the tile matrix set ${set} is not supported`, { where });
  const metadata = {
    compression: given.compression ?? null,
    interleaved: given.band_layout === "interleaved",
    width: side(tiling.block_width, where),
    height: side(tiling.block_height, where),
    minzoom: zoom(tiling.min_zoom ?? given.minresolution, where),
    maxzoom: zoom(tiling.max_zoom ?? given.maxresolution ?? given.block_resolution, where),
    bounds: boundsOf(given.bounds),
    bands: bandsOf(given, where),
    title: typeof given.custom?.title === "string" ? given.custom.title : "",
    timed: typeof given.time === "object" && given.time !== null,
    source: given.custom?.comal?.source,
  };
  const known = [null, "gzip", ...(metadata.interleaved ? ["jpeg", "webp"] : [])];
  if (!known.includes(metadata.compression)) {
    throw new DamagedError(`unknown compression ${String(metadata.compression).slice(0, 40)}`, {
      where,
    });
  }
  return metadata;
}

/**
 * JSON in which NaN and Infinity may stand bare, and integers keep all their digits.
 * @param {string} json
 * @returns {any}
 */
function parseLoosely(json) {
  try {
    return JSON.parse(json, exact);
  } catch {
    const quoted = json.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g, (part) =>
      part.startsWith('"') ? part : `"${part}"`,
    );
    try {
      return JSON.parse(quoted, exact);
    } catch {
      return undefined;
    }
  }
}

/** @param {unknown} value @param {string} where */
function side(value, where) {
  const usable = Number.isInteger(value) && Number(value) > 0 && Number(value) <= LIMITS.side;
  if (!usable) throw new DamagedError("the metadata names no usable tile size", { where });
  return Number(value);
}

/** @param {unknown} value @param {string} where */
function zoom(value, where) {
  const usable = Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 26;
  if (!usable) throw new DamagedError("the metadata names no usable zoom", { where });
  return Number(value);
}

/** @param {any} given @param {string} where @returns {Band[]} */
function bandsOf(given, where) {
  if (given.bands.length === 0 || given.bands.length > LIMITS.bands) {
    throw new DamagedError("no bands, or too many", { where });
  }
  return given.bands.map((/** @type {any} */ band, /** @type {number} */ index) => {
    const [name, type] = Array.isArray(band) ? band : [band?.name, band?.type];
    if (typeof name !== "string" || !Object.hasOwn(TYPES, type)) {
      throw new DamagedError("a band has no name, or an unknown type", { where });
    }
    const shared = Array.isArray(given.nodata) ? given.nodata[index] : given.nodata;
    return {
      name,
      type,
      nodata: nodataOf(band.nodata ?? shared, type),
      description: typeof band.description === "string" ? band.description : "",
      unit: typeof band.unit === "string" ? band.unit : "",
      scale: Number.isFinite(band.scale) ? band.scale : 1,
      offset: Number.isFinite(band.offset) ? band.offset : 0,
      interpretation: String(band.colorinterp ?? "").toLowerCase(),
      colors: colorsOf(band.colortable),
    };
  });
}

/** @param {unknown} value @param {string} type */
function nodataOf(value, type) {
  if (value === null || value === undefined || value === "") return null;
  const wide = type === "int64" || type === "uint64";
  const content = String(value).trim();
  if (wide)
    return /^[+-]?\d+(\.0*)?$/.test(content)
      ? BigInt(content.replace(/\.0*$/, "").replace("+", ""))
      : null;
  if (/^[+-]?nan$/i.test(content)) return NaN;
  if (/^[+-]?inf(inity)?$/i.test(content)) return content.startsWith("-") ? -Infinity : Infinity;
  const number = rounded(Number(content), type);
  return Number.isFinite(number) ? number : null;
}

/** A number as the pixels of a type hold it. @param {number} number @param {string} type */
function rounded(number, type) {
  if (type === "float32") return Math.fround(number);
  if (type !== "float16" || number === 0) return number;
  const step = 2 ** (Math.max(-14, Math.floor(Math.log2(Math.abs(number)))) - 10);
  // So large a number beside it leaves no bits below a step, and ties go to even.
  const beside = 3 * 2 ** 51 * step;
  const found = number + beside - beside;
  return Math.abs(found) > 65_504 ? Infinity : found;
}

/** Whether pixels can have the nodata value of a band. @param {Band} band */
function isHeld({ type, nodata }) {
  if (nodata === null) return false;
  const pixel = TYPES[type].make(new ArrayBuffer(8));
  pixel[0] = nodata;
  return pixel[0] === nodata || Number.isNaN(pixel[0]);
}

/** @param {unknown} table */
function colorsOf(table) {
  if (typeof table !== "object" || table === null) return null;
  const colors = new Map();
  for (const [value, color] of Object.entries(table)) {
    if (!Array.isArray(color) || color.length < 3 || !color.every(Number.isFinite)) continue;
    colors.set(Number(value), [color[0], color[1], color[2], color[3] ?? 255]);
    if (colors.size >= 65_536) break;
  }
  return colors.size ? colors : null;
}

/** One raster, in one file or in parts of one. */
export class RaquetFile {
  /** @param {ParquetFile[]} parts @param {Metadata} metadata */
  constructor(parts, metadata) {
    this.parts = parts;
    this.metadata = metadata;
    /** @type {import("./coverage.js").Edge[][][]} by band what its sources cover; empty for all */
    this.coverage = [];
    /** @type {Promise<number[]> | undefined} */
    this.axis = undefined;
  }

  /**
   * @param {string[]} urls
   * @param {import("./ranges.js").Access} access
   */
  static async open(urls, access) {
    const parts = await Promise.all(
      urls.map((url) => {
        const file = new RemoteFile(url, access);
        return file.open(() => ParquetFile.open(file));
      }),
    );
    const raster = new RaquetFile(parts, /** @type {Metadata} */ ({}));
    raster.metadata = parseMetadata(await raster.metadataText(), urls[0]);
    await raster.findCoverage();
    return raster;
  }

  /** A nodata value marks the padding, and so does an alpha band. */
  async findCoverage() {
    const { bands, source } = this.metadata;
    const alpha = alphaOf(this.metadata);
    const told = bands.map((band, at) => isHeld(band) || (alpha >= 0 && at !== alpha));
    if (!source || told.every(Boolean)) return;
    const texts = await Promise.all(this.parts.map((part) => this.metadataText(part)));
    const every = texts.map((one, at) => parseMetadata(one, this.parts[at].file.url).source);
    const edges = edgesOf(every) ?? [];
    this.coverage = told.map((one) => (one ? [] : edges));
  }

  async metadataText(part = this.parts[0]) {
    const key = part.keys.get("comal:metadata");
    if (key !== undefined) return key;
    const [place] = await findIn(part, 0n);
    const value = place && (await part.readValue(place.group, "metadata", place.row));
    if (!(value instanceof Uint8Array)) {
      throw new DamagedError("no row with block 0 holds the metadata", { where: part.file.url });
    }
    return text(value);
  }

  /**
   * A tile; `AbsentError` when it is not stored.
   * @param {number} z
   * @param {number} x
   * @param {number} y
   * @param {{bands?: number[], time?: number}} [choice] bands from 0; which step of a series
   * @returns {Promise<RasterTile>}
   */
  async tile(z, x, y, { bands, time = 0 } = {}) {
    const cell = cellOf(z, x, y);
    const { width, height } = this.metadata;
    const wanted = bands ?? this.metadata.bands.map((_, index) => index);
    for (const part of this.parts) {
      const places = await findIn(part, cell);
      const place = await this.step(part, places, time);
      if (!place) continue;
      const covered = wanted.map((band) =>
        this.coverage[band]?.length
          ? coveredPixels(this.coverage[band], z, x, y, width, height)
          : null,
      );
      return { width, height, pixels: await this.pixels(part, place, wanted), covered };
    }
    throw new AbsentError("there is no such tile", { where: this.parts[0].file.url });
  }

  /**
   * The row of a tile at a step; undefined where this part has none.
   * @param {ParquetFile} part
   * @param {{group: number, row: number}[]} places
   * @param {number} time
   */
  async step(part, places, time) {
    if (!this.metadata.timed) {
      if (places.length > 1)
        throw new DamagedError("a tile is stored twice", { where: part.file.url });
      return places[0];
    }
    const wanted = (await this.times())[time];
    const times = await Promise.all(places.map(({ group }) => timesOf(part, group)));
    return places.find(({ row }, at) => times[at][row] === wanted);
  }

  /** Times of all tiles, ascending: a tile may lack some. @returns {Promise<number[]>} */
  times() {
    this.axis ??= this.readTimes();
    this.axis.catch(() => (this.axis = undefined));
    return this.axis;
  }

  async readTimes() {
    const groups = this.parts.flatMap((part) =>
      [...part.groups.keys()].map(async (group) => {
        const [{ ids, rows }, times] = await Promise.all([
          idsOf(part, group),
          timesOf(part, group),
        ]);
        return Array.from(rows, (row, at) => (ids[at] ? times[row] : null));
      }),
    );
    const told = (await Promise.all(groups)).flat().filter((time) => time !== null);
    return [...new Set(told)].sort((a, b) => a - b);
  }

  /**
   * @param {ParquetFile} part @param {{group: number, row: number}} place @param {number[]} wanted
   * @returns {Promise<(Pixels | null)[]>}
   */
  async pixels(part, { group, row }, wanted) {
    const { width, height, bands, compression, interleaved } = this.metadata;
    const count = width * height;
    const where = part.file.url;
    if (interleaved) {
      const blob = await part.readValue(group, "pixels", row);
      if (!(blob instanceof Uint8Array)) return wanted.map(() => null);
      const all = await decodeInterleaved(
        blob,
        bands[0].type,
        bands.length,
        count,
        compression,
        where,
      );
      return wanted.map((band) => all[band]);
    }
    return Promise.all(
      wanted.map(async (index) => {
        const blob = await part.readValue(group, bands[index].name, row);
        return blob instanceof Uint8Array
          ? decodeBand(blob, bands[index].type, count, compression, where)
          : null;
      }),
    );
  }

  /**
   * Some tiles of a zoom, in the order of the file.
   * @param {number} z
   * @param {number} limit
   */
  async someTiles(z, limit) {
    const [least, greatest] = zoomRange(z);
    const found = new Set();
    for (const part of this.parts) {
      for (let group = 0; group < part.groups.length && found.size < limit; group++) {
        if (!mayHold(part, group, least, greatest)) continue;
        const { ids } = await idsOf(part, group);
        for (const id of ids) if (id >= least && id <= greatest) found.add(id);
      }
    }
    const all = [...found];
    const every = Math.max(1, Math.ceil(all.length / limit));
    return all.filter((_, index) => index % every === 0).map(tileOf);
  }
}

/** @param {ParquetFile} part @param {bigint} cell */
async function findIn(part, cell) {
  const groups = [...part.groups.keys()].filter((group) => mayHold(part, group, cell, cell));
  const found = await Promise.all(
    groups.map(async (group) => {
      const { ids, rows } = await idsOf(part, group);
      const places = [];
      for (let at = lowerBound(ids.length, (i) => ids[i] < cell); ids[at] === cell; at++) {
        places.push({ group, row: rows[at] });
      }
      return places;
    }),
  );
  return found.flat();
}

/**
 * The times of the rows of a row group.
 * @param {ParquetFile} part
 * @param {number} group
 * @returns {Promise<(number | null)[]>}
 */
function timesOf(part, group) {
  const { plain } = part.chunk(group, "time_cf");
  return part.keep(`times ${group}`, plain, async () => {
    const values = await part.readColumn(group, "time_cf");
    return values.map((value) => (value === null ? null : Number(value)));
  });
}

/** Statistics may rule a row group out. @param {ParquetFile} part @param {number} group @param {bigint} least @param {bigint} greatest */
function mayHold(part, group, least, greatest) {
  const chunk = part.chunk(group, "block");
  if (chunk.least.length !== 8 || chunk.greatest.length !== 8) return true;
  return wide(chunk.least) <= greatest && wide(chunk.greatest) >= least;
}

/** @param {Uint8Array} bytes */
const wide = (bytes) => viewOf(bytes).getBigInt64(0, true);

/**
 * The ids of a row group, ascending, each with its row. With one row per page they are the
 * column index itself; else the column is read.
 * @param {ParquetFile} part
 * @param {number} group
 * @returns {Promise<{ids: BigInt64Array, rows: Uint32Array}>}
 */
function idsOf(part, group) {
  const count = part.groups[group].rows;
  part.chunk(group, "block");
  return part.keep(`ids ${group}`, count * 24, async () => {
    const extremes = await part.extremes(group, "block");
    const single =
      extremes?.least.length === count && extremes.least.every((least) => least.length === 8);
    const values = single
      ? extremes.least.map(wide)
      : (await part.readColumn(group, "block")).map((value) =>
          typeof value === "bigint" ? value : -1n,
        );
    const rows = Uint32Array.from(values.keys());
    if (values.some((value, i) => i > 0 && value < values[i - 1])) {
      rows.sort((a, b) => (values[a] < values[b] ? -1 : values[a] > values[b] ? 1 : a - b));
    }
    return { ids: BigInt64Array.from(rows, (row) => values[row]), rows };
  });
}
