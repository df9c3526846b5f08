/**
 * ZIP archives over byte ranges: the end record, the central directory as packed arrays, entries.
 *
 * The central directory is authoritative (APPNOTE 4.3.12). Local headers are read only for the
 * length of what stands before the payload.
 */

import { crc32, inflate, viewOf } from "./bytes.js";
import { ArchiveError, DamagedError } from "./errors.js";
import { LIMITS } from "./limits.js";

const END = 0x06054b50;
const END64 = 0x06064b50;
const LOCATOR64 = 0x07064b50;
const CENTRAL = 0x02014b50;
const LOCAL = 0x04034b50;
const END_SIZE = 22;
const LOCATOR64_SIZE = 20;
const CENTRAL_SIZE = 46;
const LOCAL_SIZE = 30;
const MAX_COMMENT = 65_535;
const TAIL = 64 * 1024;
const NO_32 = 0xffffffff;
const NO_16 = 0xffff;

/** @typedef {import("./ranges.js").RemoteFile} RemoteFile */

/**
 * Where the directory is.
 * @typedef {object} End
 * @property {number} count
 * @property {number} start
 * @property {number} size
 * @property {number} shift bytes before the archive that its offsets do not count
 * @property {Uint8Array} comment
 */

/**
 * Find the end record that counts: its comment ends with the object, and its directory begins
 * with the signature of one. Others are text in a comment, or left by an earlier update.
 * @param {RemoteFile} file
 * @returns {Promise<End>}
 */
export async function findEnd(file) {
  let tail = await file.tail(TAIL);
  let records = endRecords(tail);
  if (!records.some((record) => record.exact) && tail.start > 0) {
    tail = await file.tail(MAX_COMMENT + END_SIZE + LOCATOR64_SIZE);
    records = endRecords(tail);
  }
  const exact = records.filter((record) => record.exact);
  /** @type {End | undefined} */
  let empty;
  for (const record of exact.length ? exact : records) {
    const end = await placed(record.at, tail, file);
    if (!end) continue;
    if (end.count > 0) return end;
    empty ??= end;
  }
  if (empty) return empty;
  throw new DamagedError(records.length ? "no valid end record" : "not a ZIP archive", {
    where: file.url,
    hint: "the file is not a ZIP archive, or its end was cut off",
  });
}

/** @param {{start: number, bytes: Uint8Array}} tail */
function endRecords({ bytes }) {
  const view = viewOf(bytes);
  const lowest = Math.max(0, bytes.length - END_SIZE - MAX_COMMENT);
  const found = [];
  for (let at = bytes.length - END_SIZE; at >= lowest && found.length < 16; at--) {
    if (bytes[at] !== 0x50 || view.getUint32(at, true) !== END) continue;
    found.push({ at, exact: at + END_SIZE + view.getUint16(at + 20, true) === bytes.length });
  }
  return found;
}

/**
 * @param {number} at place of the record in the tail
 * @param {{start: number, bytes: Uint8Array}} tail
 * @param {RemoteFile} file
 * @returns {Promise<End | undefined>}
 */
async function placed(at, tail, file) {
  const view = viewOf(tail.bytes);
  let count = view.getUint16(at + 10, true);
  let size = view.getUint32(at + 12, true);
  let start = view.getUint32(at + 16, true);
  let stop = tail.start + at;
  const comment = tail.bytes.slice(at + END_SIZE, at + END_SIZE + view.getUint16(at + 20, true));
  const locator = at - LOCATOR64_SIZE;
  if (locator >= 0 && view.getUint32(locator, true) === LOCATOR64) {
    const wide = viewOf(await file.read(number64(view, locator + 8), 56));
    if (wide.getUint32(0, true) !== END64) return undefined;
    count = number64(wide, 32);
    size = number64(wide, 40);
    start = number64(wide, 48);
    stop = number64(view, locator + 8);
  }
  if (size > LIMITS.directory) {
    throw new DamagedError("the directory is over the limit", { where: file.url });
  }
  if (count === 0) return { count, start, size: 0, shift: 0, comment };
  for (const begin of [start, stop - size]) {
    if (begin < 0 || begin + size > stop || size < CENTRAL_SIZE) continue;
    const mark = viewOf(await file.read(begin, 4)).getUint32(0, true);
    if (mark === CENTRAL) return { count, start: begin, size, shift: begin - start, comment };
  }
  return undefined;
}

