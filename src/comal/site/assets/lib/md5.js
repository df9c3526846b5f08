/**
 * MD5 (RFC 1321), for the `{h}` of Tapalcatl addresses; Web Crypto has none.
 */

const SHIFTS = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];
const SINES = Uint32Array.from({ length: 64 }, (_, i) => Math.abs(Math.sin(i + 1)) * 2 ** 32);

/**
 * The digest of an ASCII text as hex digits.
 * @param {string} text
 */
export function md5(text) {
  const blocks = new Uint8Array(((text.length + 8) >> 6) * 64 + 64);
  for (let i = 0; i < text.length; i++) blocks[i] = text.charCodeAt(i);
  blocks[text.length] = 0x80;
  const view = new DataView(blocks.buffer);
  view.setUint32(blocks.length - 8, text.length * 8, true);
  const state = Uint32Array.of(0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476);
  for (let at = 0; at < blocks.length; at += 64) mix(state, view, at);
  const digest = new DataView(new ArrayBuffer(16));
  state.forEach((word, i) => digest.setUint32(i * 4, word, true));
  return Array.from({ length: 16 }, (_, i) =>
    digest.getUint8(i).toString(16).padStart(2, "0"),
  ).join("");
}

/** @param {Uint32Array} state @param {DataView} view @param {number} at */
function mix(state, view, at) {
  let [a, b, c, d] = state;
  for (let i = 0; i < 64; i++) {
    const round = i >> 4;
    const [f, word] = [
      [(b & c) | (~b & d), i],
      [(d & b) | (~d & c), (5 * i + 1) % 16],
      [b ^ c ^ d, (3 * i + 5) % 16],
      [c ^ (b | ~d), (7 * i) % 16],
    ][round];
    const sum = (a + f + SINES[i] + view.getUint32(at + word * 4, true)) >>> 0;
    const shift = SHIFTS[round * 4 + (i % 4)];
    [a, d, c, b] = [d, c, b, (b + ((sum << shift) | (sum >>> (32 - shift)))) >>> 0];
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}
