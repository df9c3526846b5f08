/**
 * Parquet files of flat columns over byte ranges: footer, page index, single pages.
 */

import { text, viewOf } from "./bytes.js";
import { ArchiveError, DamagedError } from "./errors.js";
import { LIMITS } from "./limits.js";
import { decodePages } from "./pages.js";
import { ThriftReader, asBytes, asList, asNumber, asStruct } from "./thrift.js";

/** @typedef {import("./pages.js").Value} Value */

const TAIL = 64 * 1024;
const OPTIONAL = 1;
const REPEATED = 2;

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {number} type physical type: 1 INT32, 2 INT64, 4 FLOAT, 5 DOUBLE, 6 BYTE_ARRAY
 * @property {boolean} optional
 */

/**
 * One column of one row group: where its bytes are.
 * @typedef {object} Chunk
 * @property {number} codec
 * @property {number} start
 * @property {number} size
 * @property {number} plain its size without the codec
 * @property {{at: number, size: number} | undefined} offsets its offset index
 * @property {{at: number, size: number} | undefined} extremes its column index
 * @property {Uint8Array} least empty when nothing is known
 * @property {Uint8Array} greatest
 */

/**
 * @typedef {object} Group
 * @property {number} rows
 * @property {Map<string, Chunk>} chunks by column
 */

/** An open Parquet file. */
export class ParquetFile {
  /** @param {import("./ranges.js").RemoteFile} file @param {Column[]} columns @param {Group[]} groups @param {Map<string, string>} keys */
  constructor(file, columns, groups, keys) {
    this.file = file;
    this.columns = new Map(columns.map((column) => [column.name, column]));
    this.groups = groups;
    this.keys = keys;
    /** @type {Map<string, {weight: number, made: Promise<any>}>} in the order of use */
    this.kept = new Map();
    this.held = 0;
  }

  /** @param {import("./ranges.js").RemoteFile} file */
  static async open(file) {
    const where = file.url;
    const tail = await file.tail(TAIL);
    const view = viewOf(tail.bytes);
    const length = tail.bytes.length;
    if (length < 12 || view.getUint32(length - 4, true) !== 0x31524150) {
      throw new DamagedError("not a Parquet file", { where });
    }
    const size = view.getUint32(length - 8, true);
    if (size > LIMITS.footer || size + 12 > Number(file.size)) {
      throw new DamagedError("the footer is longer than the file, or over the limit", { where });
    }
    const footer = await file.read(Number(file.size) - 8 - size, size);
    const fields = new ThriftReader(footer).struct();
    const columns = columnsOf(asList(fields[2]).map(asStruct));
    const groups = asList(fields[4]).map((group) => groupOf(asStruct(group)));
    const pairs = asList(fields[5]).map(asStruct);
    const keys = new Map(pairs.map((pair) => [text(asBytes(pair[1])), text(asBytes(pair[2]))]));
    return new ParquetFile(file, columns, groups, keys);
  }

  /**
   * Indexes, dictionaries and columns that were decoded, kept as long as they are of modest size.
   * @param {string} key
   * @param {number} weight bytes, about
   * @param {() => Promise<any>} make
   */
  keep(key, weight, make) {
    const entry = this.kept.get(key) ?? { weight, made: make() };
    if (!this.kept.delete(key)) this.held += weight;
    this.kept.set(key, entry);
    entry.made.catch(() => this.forget(key, entry));
    for (const [oldest, old] of this.kept) {
      if (this.held <= LIMITS.chunk || oldest === key) break;
      this.forget(oldest, old);
    }
    return entry.made;
  }

  /** @param {string} key @param {{weight: number}} entry */
  forget(key, entry) {
    if (this.kept.get(key) !== entry) return;
    this.kept.delete(key);
    this.held -= entry.weight;
  }

  /** @param {number} group @param {string} name */
  chunk(group, name) {
    const chunk = this.groups[group]?.chunks.get(name);
    if (!chunk) throw new DamagedError(`there is no column ${name}`, { where: this.file.url });
    return chunk;
  }

  /** @param {Chunk} chunk @param {string} name @returns {import("./pages.js").ColumnKind} */
  kind(chunk, name) {
    const column = this.columns.get(name);
    if (!column) throw new DamagedError(`there is no column ${name}`, { where: this.file.url });
    return {
      type: column.type,
      optional: column.optional,
      codec: chunk.codec,
      where: `${this.file.url} (${name})`,
    };
  }

  /**
   * All values of a column in one row group.
   * @param {number} group
   * @param {string} name
   * @returns {Promise<Value[]>}
   */
  async readColumn(group, name) {
    const chunk = this.chunk(group, name);
    if (chunk.size > LIMITS.chunk) {
      throw new ArchiveError("a column has to be read as a whole and is too large for a browser", {
        where: this.file.url,
        hint: "rewrite the file with one tile per page: comal convert",
      });
    }
    const bytes = await this.file.read(chunk.start, chunk.size);
    return (await decodePages(this.kind(chunk, name), bytes)).values;
  }