/** @param {DataView} view @param {number} at */
function number64(view, at) {
  const value = view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
  if (!Number.isSafeInteger(value)) throw new DamagedError("a length is larger than any file");
  return value;
}

/** The entries of an archive in packed arrays, one element per entry, in directory order. */
export class Directory {
  /** @param {Uint8Array} bytes the central directory @param {End} end @param {string} where */
  constructor(bytes, end, where) {
    const most = Math.min(end.count, Math.floor(bytes.length / CENTRAL_SIZE));
    this.bytes = bytes;
    this.comment = end.comment;
    this.flags = new Uint16Array(most);
    this.method = new Uint16Array(most);
    /** DOS time in the low half, DOS date in the high half. */
    this.modified = new Uint32Array(most);
    this.crc = new Uint32Array(most);
    this.packed = new Float64Array(most);
    this.size = new Float64Array(most);
    this.offset = new Float64Array(most);
    /** Where the record of each entry stands in `bytes`. */
    this.record = new Uint32Array(most);
    this.length = this.fill(end, most, where);
    this.stops = this.nextStarts(end.start);
  }

  /** @param {End} end @param {number} most @param {string} where */
  fill(end, most, where) {
    const view = viewOf(this.bytes);
    let at = 0;
    for (let row = 0; row < most; row++) {
      if (at + CENTRAL_SIZE > this.bytes.length || view.getUint32(at, true) !== CENTRAL) {
        throw new DamagedError("the directory is cut short", { where });
      }
      this.record[row] = at;
      this.flags[row] = view.getUint16(at + 8, true);
      this.method[row] = view.getUint16(at + 10, true);
      this.modified[row] = view.getUint32(at + 12, true);
      this.crc[row] = view.getUint32(at + 16, true);
      this.packed[row] = view.getUint32(at + 20, true);
      this.size[row] = view.getUint32(at + 24, true);
      this.offset[row] = view.getUint32(at + 42, true);
      const [name, extra, comment] = lengths(view, at);
      if (at + CENTRAL_SIZE + name + extra + comment > this.bytes.length) {
        throw new DamagedError("the directory is cut short", { where });
      }
      this.widen(view, row, at + CENTRAL_SIZE + name, extra);
      this.offset[row] += end.shift;
      at += CENTRAL_SIZE + name + extra + comment;
    }
    return most;
  }

  /** Sizes and the offset from the ZIP64 field, in the order in which they are missing. */
  /** @param {DataView} view @param {number} row @param {number} at @param {number} length */
  widen(view, row, at, length) {
    const wanted = [this.size, this.packed, this.offset].filter((column) => column[row] === NO_32);
    const stop = at + length;
    while (wanted.length && at + 4 <= stop) {
      const [id, size] = [view.getUint16(at, true), view.getUint16(at + 2, true)];
      if (id === 1) {
        wanted.forEach((column, number) => {
          if ((number + 1) * 8 <= size && at + 12 + number * 8 <= stop) {
            column[row] = number64(view, at + 4 + number * 8);
          }
        });
        return;
      }
      at += 4 + size;
    }
  }

  /** For each entry where the next one, or the directory, begins. @param {number} directory */
  nextStarts(directory) {
    const starts = Float64Array.from(new Set(this.offset)).sort();
    const stops = new Float64Array(this.length);
    for (let row = 0; row < this.length; row++) {
      const after = lowerBound(starts.length, (i) => starts[i] <= this.offset[row]);
      stops[row] = after < starts.length ? Math.min(starts[after], directory) : directory;
    }
    return stops;
  }

  /** @param {number} row */
  nameBytes(row) {
    const at = this.record[row] + CENTRAL_SIZE;
    return this.bytes.subarray(at, at + lengths(viewOf(this.bytes), this.record[row])[0]);
  }

