/**
 * Checksums and decompression with bounded output.
 */

import { DamagedError } from "./errors.js";

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
  let crc = value;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/**
 * CRC-32 as ZIP and gzip use it.
 * @param {Uint8Array} bytes
 */
export function crc32(bytes) {
  let crc = 0xffffffff;
  for (let at = 0; at < bytes.length; at++) {
    crc = CRC_TABLE[(crc ^ bytes[at]) & 0xff] ^ (crc >>> 8);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** @param {Uint8Array} bytes */
export function viewOf(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * All of a stream, or an error once it is longer than `limit`; no more than that is ever held.
 * @param {ReadableStream<Uint8Array>} stream
 * @param {number} limit
 * @param {string} where
 */
export async function collect(stream, limit, where) {
  const reader = stream.getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let total = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    total += value.length;
    if (total > limit) {
      reader.cancel().catch(() => {});
      throw new DamagedError(`more than ${limit} bytes`, { where });
    }
    parts.push(value);
  }
  if (parts.length === 1) return parts[0];
  const joined = new Uint8Array(total);
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/**
 * Decompress, at most to `limit` bytes.
 * @param {Uint8Array} bytes
 * @param {CompressionFormat} format `gzip`, `deflate` (zlib) or `deflate-raw`
 * @param {number} limit
 * @param {string} where
 */
export async function inflate(bytes, format, limit, where) {
  const packed = new Blob([/** @type {BlobPart} */ (bytes)]).stream();
  const stream = packed.pipeThrough(new DecompressionStream(format));
  try {
    return await collect(/** @type {ReadableStream<Uint8Array>} */ (stream), limit, where);
  } catch (error) {
    if (error instanceof DamagedError) throw error;
    throw new DamagedError(`cannot be decompressed as ${format}`, { where });
  }
}

const UTF8 = new TextDecoder("utf-8");

/**
 * UTF-8 text, a byte order mark left out; bytes that are none show as replacement characters.
 * @param {Uint8Array} bytes
 */
export function text(bytes) {
  return UTF8.decode(bytes);
}
