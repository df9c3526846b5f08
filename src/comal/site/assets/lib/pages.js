/**
 * Parquet pages of flat columns: headers, levels and encodings, to plain values.
 */

import { viewOf } from "./bytes.js";
import { decompress } from "./codecs.js";
import { ArchiveError, DamagedError } from "./errors.js";
import { LIMITS } from "./limits.js";
import { ThriftReader, asNumber, asStruct } from "./thrift.js";

/** @typedef {bigint | number | Uint8Array | null} Value */

/**
 * What is needed to decode a column's pages.
 * @typedef {object} ColumnKind
 * @property {number} type physical type of the format
 * @property {number} codec
 * @property {boolean} optional
 * @property {string} where
 */

const DATA = 0;
const DICTIONARY = 2;
const DATA_V2 = 3;

/**
 * Values of all pages that stand one after another in `bytes`, and the dictionary that was met.
 * @param {ColumnKind} kind
 * @param {Uint8Array} bytes
 * @param {Value[]} [dictionary]
 */
export async function decodePages(kind, bytes, dictionary) {
  /** @type {Value[]} */
  const values = [];
  for (let at = 0; at < bytes.length;) {
    const reader = new ThriftReader(bytes, at);
    const header = reader.struct();
    const [size, packed] = [asNumber(header[2]), asNumber(header[3])];
    if (reader.at + packed > bytes.length || size > LIMITS.chunk) {
      throw new DamagedError("a page points outside of its column", { where: kind.where });
    }
    const body = bytes.subarray(reader.at, reader.at + packed);
    at = reader.at + packed;
    if (header[1] === DICTIONARY) {
      const plain = await decompress(kind.codec, body, size, kind.where);
      dictionary = decodePlain(kind, plain, asNumber(asStruct(header[7])[1]));
    } else if (header[1] === DATA) {
      const plain = await decompress(kind.codec, body, size, kind.where);
      append(values, dataPage(kind, asStruct(header[5]), plain, dictionary));
    } else if (header[1] === DATA_V2) {
      append(values, await dataPageV2(kind, asStruct(header[8]), body, size, dictionary));
    }
  }
  return { values, dictionary };
}

/** @param {Value[]} values @param {Value[]} more */
function append(values, more) {
  for (const value of more) values.push(value);
}

/** @param {ColumnKind} kind @param {import("./thrift.js").Struct} header @param {Uint8Array} bytes @param {Value[]=} dictionary */
function dataPage(kind, header, bytes, dictionary) {
  let at = 0;
  let levels;
  if (kind.optional) {
    const length = viewOf(bytes).getUint32(0, true);
    levels = hybrid(bytes.subarray(4, 4 + length), 1, asNumber(header[1]));
    at = 4 + length;
  }
  return spread(
    kind,
    asNumber(header[2]),
    bytes.subarray(at),
    asNumber(header[1]),
    levels,
    dictionary,
  );
}

/**
 * Levels stand before the codec's part here, without their length.
 * @param {ColumnKind} kind @param {import("./thrift.js").Struct} header @param {Uint8Array} bytes @param {number} size
 * @param {Value[]=} dictionary
 */
async function dataPageV2(kind, header, bytes, size, dictionary) {
  const [count, repeated] = [asNumber(header[1]), asNumber(header[6] ?? 0)];
  const before = repeated + asNumber(header[5] ?? 0);
  if (before > Math.min(size, bytes.length))
    throw new DamagedError("a page is too short", { where: kind.where });
  const levels = kind.optional ? hybrid(bytes.subarray(repeated, before), 1, count) : undefined;
  const body = bytes.subarray(before);
  const codec = header[7] === false ? 0 : kind.codec;
  const plain = await decompress(codec, body, size - before, kind.where);
  return spread(kind, asNumber(header[4]), plain, count, levels, dictionary);
}

/**
 * Values with their nulls.
 * @param {ColumnKind} kind @param {number} encoding @param {Uint8Array} bytes @param {number} count
 * @param {Uint32Array=} levels @param {Value[]=} dictionary
 */
function spread(kind, encoding, bytes, count, levels, dictionary) {
  if (!(count >= 0 && count <= 20_000_000)) throw new DamagedError("too many values in a page");
  const present = levels ? levels.reduce((sum, level) => sum + level, 0) : count;
  const values = decodeValues(kind, encoding, bytes, present, dictionary);
  if (!levels) return values;
  let next = 0;
  return Array.from(levels, (level) => (level ? values[next++] : null));
}

/**
 * @param {ColumnKind} kind @param {number} encoding @param {Uint8Array} bytes @param {number} count
 * @param {Value[]=} dictionary
 * @returns {Value[]}
 */
function decodeValues(kind, encoding, bytes, count, dictionary) {
  if (count === 0) return [];
  switch (encoding) {
    case 0:
      return decodePlain(kind, bytes, count);
    case 2:
    case 8: {
      const keys = hybrid(bytes.subarray(1), bytes[0], count);
      if (!dictionary || keys.some((key) => key >= dictionary.length)) {
        throw new DamagedError("a value is not in its dictionary", { where: kind.where });
      }
      return Array.from(keys, (key) => dictionary[key]);
    }
    case 5:
      return deltas(bytes, count).values;
    case 6: {
      const { values, at } = deltas(bytes, count);
      return slices(bytes, at, values.map(Number));
    }
    default:
      throw new ArchiveError(`Parquet encoding ${encoding} is not supported`, {
        where: kind.where,
      });
  }
}

