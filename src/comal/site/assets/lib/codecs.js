/**
 * The codecs of Parquet pages.
 */

import { inflate } from "./bytes.js";
import { decompress as unpackZstd } from "../../vendor/fzstd/fzstd.js";
import { ArchiveError, DamagedError } from "./errors.js";

/**
 * Undo a page's codec. The page header says how long the result is.
 * @param {number} codec CompressionCodec of the format
 * @param {Uint8Array} bytes
 * @param {number} size
 * @param {string} where
 * @returns {Promise<Uint8Array>}
 */
export async function decompress(codec, bytes, size, where) {
  const result = await CODECS[codec]?.(bytes, size, where);
  if (!result) throw new ArchiveError(`Parquet codec ${codec} is not supported`, { where });
  if (result.length !== size) throw new DamagedError("a page has the wrong length", { where });
  return result;
}

/** @type {Record<number, (bytes: Uint8Array, size: number, where: string) => Promise<Uint8Array>>} */
const CODECS = {
  0: async (bytes) => bytes,
  1: async (bytes, size) => unsnappy(bytes, size),
  2: async (bytes, size, where) => inflate(bytes, "gzip", size, where),
  6: unzstd,
};

/** @param {Uint8Array} bytes @param {number} size @param {string} where */
async function unzstd(bytes, size, where) {
  try {
    return unpackZstd(bytes, new Uint8Array(size));
  } catch {
    throw new DamagedError("a page cannot be decompressed as zstd", { where });
  }
}

/**
 * Snappy's raw format: literals, and copies of what came before.
 * @param {Uint8Array} bytes
 * @param {number} size
 */
export function unsnappy(bytes, size) {
  const output = new Uint8Array(size);
  let [at, to] = [0, 0];
  while (bytes[at++] >= 0x80);
  while (at < bytes.length) {
    const tag = bytes[at++];
    if ((tag & 3) === 0) {
      let length = tag >> 2;
      if (length >= 60) {
        const width = length - 59;
        length = little(bytes, at, width);
        at += width;
      }
      length += 1;
      if (to + length > size || at + length > bytes.length) throw overrun();
      output.set(bytes.subarray(at, at + length), to);
      at += length;
      to += length;
      continue;
    }
    const width = [0, 1, 2, 4][tag & 3];
    const short = width === 1;
    const length = short ? ((tag >> 2) & 7) + 4 : (tag >> 2) + 1;
    const distance = little(bytes, at, width) + (short ? (tag >> 5) << 8 : 0);
    at += width;
    if (distance === 0 || distance > to || to + length > size) throw overrun();
    if (distance >= length) output.copyWithin(to, to - distance, to - distance + length);
    else for (let i = 0; i < length; i++) output[to + i] = output[to - distance + i];
    to += length;
  }
  if (to !== size) throw overrun();
  return output;
}

/** @param {Uint8Array} bytes @param {number} at @param {number} width */
function little(bytes, at, width) {
  let value = 0;
  for (let i = width - 1; i >= 0; i--) value = value * 256 + (bytes[at + i] ?? 0);
  return value;
}

function overrun() {
  return new DamagedError("a page cannot be decompressed as Snappy");
}
