/**
 * Tapalcatl 2: a tree of ZIP archives that each hold whole sub-pyramids of tiles.
 */

import { inflate, text } from "./bytes.js";
import { AbsentError, ChangedError, DamagedError } from "./errors.js";
import { parseJson } from "./json.js";
import { LIMITS } from "./limits.js";
import { md5 } from "./md5.js";
import { RemoteFile, readWhole } from "./ranges.js";
import { archiveOf, headersOf, isObject, parseMetadata } from "./tileset.js";
import { lowerBound, readDirectory, readEntry } from "./zip.js";

/** @typedef {import("./ranges.js").Access} Access */
/** @typedef {import("./tileset.js").Header} Header */
/** @typedef {import("./tileset.js").Metadata} Metadata */

/**
 * A tile as its client gets it.
 * @typedef {object} Tile
 * @property {Uint8Array} bytes
 * @property {Header[]} headers
 * @property {string} archive
 * @property {string} entry
 */

/** Headers that an archive may not set: they belong to the connection, or to the site. */
const DENIED = new Set([
  "connection",
  "content-length",
  "content-range",
  "content-security-policy",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "set-cookie",
  "set-cookie2",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "clear-site-data",
  "service-worker-allowed",
  "location",
  "refresh",
  "strict-transport-security",
  "access-control-allow-origin",
]);

/** The definitions of `{h}` in the wild, that of the specification first. */
const HASHES = [
  (/** @type {string} */ key) => md5(key).slice(0, 5),
  (/** @type {string} */ key) => md5(`${key}.zip`).slice(0, 5),
  (/** @type {string} */ key) => md5(`/all/${key}.zip`).slice(0, 5),
];

/** One archive, its entries found by tile. */
class TileArchive {
  /** @param {RemoteFile} file @param {import("./zip.js").Directory} directory */
  constructor(file, directory) {
    this.file = file;
    this.directory = directory;
    /** @type {Map<string, number>} what stands behind the row in a name, numbered */
    this.suffixes = new Map();
    this.index();
  }

  /** Entries with the name of a tile, sorted; anything else is never looked for. */
  index() {
    const { directory } = this;
    const pattern =
      /^(0|[1-9]\d?)\/(0|[1-9]\d{0,7})\/(0|[1-9]\d{0,7})((?:@[\d.]+x)?(?:\.[^/\\]*)?)$/;
    const upper = new Float64Array(directory.length);
    const lower = new Float64Array(directory.length);
    const rows = [];
    for (let row = 0; row < directory.length; row++) {
      const name = pattern.exec(text(directory.nameBytes(row)));
      if (!name) continue;
      const suffix = this.suffixes.get(name[4]) ?? this.suffixes.size;
      this.suffixes.set(name[4], suffix);
      upper[row] = upperKey(Number(name[1]), Number(name[2]));
      lower[row] = lowerKey(Number(name[3]), suffix);
      rows.push(row);
    }
    // Of entries with one name the last wins: it is sorted first.
    rows.sort((a, b) => upper[a] - upper[b] || lower[a] - lower[b] || b - a);
    this.rows = Uint32Array.from(rows);
    this.upper = Float64Array.from(rows, (row) => upper[row]);
    this.lower = Float64Array.from(rows, (row) => lower[row]);
  }

  /** @param {number} z @param {number} x @param {number} y @param {string} suffix */
  find(z, x, y, suffix) {
    const number = this.suffixes.get(suffix);
    if (number === undefined || !this.rows || !this.upper || !this.lower) return -1;
    const { upper, lower, rows } = this;
    const [high, low] = [upperKey(z, x), lowerKey(y, number)];
    const at = lowerBound(
      rows.length,
      (i) => upper[i] < high || (upper[i] === high && lower[i] < low),
    );
    return at < rows.length && upper[at] === high && lower[at] === low ? rows[at] : -1;
  }
}

/** @param {number} z @param {number} x */
const upperKey = (z, x) => z * 2 ** 27 + x;
/** @param {number} y @param {number} suffix */
const lowerKey = (y, suffix) => y * 2 ** 20 + suffix;

/** A tileset, or a single archive. */
export class TileSet {
  /**
   * @param {string} url of meta.json, or of one archive
   * @param {Access} access
   * @param {Metadata} metadata
   * @param {Promise<TileArchive>} [single] the one archive
   */
  constructor(url, access, metadata, single) {
    this.url = url;
    this.access = access;
    this.metadata = metadata;
    this.single = single;
    /** @type {Map<string, Promise<TileArchive | undefined>>} in the order of use */
    this.archives = new Map();
    /** Which definition of `{h}` holds; undefined until an archive has answered. */
    /** @type {number | undefined} */
    this.hash = undefined;
  }

  /**
   * @param {string} url of meta.json, or of one archive that ends in `.zip`
   * @param {Access} access
   */
  static async open(url, access) {
    if (/\.zip$/i.test(new URL(url).pathname)) {
      const archive = await openArchive(url, access);
      const comment = parseJson(text(archive.directory.comment));
      return new TileSet(url, access, parseMetadata(comment), Promise.resolve(archive));
    }
    const document = parseJson(text(await readWhole(url, access, LIMITS.json)));
    if (!isObject(document)) throw new DamagedError("not a tileset document", { where: url });
    const metadata = parseMetadata(document);
    checkSource(metadata.source, url);
    return new TileSet(url, access, metadata);
  }

  /** Extensions; of an archive without metadata those of its names. */
  async extensions() {
    if (this.metadata.formats.size || !this.single) return [...this.metadata.formats.keys()];
    const names = [...(await this.single).suffixes.keys()];
    return [...new Set(names.map((name) => name.replace(/^@[\d.]+x/, "").slice(1)))];
  }

