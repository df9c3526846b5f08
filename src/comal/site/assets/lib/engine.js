/**
 * A tile server without a server: answers what a tile server would, from archives that it reads
 * by byte ranges. It runs in a service worker, or in the page where there is none.
 *
 *     tiles/{source}.json                        TileJSON 3.0
 *     tiles/{source}/{z}/{x}/{y}[@2x].{ext}      a tile
 *     tiles/{source}/point/{lon},{lat}?zoom=     values of a raster
 *     tiles/{source}/statistics                  what values a raster has
 */

import { text } from "./bytes.js";
import { AbsentError, RequestError, asArchiveError } from "./errors.js";
import { accessOf, readWhole } from "./ranges.js";
import { RaquetFile } from "./raquet.js";
import { RaquetSource, TapalcatlSource } from "./served.js";
import { IndexStore } from "./store.js";
import { TileSet } from "./tapalcatl.js";
import { parseJson } from "./tileset.js";

/** @typedef {import("./served.js").Source} Source */

/**
 * A source as `site.json` names it.
 * @typedef {object} SourceEntry
 * @property {string} name
 * @property {"tapalcatl" | "raquet"} kind
 * @property {string | string[]} href relative to `site.json`, or absolute
 * @property {string} [title]
 * @property {string} [attribution]
 * @property {number[]} [absent] further statuses of the store that mean "no such object"
 */

/** Answers requests for the tiles of the sources in one configuration. */
export class Engine {
  /**
   * @param {string} config address of `site.json`; tiles are below its folder
   * @param {Partial<import("./ranges.js").Access>} [access]
   */
  constructor(config, access) {
    this.config = config;
    this.base = new URL("tiles/", config).href;
    this.access = accessOf({ store: new IndexStore(), ...access });
    /** @type {Promise<Map<string, SourceEntry>> | undefined} */
    this.entries = undefined;
    /** @type {Map<string, Promise<Source>>} */
    this.open = new Map();
  }

  /** Forget what is open: the configuration or an archive has changed. */
  reset() {
    this.entries = undefined;
    this.open.clear();
  }

  /** Whether a request is for us. @param {string} url */
  serves(url) {
    return url.startsWith(this.base);
  }

  /**
   * Answer a request. Whatever goes wrong is an answer as well.
   * @param {string} url
   * @param {string} [method]
   * @returns {Promise<Response>}
   */
  async respond(url, method = "GET") {
    if (method !== "GET" && method !== "HEAD") {
      return new Response(null, { status: 405, headers: { Allow: "GET, HEAD" } });
    }
    try {
      return await this.answer(new URL(url));
    } catch (thrown) {
      const error = asArchiveError(thrown);
      return json(error.toProblem(), error.status, "application/problem+json");
    }
  }

  /** @param {URL} url */
  async answer(url) {
    const path = url.href.slice(this.base.length).split(/[?#]/)[0];
    const document = /^([\w.-]+)\.json$/.exec(path);
    if (document) return json(await (await this.source(document[1])).tilejson());
    const [name, rest] = /^([\w.-]+)\/(.+)$/.exec(path)?.slice(1) ?? [];
    if (name === undefined) throw new AbsentError("there is no such address");
    const source = await this.source(name);
    const point = /^point\/(-?[\d.]+),(-?[\d.]+)$/.exec(rest);
    if (point)
      return json(await source.point(Number(point[1]), Number(point[2]), url.searchParams));
    if (rest === "statistics") return json(await source.statistics(url.searchParams));
    const { z, x, y, scale, extension } = tileAddress(rest);
    return source.tile(z, x, y, extension, scale, url.searchParams);
  }

  /** @param {string} name @returns {Promise<Source>} */
  async source(name) {
    this.entries ??= this.readConfig();
    const entry = (await this.entries).get(name);
    if (!entry) throw new AbsentError("there is no such source");
    let source = this.open.get(name);
    if (!source) {
      source = openSource(entry, this);
      this.open.set(name, source);
      // What failed is tried again with the next request.
      source.catch(() => this.open.delete(name));
    }
    return source;
  }

  async readConfig() {
    try {
      const document = parseJson(text(await readWhole(this.config, this.access)));
      const listed = Array.isArray(document?.sources) ? document.sources : [];
      const sources = listed.filter((/** @type {any} */ entry) => typeof entry?.name === "string");
      return new Map(sources.map((/** @type {SourceEntry} */ entry) => [entry.name, entry]));
    } catch (error) {
      this.entries = undefined;
      throw error;
    }
  }
}

/**
 * Zoom, column, row, scale and extension: plain integers without leading zeros, inside the matrix.
 * @param {string} path
 */
function tileAddress(path) {
  const parts =
    /^(0|[1-9]\d?)\/(0|[1-9]\d{0,7})\/(0|[1-9]\d{0,7})(?:@([1-9])x)?(?:\.([\w]+))?$/.exec(path);
  const [z, x, y] = (parts ?? []).slice(1, 4).map(Number);
  if (!parts || z > 26 || x >= 2 ** z || y >= 2 ** z)
    throw new AbsentError("there is no such address");
  return { z, x, y, scale: parts[4] ? Number(parts[4]) : undefined, extension: parts[5] ?? "" };
}

/** @param {SourceEntry} entry @param {Engine} engine @returns {Promise<Source>} */
async function openSource(entry, engine) {
  const urls = [entry.href].flat().map((href) => new URL(href, engine.config).href);
  const absent = new Set([...engine.access.absent, ...(entry.absent ?? [])]);
  const access = { ...engine.access, absent };
  if (entry.kind === "raquet") {
    return new RaquetSource(entry, engine.base, await RaquetFile.open(urls, access));
  }
  if (entry.kind === "tapalcatl") {
    return new TapalcatlSource(entry, engine.base, await TileSet.open(urls[0], access));
  }
  throw new RequestError(
    `site.json names an unknown kind of source: ${String(entry.kind).slice(0, 40)}`,
  );
}

/** @param {object} document @param {number} [status] @param {string} [type] */
function json(document, status = 200, type = "application/json") {
  const headers = { "Content-Type": type, "Cache-Control": "no-store" };
  return new Response(JSON.stringify(document), { status, headers });
}
