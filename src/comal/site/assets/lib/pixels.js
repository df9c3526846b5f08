/**
 * RaQuet tile blobs to pixels: framings of gzip, types, layouts.
 */

import { inflate, viewOf } from "./bytes.js";
import { DamagedError } from "./errors.js";

/** @typedef {Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array} Pixels */

/** @type {Record<string, {size: number, make: (buffer: ArrayBuffer) => Pixels}>} */
export const TYPES = {
  uint8: { size: 1, make: (buffer) => new Uint8Array(buffer) },
  int8: { size: 1, make: (buffer) => new Int8Array(buffer) },
  uint16: { size: 2, make: (buffer) => new Uint16Array(buffer) },
  int16: { size: 2, make: (buffer) => new Int16Array(buffer) },
  uint32: { size: 4, make: (buffer) => new Uint32Array(buffer) },
  int32: { size: 4, make: (buffer) => new Int32Array(buffer) },
  uint64: { size: 8, make: (buffer) => new BigUint64Array(buffer) },
  int64: { size: 8, make: (buffer) => new BigInt64Array(buffer) },
  float16: { size: 2, make: (buffer) => Float32Array.from(new Uint16Array(buffer), half) },
  float32: { size: 4, make: (buffer) => new Float32Array(buffer) },
  float64: { size: 8, make: (buffer) => new Float64Array(buffer) },
};

/** The value of a 16-bit float. @param {number} bits */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

/**
 * Undo `"compression": "gzip"`: gzip members, zlib streams, and ten bytes of a gzip header before
 * a zlib stream all exist under that name.
 * @param {Uint8Array} blob
 * @param {number} size what comes out
 * @param {string} where
 */
export async function unpack(blob, size, where) {
  if (blob[0] === 0x1f && blob[1] === 0x8b) {
    const hybrid = blob[10] === 0x78 && (blob[10] * 256 + blob[11]) % 31 === 0;
    if (!hybrid) return inflate(blob, "gzip", size, where);
    return inflate(blob, "gzip", size, where).catch(() =>
      inflate(blob.subarray(10), "deflate", size, where),
    );
  }
  if ((blob[0] & 15) === 8 && (blob[0] * 256 + blob[1]) % 31 === 0) {
    return inflate(blob, "deflate", size, where);
  }
  throw new DamagedError("a tile is not gzip, although the metadata says so", { where });
}

/**
 * A band of a tile.
 * @param {Uint8Array} blob
 * @param {string} type
 * @param {number} count pixels
 * @param {string | null} compression
 * @param {string} where
 */
export async function decodeBand(blob, type, count, compression, where) {
  const { size, make } = TYPES[type];
  const bytes = compression === "gzip" ? await unpack(blob, count * size, where) : blob;
  if (bytes.length !== count * size) throw wrongLength(bytes.length, count * size, where);
  return make(aligned(bytes));
}

/**
 * All bands of an interleaved tile.
 * @param {Uint8Array} blob
 * @param {string} type
 * @param {number} bands
 * @param {number} count pixels
 * @param {string | null} compression
 * @param {string} where
 * @returns {Promise<Pixels[]>}
 */
export async function decodeInterleaved(blob, type, bands, count, compression, where) {
  if (compression === "jpeg" || compression === "webp")
    return decodeImage(blob, bands, count, compression, where);
  const mixed = await decodeBand(blob, type, count * bands, compression, where);
  return Array.from({ length: bands }, (_, band) => {
    const { size, make } = TYPES[type === "float16" ? "float32" : type];
    const pixels = make(new ArrayBuffer(count * size));
    for (let i = 0; i < count; i++) pixels[i] = mixed[i * bands + band];
    return pixels;
  });
}

/**
 * @param {Uint8Array} blob @param {number} bands @param {number} count @param {string} format @param {string} where
 */
async function decodeImage(blob, bands, count, format, where) {
  const file = new Blob([/** @type {BlobPart} */ (blob)], { type: `image/${format}` });
  const image = await createImageBitmap(file, {
    colorSpaceConversion: "none",
    premultiplyAlpha: "none",
  }).catch(() => {
    throw new DamagedError(`a tile is not ${format}, although the metadata says so`, { where });
  });
  const { width, height } = image;
  if (width * height !== count) throw wrongLength(width * height, count, where);
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.drawImage(image, 0, 0);
  image.close();
  const { data } = context.getImageData(0, 0, width, height);
  return Array.from({ length: bands }, (_, band) => {
    const pixels = new Uint8Array(count);
    for (let i = 0; i < count; i++) pixels[i] = data[i * 4 + band];
    return pixels;
  });
}

/** @param {Uint8Array} bytes */
function aligned(bytes) {
  const { byteOffset, byteLength } = viewOf(bytes);
  const buffer = /** @type {ArrayBuffer} */ (bytes.buffer);
  return buffer.slice(byteOffset, byteOffset + byteLength);
}

/** @param {number} found @param {number} expected @param {string} where */
function wrongLength(found, expected, where) {
  return new DamagedError(`a tile holds ${found} instead of ${expected}`, { where });
}
