/**
 * What sources answer, with the names of comal's server: documents, tiles as they are in archives,
 * and rasters drawn.
 */

import { AbsentError, ArchiveError, RequestError } from "./errors.js";
import { layersOf } from "./mvt.js";
import { tilePosition } from "./quadbin.js";
import {
  alphaOf,
  defaultBands,
  defaultColormap,
  draw,
  isValid,
  parseLook,
  summarize,
} from "./render.js";

/** @typedef {import("./engine.js").SourceEntry} SourceEntry */
/** @typedef {import("./raquet.js").RaquetFile} RaquetFile */
/** @typedef {import("./tapalcatl.js").TileSet} TileSet */

/**
 * What every kind of source answers.
 * @typedef {object} Source
 * @property {() => Record<string, unknown>} summary what a list says of it
 * @property {() => Promise<object>} details what its own document says beside that
 * @property {() => Promise<object>} tilejson
 * @property {(lon: number, lat: number, query: URLSearchParams) => Promise<object>} [point]
 * @property {(query: URLSearchParams) => Promise<object>} [statistics]
 * @property {(z: number, x: number, y: number, extension: string, scale: number | undefined, query: URLSearchParams) => Promise<Response>} tile
 */

const VECTOR = new Set(["mvt", "pbf"]);
/** @type {Record<string, string>} */
const TYPES = {
  avif: "image/avif",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  json: "application/json",
  mvt: "application/vnd.mapbox-vector-tile",
  pbf: "application/vnd.mapbox-vector-tile",
  png: "image/png",
  webp: "image/webp",
};
const DRAWN = ["png", "webp", "jpg", "jpeg"];
/** Tiles that are looked at, and how many of their pixels must be valid, to know a band. */
const SAMPLES = 6;
const ENOUGH = 20_000;

/**
 * TileJSON 3.0 of a source.
 * @param {any} summary @param {string} template an address
 */
function tilejsonOf({ title, description, attribution, minzoom, maxzoom, bounds }, template) {
  const texts = { name: title, description: description ?? "", attribution: attribution ?? "" };
  const [west, south, east, north] = bounds;
  // TileJSON 3.0.0, 3.4: bounds must not wrap around the antimeridian.
  const isPlain = -180 <= west && west <= east && east <= 180;
  const box = isPlain ? bounds : [-180, south, 180, north];
  return { tilejson: "3.0.0", ...texts, tiles: [template], minzoom, maxzoom, bounds: box };
}

/** Tiles as they are in archives. */
export class TapalcatlSource {
  /** @param {SourceEntry} entry @param {string} base @param {TileSet} tiles */
  constructor(entry, base, tiles) {
    this.entry = entry;
    this.base = base;
    this.tiles = tiles;
  }

  summary() {
    const { name, description, attribution, minzoom, maxzoom, bounds } = this.tiles.metadata;
    return {
      name: this.entry.name,
      title: this.entry.title || name || this.entry.name,
      description: description || null,
      format: "tapalcatl",
      kind: "tiles",
      bounds,
      minzoom,
      maxzoom,
      attribution: this.entry.attribution || attribution || null,
    };
  }

  /** The format that a map is shown: vector tiles before pictures. */
  async extension() {
    const found = await this.tiles.extensions();
    const shown = found.find((name) => VECTOR.has(name)) ?? found.find((name) => name in TYPES);
    if (shown === undefined)
      throw new ArchiveError("no format that a map can show", { where: this.tiles.url });
    return shown;
  }

  async details() {
    const { metadata, scale } = this.tiles;
    const extension = await this.extension();
    const isVector = VECTOR.has(extension);
    return {
      type: isVector ? "vector" : "raster",
      formats: Object.fromEntries(metadata.formats),
      vector_layers: isVector ? await this.layers(extension) : null,
      materialized_zooms: metadata.zooms,
      metatile: metadata.metatile,
      tiles: {
        template: `${this.entry.name}/{z}/{x}/{y}{scale}.{ext}`,
        extensions: [extension],
        scales: [scale],
      },
    };
  }

  async tilejson() {
    const extension = await this.extension();
    const suffix = this.tiles.scale === 1 ? "" : `@${this.tiles.scale}x`;
    const template = `${this.base}${this.entry.name}/{z}/{x}/{y}${suffix}.${extension}`;
    const layers = VECTOR.has(extension) && { vector_layers: await this.layers(extension) };
    return { ...tilejsonOf(this.summary(), template), ...layers };
  }

