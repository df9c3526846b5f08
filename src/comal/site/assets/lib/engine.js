/**
 * A tile server without a server: answers what comal's server would, from archives that it reads
 * by byte ranges. It runs in a service worker, or in the page where there is none.
 *
 *     tiles/sources.json                         what there is
 *     tiles/colormaps.json                       colour maps for rasters
 *     tiles/{source}                             what the source holds
 *     tiles/{source}.json                        TileJSON 3.0
 *     tiles/{source}/{z}/{x}/{y}[@2x].{ext}      a tile
 *     tiles/{source}/point/{lon},{lat}?zoom=     values of a raster
 *     tiles/{source}/statistics                  what values a raster has
 */

import { RaquetSource, TapalcatlSource } from "./answers.js";
import { text } from "./bytes.js";
import { colormapList } from "./colormaps.js";
import {
  AbsentError,
  ArchiveError,
  ChangedError,
  RequestError,
  StorageError,
  asArchiveError,
} from "./errors.js";
import { parseJson } from "./json.js";
import { accessOf, readWhole } from "./ranges.js";
import { RaquetFile } from "./raquet.js";
import { IndexStore } from "./store.js";
import { TileSet } from "./tapalcatl.js";

/** @typedef {import("./answers.js").Source} Source */

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

/** Milliseconds that a list waits for a source to be opened. */
const PATIENCE = 10_000;

/** Answers requests for the tiles of the sources in one configuration. */
export class Engine {
  /**
   * @param {string} address of `site.json`; tiles are below its folder
   * @param {Partial<import("./ranges.js").Access>} [access]
   */
  constructor(address, access) {
    this.address = address;
    this.base = new URL("tiles/", address).href;
    this.access = accessOf({ store: new IndexStore(), ...access });
    /** @type {Promise<{title: string, entries: Map<string, SourceEntry>}> | undefined} */
    this.listed = undefined;
    /** @type {Map<string, Promise<Source>>} */
    this.open = new Map();
  }

  /** Forget what is open: the configuration or an archive has changed. */
  reset() {
    this.listed = undefined;
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
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.answer(new URL(url));
      } catch (thrown) {
        const error = asArchiveError(thrown);
        const isChanged = error instanceof ChangedError && attempt === 0;
        if (!isChanged) return json(error.toProblem(), error.status, "application/problem+json");
        // Replaced since it was opened: open what is there now, once.
        this.open.clear();
      }
    }
  }

  /** @param {URL} url */
  async answer(url) {
    const path = url.href.slice(this.base.length).split(/[?#]/)[0];
    if (path === "sources.json") return json(await this.sources());
    if (path === "colormaps.json") return json({ colormaps: colormapList() });
    const document = /^([\w.-]+)\.json$/.exec(path);
    if (document) return json(await (await this.source(document[1])).tilejson());
    const [name, rest] = /^([\w.-]+)(?:\/(.+))?$/.exec(path)?.slice(1) ?? [];
    if (name === undefined) throw new AbsentError("there is no such address");
    const source = await this.source(name);
    if (rest === undefined) return json({ ...source.summary(), ...(await source.details()) });
    const point = /^point\/(-?[\d.]+),(-?[\d.]+)$/.exec(rest);
    const query = url.searchParams;
    if (point && source.point)
      return json(await source.point(Number(point[1]), Number(point[2]), query));
    if (rest === "statistics" && source.statistics) return json(await source.statistics(query));
    const { z, x, y, scale, extension } = tileAddress(rest);
    return source.tile(z, x, y, extension, scale, query);
  }

  /** What the configuration names, in its order, also what cannot be opened. */
  async sources() {
    const { title, entries } = await this.config();
    const sources = [...entries.values()].map((entry) => this.describe(entry));
    return { title, sources: await Promise.all(sources) };
  }

  /** @param {SourceEntry} entry */
  async describe({ name, title }) {
    try {
      const source = await Promise.race([this.source(name), late()]);
      return { ...source.summary(), state: "ready" };
    } catch (error) {
      const problem = asArchiveError(error).toProblem();
      return { name, title: title ?? name, kind: null, state: "error", problem };
    }
  }

  /** @param {string} name @returns {Promise<Source>} */
  async source(name) {
    const entry = (await this.config()).entries.get(name);
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

  /** Title and sources, read once. */
  config() {
    this.listed ??= this.readConfig();
    return this.listed;
  }

  async readConfig() {
    try {
      const document = parseJson(text(await readWhole(this.address, this.access)));
      if (document === undefined) throw new ArchiveError("site.json is not JSON");
      const listed = Array.isArray(document?.sources) ? document.sources : [];
      const sources = listed.filter((/** @type {any} */ entry) => typeof entry?.name === "string");
      const title = typeof document?.title === "string" ? document.title : "";
      const pairs = sources.map((/** @type {SourceEntry} */ entry) => [entry.name, entry]);
      return { title, entries: new Map(pairs) };
    } catch (error) {
      this.listed = undefined;
      throw error;
    }
  }
}

/** Refuse once nobody waits any longer. @returns {Promise<never>} */
function late() {
  const error = new StorageError("the source is still being opened");
  return new Promise((_, refuse) => setTimeout(() => refuse(error), PATIENCE));
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
  const urls = [entry.href].flat().map((href) => new URL(href, engine.address).href);
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