  /**
   * One value. With an offset index only its page is read, and the dictionary if there is one.
   * @param {number} group
   * @param {string} name
   * @param {number} row within the group
   * @returns {Promise<Value>}
   */
  async readValue(group, name, row) {
    const chunk = this.chunk(group, name);
    const pages = await this.pages(group, name);
    if (!pages) {
      const values = await this.keep(`values ${group} ${name}`, chunk.plain, () =>
        this.readColumn(group, name),
      );
      return values[row] ?? null;
    }
    const number = pages.findLastIndex((page) => page.first <= row);
    if (number < 0) throw new DamagedError("the page index lacks a row", { where: this.file.url });
    const page = pages[number];
    if (page.size > LIMITS.chunk)
      throw new DamagedError("a page is over the limit", { where: this.file.url });
    const dictionary = await this.dictionary(group, name, chunk, pages[0].at);
    const bytes = await this.file.read(page.at, page.size);
    const { values } = await decodePages(this.kind(chunk, name), bytes, dictionary);
    return values[row - page.first] ?? null;
  }

  /**
   * Where the pages of a column chunk are; undefined without an offset index.
   * @param {number} group
   * @param {string} name
   * @returns {Promise<{at: number, size: number, first: number}[] | undefined>}
   */
  async pages(group, name) {
    const { offsets } = this.chunk(group, name);
    if (!offsets) return undefined;
    return this.keep(`pages ${group} ${name}`, offsets.size * 8, async () => {
      const bytes = await this.file.read(offsets.at, boundedIndex(offsets.size));
      const index = new ThriftReader(bytes).struct();
      return asList(index[1]).map((page) => pageOf(asStruct(page)));
    });
  }

  /**
   * Smallest values of the pages of a column; undefined without a column index.
   * @param {number} group
   * @param {string} name
   * @returns {Promise<{least: Uint8Array[], greatest: Uint8Array[]} | undefined>}
   */
  async extremes(group, name) {
    const { extremes } = this.chunk(group, name);
    if (!extremes) return undefined;
    const bytes = await this.file.read(extremes.at, boundedIndex(extremes.size));
    const index = new ThriftReader(bytes).struct();
    return { least: asList(index[2]).map(asBytes), greatest: asList(index[3]).map(asBytes) };
  }

  /** @param {number} group @param {string} name @param {Chunk} chunk @param {number} first */
  dictionary(group, name, chunk, first) {
    const size = first - chunk.start;
    if (size <= 0) return Promise.resolve(undefined);
    if (size > LIMITS.chunk) {
      throw new ArchiveError("the dictionary of a column is too large for a browser", {
        where: this.file.url,
      });
    }
    return this.keep(`dictionary ${group} ${name}`, size * 4, async () => {
      const bytes = await this.file.read(chunk.start, size);
      return (await decodePages(this.kind(chunk, name), bytes)).dictionary;
    });
  }
}

/** @param {number} size */
function boundedIndex(size) {
  if (size > LIMITS.footer) throw new DamagedError("a page index is over the limit");
  return size;
}

/** @param {import("./thrift.js").Struct} page */
function pageOf(page) {
  return { at: asNumber(page[1]), size: asNumber(page[2]), first: asNumber(page[3] ?? 0) };
}

/** @param {import("./thrift.js").Struct[]} elements @returns {Column[]} */
function columnsOf([root, ...rest]) {
  if (!root || root[5] !== rest.length) throw nested();
  return rest.map((element) => {
    if (element[3] === REPEATED) throw nested();
    return {
      name: text(asBytes(element[4])),
      type: asNumber(element[1]),
      optional: element[3] === OPTIONAL,
    };
  });
}

function nested() {
  return new ArchiveError("the columns are nested: not a RaQuet file");
}

/** @param {import("./thrift.js").Struct} fields @returns {Group} */
function groupOf(fields) {
  const chunks = new Map();
  for (const column of asList(fields[1]).map(asStruct)) {
    const meta = asStruct(column[3]);
    const data = asNumber(meta[9]);
    const size = asNumber(meta[7]);
    const statistics = asStruct(meta[12]);
    const name = asList(meta[3]).map((part) => text(asBytes(part)));
    chunks.set(name.join("."), {
      codec: asNumber(meta[4]),
      start: meta[11] > 0 ? Math.min(asNumber(meta[11]), data) : data,
      size,
      plain: Math.max(asNumber(meta[6]), size),
      offsets: spanOf(column[4], column[5]),
      extremes: spanOf(column[6], column[7]),
      least: asBytes(statistics[6] ?? statistics[2]),
      greatest: asBytes(statistics[5] ?? statistics[1]),
    });
  }
  return { rows: asNumber(fields[3]), chunks };
}

/** @param {unknown} at @param {unknown} size */
function spanOf(at, size) {
  return at === undefined ? undefined : { at: asNumber(at), size: asNumber(size) };
}