  /**
   * The scale that is meant when none is asked for.
   */
  get scale() {
    return this.metadata.minscale === this.metadata.maxscale ? this.metadata.minscale : 1;
  }

  /**
   * A tile; `AbsentError` when there is none.
   * @param {number} z
   * @param {number} x
   * @param {number} y
   * @param {string} extension
   * @param {number} [scale]
   * @returns {Promise<Tile>}
   */
  async tile(z, x, y, extension, scale = this.scale) {
    const suffix = (scale === 1 ? "" : `@${scale}x`) + (extension ? `.${extension}` : "");
    for (let attempt = 0; ; attempt++) {
      const key = this.keyOf(z, x, y);
      const archive = key === undefined ? undefined : await this.archive(key);
      const row = archive ? archive.find(z, x, y, suffix) : -1;
      if (!archive || row < 0) throw new AbsentError("there is no such tile", { where: this.url });
      try {
        return await this.read(archive, row, `${z}/${x}/${y}${suffix}`, extension);
      } catch (error) {
        // Replaced since its directory was read: read that again, once.
        if (!(error instanceof ChangedError) || attempt > 0 || key === undefined) throw error;
        this.archives.delete(key);
        if (this.single) this.single = openArchive(this.url, this.access);
      }
    }
  }

  /** @param {number} z @param {number} x @param {number} y */
  keyOf(z, x, y) {
    if (this.single) return "";
    const { minzoom, maxzoom } = this.metadata;
    const archive = z < minzoom || z > maxzoom ? undefined : archiveOf(this.metadata, z, x, y);
    return archive && `${archive.z}/${archive.x}/${archive.y}`;
  }

  /** @param {string} key */
  async archive(key) {
    if (this.single) return this.single;
    let opening = this.archives.get(key);
    if (opening) this.archives.delete(key);
    else opening = this.find(key);
    this.archives.set(key, opening);
    for (const oldest of this.archives.keys()) {
      if (this.archives.size <= LIMITS.archives) break;
      this.archives.delete(oldest);
    }
    opening.catch(() => this.archives.delete(key));
    return opening;
  }

  /**
   * Open an archive. Which definition of the hash holds is told by the first one that answers.
   * @param {string} key
   * @returns {Promise<TileArchive | undefined>}
   */
  async find(key) {
    const hashed = this.metadata.source?.includes("{h}");
    const tried = !hashed ? [0] : this.hash !== undefined ? [this.hash] : HASHES.keys();
    for (const number of tried) {
      try {
        const archive = await openArchive(this.address(key, HASHES[number]), this.access);
        this.hash = number;
        return archive;
      } catch (error) {
        if (!(error instanceof AbsentError)) throw error;
      }
    }
    return undefined;
  }

  /** @param {string} key @param {(key: string) => string} hash */
  address(key, hash) {
    const [z, x, y] = key.split("/");
    /** @type {Record<string, string>} */
    const values = { z, x, y, h: hash(key) };
    const filled = (this.metadata.source ?? "").replace(/\{([zxyh])\}/g, (_, name) => values[name]);
    return new URL(filled, this.url).href;
  }

  /** @param {TileArchive} archive @param {number} row @param {string} entry @param {string} extension */
  async read(archive, row, entry, extension) {
    const { directory, file } = archive;
    let bytes = await readEntry(file, directory, row);
    const headers = tileHeaders(this.metadata.formats.get(extension), directory, row);
    const encoding = headers.get("content-encoding");
    if (encoding?.[1].trim().toLowerCase() === "gzip") {
      // What a worker answers is not decoded any more: it has to be here.
      bytes = await inflate(bytes, "gzip", LIMITS.tile, `${file.url} ${entry}`);
      headers.delete("content-encoding");
    }
    return { bytes, headers: [...headers.values()], archive: file.url, entry };
  }
}

/**
 * Headers of the format, of the entry, then those that the directory implies; the later wins.
 * @param {Header[] | undefined} format
 * @param {import("./zip.js").Directory} directory
 * @param {number} row
 */
function tileHeaders(format, directory, row) {
  /** @type {Map<string, Header>} */
  const headers = new Map();
  const own = headersOf(parseJson(text(directory.commentBytes(row))));
  for (const [name, value] of [...(format ?? []), ...own]) {
    const key = name.toLowerCase();
    if (DENIED.has(key) || !/^[!#$%&'*+.^_`|~\w-]+$/.test(name)) continue;
    if (/^[\t\x20-\x7e]*$/.test(value)) headers.set(key, [name, value]);
  }
  headers.set("etag", ["ETag", `"${directory.crc[row].toString(16).padStart(8, "0")}"`]);
  const modified = directory.modifiedAt(row);
  if (modified) headers.set("last-modified", ["Last-Modified", modified.toUTCString()]);
  return headers;
}

/** @param {string} url @param {Access} access */
async function openArchive(url, access) {
  const file = new RemoteFile(url, access);
  return new TileArchive(file, await file.open(() => readDirectory(file)));
}

/** @param {string | undefined} source @param {string} url */
function checkSource(source, url) {
  const missing = ["{z}", "{x}", "{y}"].filter((name) => !source?.includes(name));
  if (missing.length) {
    throw new DamagedError(`the tileset's source lacks ${missing.join(" ")}`, { where: url });
  }
  const { protocol } = new URL(/** @type {string} */ (source), url);
  if (protocol !== "https:" && protocol !== "http:") {
    throw new DamagedError(`a browser cannot read archives at ${protocol}//`, {
      where: url,
      hint: "give meta.json a source that is relative, or that begins with https://",
    });
  }
}
