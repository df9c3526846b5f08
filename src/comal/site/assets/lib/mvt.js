/**
 * Just enough of Mapbox vector tiles: which layers there are, and of which kind.
 */

import { text } from "./bytes.js";
import { DamagedError } from "./errors.js";
import { ThriftReader } from "./thrift.js";

/**
 * The layers of a tile.
 * @param {Uint8Array} bytes
 * @returns {{id: string, fields: Record<string, string>}[]}
 */
export function layersOf(bytes) {
  /** @type {{id: string, fields: Record<string, string>}[]} */
  const layers = [];
  eachField(bytes, (field, layer) => {
    if (field !== 3 || !layer) return;
    let id = "";
    /** @type {Record<string, string>} */
    const fields = {};
    eachField(layer, (inner, content) => {
      if (inner === 1 && content) id = text(content);
      if (inner === 3 && content) fields[text(content)] = "";
    });
    if (id) layers.push({ id, fields });
  });
  return layers;
}

/**
 * Every field of a protocol buffer, with its bytes where it has some.
 * @param {Uint8Array} bytes
 * @param {(field: number, content: Uint8Array | undefined) => void} visit
 */
function eachField(bytes, visit) {
  // Varints are the same in both.
  const reader = new ThriftReader(bytes);
  while (reader.at < bytes.length) {
    const key = reader.varint();
    const [field, wire] = [Math.floor(key / 8), key % 8];
    if (wire === 0) {
      reader.varint();
      visit(field, undefined);
      continue;
    }
    const length = wire === 2 ? reader.varint() : wire === 1 ? 8 : wire === 5 ? 4 : NaN;
    const { at } = reader;
    if (!(at + length <= bytes.length)) throw new DamagedError("a vector tile is damaged");
    visit(field, wire === 2 ? bytes.subarray(at, at + length) : undefined);
    reader.at += length;
  }
}