/** @param {ColumnKind} kind @param {Uint8Array} bytes @param {number} count @returns {Value[]} */
function decodePlain(kind, bytes, count) {
  const view = viewOf(bytes);
  const number = numbers(view, kind.type);
  const width = kind.type === 1 || kind.type === 4 ? 4 : 8;
  if (number) {
    if (count * width > bytes.length)
      throw new DamagedError("a page is too short", { where: kind.where });
    return Array.from({ length: count }, (_, i) => number(i * width));
  }
  if (kind.type !== 6) throw new ArchiveError(`Parquet type ${kind.type} is not supported`);
  const values = [];
  for (let at = 0, i = 0; i < count; i++) {
    const length = view.getUint32(at, true);
    if (at + 4 + length > bytes.length)
      throw new DamagedError("a page is too short", { where: kind.where });
    values.push(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return values;
}

/**
 * How numbers of a physical type are read; undefined for other types.
 * @param {DataView} view @param {number} type
 * @returns {((at: number) => Value) | undefined}
 */
function numbers(view, type) {
  switch (type) {
    case 1:
      return (at) => view.getInt32(at, true);
    case 2:
      return (at) => view.getBigInt64(at, true);
    case 4:
      return (at) => view.getFloat32(at, true);
    case 5:
      return (at) => view.getFloat64(at, true);
    default:
      return undefined;
  }
}

/** @param {Uint8Array} bytes @param {number} at @param {number[]} sizes */
function slices(bytes, at, sizes) {
  return sizes.map((size) => {
    if (size < 0 || at + size > bytes.length) throw new DamagedError("a page is too short");
    at += size;
    return bytes.subarray(at - size, at);
  });
}

/**
 * Runs and bit-packed groups of small integers (the RLE/bit-packing hybrid).
 * @param {Uint8Array} bytes @param {number} width @param {number} count
 */
function hybrid(bytes, width, count) {
  if (!(width <= 32) || !(count >= 0 && count <= 20_000_000)) {
    throw new DamagedError("the levels of a page are broken");
  }
  const values = new Uint32Array(count);
  const reader = new ThriftReader(bytes);
  for (let filled = 0; filled < count;) {
    const head = reader.varint();
    if (head % 2 === 0) {
      let value = 0;
      for (let i = 0; i < Math.ceil(width / 8); i++) value += reader.byte() * 2 ** (8 * i);
      const run = Math.min(head / 2, count - filled);
      if (run === 0) throw new DamagedError("a run holds no values");
      values.fill(value, filled, filled + run);
      filled += run;
    } else {
      const total = Math.min(((head - 1) / 2) * 8, count - filled);
      const start = reader.at * 8;
      for (let i = 0; i < total; i++) values[filled + i] = bits(bytes, start + i * width, width);
      reader.at += ((head - 1) / 2) * width;
      filled += total;
      if (total === 0) throw new DamagedError("a group holds no values");
    }
  }
  return values;
}

/** @param {Uint8Array} bytes @param {number} from @param {number} width at most 53 */
function bits(bytes, from, width) {
  let [value, scale, left, at] = [0, 1, width, from];
  while (left > 0) {
    const take = Math.min(left, 8 - (at & 7));
    value += (((bytes[at >> 3] ?? 0) >> (at & 7)) & ((1 << take) - 1)) * scale;
    scale *= 2 ** take;
    left -= take;
    at += take;
  }
  return value;
}

/**
 * DELTA_BINARY_PACKED: integers as differences.
 * @param {Uint8Array} bytes @param {number} count
 */
function deltas(bytes, count) {
  let at = 0;
  const varint = () => {
    let [value, shift] = [0n, 0n];
    for (;;) {
      if (at >= bytes.length || shift > 63n) throw new DamagedError("a page is too short");
      const byte = bytes[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
      shift += 7n;
    }
  };
  const zigzag = () => {
    const value = varint();
    return (value >> 1n) ^ -(value & 1n);
  };
  const block = Number(varint());
  const minis = Number(varint());
  const total = Number(varint());
  if (total < count || total > 20_000_000 || minis < 1 || minis > 1024 || block < minis) {
    throw new DamagedError("the differences of a page are broken");
  }
  let last = zigzag();
  const values = [last];
  while (values.length < total) {
    const least = zigzag();
    const widths = bytes.subarray(at, at + minis);
    at += minis;
    for (const width of widths) {
      if (values.length >= total) break;
      if (width > 64) throw new DamagedError("the differences of a page are broken");
      const each = block / minis;
      for (let i = 0; i < each && values.length < total; i++) {
        last = BigInt.asIntN(64, last + least + wideBits(bytes, at * 8 + i * width, width));
        values.push(last);
      }
      at += (each * width) / 8;
    }
    if (widths.length < minis) throw new DamagedError("a page is too short");
  }
  return { values, at };
}

/** @param {Uint8Array} bytes @param {number} from @param {number} width */
function wideBits(bytes, from, width) {
  if (width <= 32) return BigInt(bits(bytes, from, width));
  return BigInt(bits(bytes, from, 32)) | (BigInt(bits(bytes, from + 32, width - 32)) << 32n);
}
