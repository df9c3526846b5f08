/**
 * QUADBIN cell ids: a tile's zoom, column and row in one 64-bit integer.
 */

const HEADER = 0x4800000000000000n;
const ONES = (1n << 52n) - 1n;

/** @param {number} z @param {number} x @param {number} y */
export function cellOf(z, x, y) {
  let morton = 0n;
  for (let bit = z - 1; bit >= 0; bit--) {
    morton = (morton << 2n) | BigInt(((y >> bit) & 1) * 2 + ((x >> bit) & 1));
  }
  const zoom = BigInt(z);
  return HEADER | (zoom << 52n) | (morton << (52n - 2n * zoom)) | (ONES >> (2n * zoom));
}

/** @param {bigint} cell @returns {[z: number, x: number, y: number]} */
export function tileOf(cell) {
  const z = Number((cell >> 52n) & 31n);
  const morton = (cell & ONES) >> (52n - 2n * BigInt(z));
  let [x, y] = [0, 0];
  for (let bit = 0; bit < z; bit++) {
    const pair = Number((morton >> BigInt(2 * bit)) & 3n);
    x |= (pair & 1) << bit;
    y |= (pair >> 1) << bit;
  }
  return [z, x, y];
}

/** The smallest and the largest id of a zoom. @param {number} z @returns {[bigint, bigint]} */
export function zoomRange(z) {
  const least = cellOf(z, 0, 0);
  return [least, cellOf(z, 2 ** z - 1, 2 ** z - 1)];
}

/**
 * Where a point is at a zoom, in tiles and fractions of them.
 * @param {number} lon
 * @param {number} lat
 * @param {number} z
 * @returns {[x: number, y: number]}
 */
export function tilePosition(lon, lat, z) {
  const sine = Math.sin(
    (Math.min(85.0511287798066, Math.max(-85.0511287798066, lat)) * Math.PI) / 180,
  );
  const side = 2 ** z;
  const x = (lon / 360 + 0.5) * side;
  const y = (0.5 - Math.atanh(sine) / (2 * Math.PI)) * side;
  return [x, Math.min(side - 1e-9, Math.max(0, y))];
}