  /** Layers as the metadata lists them, else as a tile holds them. @param {string} extension */
  async layers(extension) {
    const { layers, minzoom, bounds } = this.tiles.metadata;
    if (layers.length) return layers;
    const [west, south, east, north] = bounds;
    const [x, y] = tilePosition((west + east) / 2, (south + north) / 2, minzoom).map(Math.floor);
    const tile = await this.tiles.tile(minzoom, x, y, extension).catch(unlessAbsent);
    return tile ? layersOf(tile.bytes) : [];
  }

  /**
   * @param {number} z @param {number} x @param {number} y @param {string} extension
   * @param {number | undefined} scale
   */
  async tile(z, x, y, extension, scale) {
    const tile = await this.tiles.tile(z, x, y, extension, scale);
    const headers = new Headers({ "Content-Type": TYPES[extension] ?? "application/octet-stream" });
    for (const [name, value] of tile.headers) headers.set(name, value);
    // What an archive calls its bytes must not make a page or a script of them.
    if (/html|script|xml/i.test(headers.get("Content-Type") ?? "")) {
      headers.set("Content-Type", "application/octet-stream");
    }
    headers.set("Content-Length", String(tile.bytes.length));
    headers.set("X-Content-Type-Options", "nosniff");
    headers.set("X-Comal-Archive", tile.archive);
    headers.set("X-Comal-Entry", tile.entry);
    return new Response(/** @type {BodyInit} */ (tile.bytes), { headers });
  }
}

/** Rasters, drawn. */
export class RaquetSource {
  /** @param {SourceEntry} entry @param {string} base @param {RaquetFile} raster */
  constructor(entry, base, raster) {
    this.entry = entry;
    this.base = base;
    this.raster = raster;
    /** @type {Map<string, Promise<any>>} */
    this.summaries = new Map();
  }

  summary() {
    const { title, minzoom, maxzoom, bounds } = this.raster.metadata;
    return {
      name: this.entry.name,
      title: this.entry.title || title || this.entry.name,
      description: null,
      format: "raquet",
      kind: "raster",
      bounds,
      minzoom,
      maxzoom,
      attribution: this.entry.attribution || null,
      tilesize: this.raster.metadata.width,
    };
  }

  async details() {
    const { metadata } = this.raster;
    const bands = metadata.bands.map(bandDocument);
    const shown = defaultBands(metadata).map((band) => band + 1);
    return {
      tiles: {
        template: `${this.entry.name}/{z}/{x}/{y}.{ext}`,
        extensions: DRAWN,
        scales: [1],
      },
      bands,
      defaults: { bidx: shown, rescale: [], colormap_name: bands[shown[0] - 1].colormap_name },
      time: metadata.timed ? { count: (await this.raster.times()).length, values: [] } : null,
    };
  }

  async tilejson() {
    return tilejsonOf(this.summary(), `${this.base}${this.entry.name}/{z}/{x}/{y}.png`);
  }

  /** @param {number} band from 0 @param {number} [time] */
  counted(band, time = 0) {
    const key = `${band} ${time}`;
    let summary = this.summaries.get(key);
    if (!summary) {
      summary = this.summarize(band, time);
      this.summaries.set(key, summary);
      summary.catch(() => this.summaries.delete(key));
    }
    return summary;
  }

  /** @param {number} band @param {number} time */
  async summarize(band, time) {
    const { metadata } = this.raster;
    const alpha = alphaOf(metadata);
    const bands = alpha < 0 || alpha === band ? [band] : [band, alpha];
    let found = null;
    for (let z = metadata.minzoom; z <= metadata.maxzoom; z++) {
      const places = await this.raster.someTiles(z, SAMPLES);
      const tiles = await Promise.all(
        places.map((place) => this.raster.tile(...place, { bands, time }).catch(unlessAbsent)),
      );
      const there = tiles.filter((tile) => tile !== undefined);
      found = summarize(there, metadata.bands[band], bands.length > 1) ?? found;
      if (found && found.count >= ENOUGH) break;
    }
    return found;
  }

  /** @param {URLSearchParams} query */
  async statistics(query) {
    const { bands, time } = parseLook(query, this.raster.metadata);
    const found = await Promise.all(bands.map((band) => this.counted(band, time)));
    const named = bands.map((band, at) => [this.raster.metadata.bands[band].name, found[at]]);
    return { exact: false, statistics: Object.fromEntries(named) };
  }