  /** @param {number} row */
  commentBytes(row) {
    const at = this.record[row];
    const [name, extra, comment] = lengths(viewOf(this.bytes), at);
    const start = at + CENTRAL_SIZE + name + extra;
    return this.bytes.subarray(start, start + comment);
  }

  /**
   * When the entry was last changed: the UT field (0x5455) if there is one, else the DOS time
   * taken as UTC; undefined when neither says.
   * @param {number} row
   * @returns {Date | undefined}
   */
  modifiedAt(row) {
    const view = viewOf(this.bytes);
    const [name, extra] = lengths(view, this.record[row]);
    const stop = this.record[row] + CENTRAL_SIZE + name + extra;
    for (let at = stop - extra; at + 9 <= stop; at += 4 + view.getUint16(at + 2, true)) {
      const isTime = view.getUint16(at, true) === 0x5455 && view.getUint16(at + 2, true) >= 5;
      if (isTime && view.getUint8(at + 4) & 1) return new Date(view.getInt32(at + 5, true) * 1000);
    }
    return dosTime(this.modified[row]);
  }
}

/** @param {DataView} view @param {number} at */
function lengths(view, at) {
  return [
    view.getUint16(at + 28, true),
    view.getUint16(at + 30, true),
    view.getUint16(at + 32, true),
  ];
}

/** @param {number} stamp */
function dosTime(stamp) {
  const [date, time] = [stamp >>> 16, stamp & NO_16];
  const [month, day] = [(date >> 5) & 15, date & 31];
  if (month < 1 || month > 12 || day < 1) return undefined;
  const hours = [time >> 11, (time >> 5) & 63, (time & 31) * 2];
  return new Date(Date.UTC(1980 + (date >> 9), month - 1, day, ...hours));
}

/**
 * The first of `count` places at which `before` does not hold; it holds at all places up to there.
 * @param {number} count
 * @param {(place: number) => boolean} before
 */
export function lowerBound(count, before) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (before(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {RemoteFile} file */
export async function readDirectory(file) {
  const end = await findEnd(file);
  // A copy: the blocks it came in may be dropped.
  const bytes = end.size ? (await file.read(end.start, end.size)).slice() : new Uint8Array(0);
  return new Directory(bytes, end, file.url);
}

/**
 * The payload of an entry as it is stored.
 * @param {RemoteFile} file
 * @param {Directory} directory
 * @param {number} row
 */
export async function readPayload(file, directory, row) {
  const where = file.url;
  const [offset, packed] = [directory.offset[row], directory.packed[row]];
  if (directory.flags[row] & 1) throw new DamagedError("the entry is encrypted", { where });
  if (packed > LIMITS.tile || directory.size[row] > LIMITS.tile) {
    throw new DamagedError("the entry is over the limit", { where });
  }
  const name = directory.nameBytes(row).length;
  const room = directory.stops[row] - offset;
  const guess = Math.max(LOCAL_SIZE, Math.min(room, LOCAL_SIZE + name + packed + 1024));
  const head = await file.read(offset, guess);
  const view = viewOf(head);
  if (view.getUint32(0, true) !== LOCAL) {
    throw new DamagedError("there is no entry where the directory says", { where });
  }
  const skip = LOCAL_SIZE + view.getUint16(26, true) + view.getUint16(28, true);
  if (skip + packed <= head.length) return head.subarray(skip, skip + packed);
  return file.read(offset + skip, packed);
}

/**
 * The content of an entry, its length and checksum compared.
 * @param {RemoteFile} file
 * @param {Directory} directory
 * @param {number} row
 */
export async function readEntry(file, directory, row) {
  const where = file.url;
  const payload = await readPayload(file, directory, row);
  const method = directory.method[row];
  if (method !== 0 && method !== 8) {
    throw new ArchiveError(`compression method ${method} is not supported`, { where });
  }
  const size = directory.size[row];
  const bytes = method === 0 ? payload : await inflate(payload, "deflate-raw", size, where);
  if (bytes.length !== size || crc32(bytes) !== directory.crc[row]) {
    throw new DamagedError("the entry is damaged: it does not match its checksum", {
      where,
    });
  }
  return bytes;
}