  /** @param {number} lon @param {number} lat @param {URLSearchParams} query */
  async point(lon, lat, query) {
    const { metadata } = this.raster;
    const zoom = query.has("zoom") ? Math.round(Number(query.get("zoom"))) : metadata.maxzoom;
    const z = Math.min(metadata.maxzoom, Math.max(metadata.minzoom, zoom));
    if (!(Math.abs(lon) <= 180 && Math.abs(lat) <= 90 && Number.isFinite(z)))
      throw new RequestError("no such point");
    const [px, py] = tilePosition(lon, lat, z);
    const [x, y] = [Math.min(2 ** z - 1, Math.floor(px)), Math.floor(py)];
    const time = Number(query.get("time") ?? 0);
    const tile = await this.raster.tile(z, x, y, { time }).catch(unlessAbsent);
    const column = Math.min(metadata.width - 1, Math.floor((px - x) * metadata.width));
    const row = Math.min(metadata.height - 1, Math.floor((py - y) * metadata.height));
    const place = row * metadata.width + column;
    const alpha = alphaOf(metadata);
    const opacity = alpha < 0 ? undefined : (tile?.pixels[alpha]?.[place] ?? 0);
    const wanted = query.has("bidx") ? parseLook(query, metadata).bands : metadata.bands.keys();
    const bands = Array.from(wanted);
    const values = bands.map((index) => {
      const stored = tile?.pixels[index]?.[place];
      const hiding = index === alpha ? undefined : opacity;
      const covered = tile?.covered?.[index]?.[place];
      if (stored === undefined) return null;
      return isValid(stored, metadata.bands[index], hiding, covered) ? jsonNumber(stored) : null;
    });
    const names = bands.map((index) => metadata.bands[index].name);
    return { coordinates: [lon, lat], values, band_names: names, zoom: z };
  }

  /**
   * @param {number} z @param {number} x @param {number} y @param {string} extension
   * @param {number | undefined} _scale @param {URLSearchParams} query
   */
  async tile(z, x, y, extension, _scale, query) {
    if (!DRAWN.includes(extension || "png"))
      throw new AbsentError("rasters are drawn as png, webp or jpg");
    const { metadata } = this.raster;
    if (z < metadata.minzoom || z > metadata.maxzoom) throw new AbsentError("outside the zooms");
    const look = parseLook(query, metadata);
    const bands = look.alpha < 0 ? look.bands : [...look.bands, look.alpha];
    const tile = await this.raster.tile(z, x, y, { bands, time: look.time });
    look.ranges = await Promise.all(
      look.ranges.map((range, index) => range ?? this.range(look.bands[index], look.time)),
    );
    const canvas = new OffscreenCanvas(tile.width, tile.height);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.putImageData(new ImageData(draw(tile, metadata, look), tile.width, tile.height), 0, 0);
    const type = TYPES[extension || "png"];
    const image = await canvas.convertToBlob({ type, quality: 0.9 });
    const headers = {
      "Content-Type": image.type,
      "Content-Length": String(image.size),
      "X-Comal-Archive": this.raster.parts[0].file.url,
    };
    return new Response(image, { headers });
  }

  /** @param {number} band @param {number} [time] @returns {Promise<[number, number]>} */
  async range(band, time) {
    if (this.raster.metadata.bands[band].type === "uint8") return [0, 255];
    const summary = await this.counted(band, time);
    if (!summary) return [0, 255];
    const { percentile_2: low, percentile_98: high, min, max } = summary;
    const half = min < max ? 0 : Math.max(1, Math.abs(min) / 16); // one value is middle grey
    return low < high ? [low, high] : [min - half, max + half];
  }
}

/** Nothing where there is no tile. @param {unknown} error @returns {undefined} */
function unlessAbsent(error) {
  if (!(error instanceof AbsentError)) throw error;
}

/** Texts keep all digits of integers that numbers would round. @param {number | bigint} value */
function jsonNumber(value) {
  return Number.isSafeInteger(Number(value)) || typeof value === "number"
    ? Number(value)
    : String(value);
}

/** @param {import("./raquet.js").Band} band @param {number} index from 0 */
function bandDocument(band, index) {
  const { name, type, description, unit, scale, offset, nodata, colors } = band;
  const table = colors && [...colors].slice(0, 256);
  return {
    index: index + 1,
    name,
    description,
    dtype: type,
    nodata: nodata === null ? null : String(nodata),
    unit,
    scale,
    offset,
    has_colortable: Boolean(colors),
    colortable: table && table.map(([value, color]) => ({ value, color: hexOf(color) })),
    colormap_name: colors ? null : defaultColormap(band),
  };
}

/** @param {ArrayLike<number>} color its red, green, blue and opacity */
function hexOf(color) {
  return `#${Array.from(color, (part) => part.toString(16).padStart(2, "0")).join("")}`;
}
