/**
 * Thrift's compact protocol, as Parquet uses it: structs become objects with fields by number.
 */

import { viewOf } from "./bytes.js";
import { DamagedError } from "./errors.js";

const DEPTH = 32;
const ITEMS = 16_000_000;

/** @typedef {{[field: number]: any}} Struct */

/** Reads values one after another. */
export class ThriftReader {
  /** @param {Uint8Array} bytes @param {number} [at] */
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.view = viewOf(bytes);
    this.at = at;
    this.items = 0;
  }

  byte() {
    if (this.at >= this.bytes.length) throw new DamagedError("a value is cut short");
    return this.bytes[this.at++];
  }

  /** An unsigned varint; beyond 2^53 it is not exact, and no length is as large. */
  varint() {
    let [value, scale] = [0, 1];
    for (let count = 0; count < 10; count++) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw new DamagedError("an integer is too long");
  }

  integer() {
    const value = this.varint();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  binary() {
    const length = this.varint();
    if (this.at + length > this.bytes.length) throw new DamagedError("a Thrift text is cut short");
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** @param {number} [depth] @returns {Struct} */
  struct(depth = 0) {
    if (depth > DEPTH) throw new DamagedError("Thrift values are nested too deep");
    /** @type {Struct} */
    const fields = {};
    let field = 0;
    for (;;) {
      const head = this.byte();
      if (head === 0) return fields;
      field = head >> 4 ? field + (head >> 4) : this.integer();
      const type = head & 15;
      fields[field] = type === 1 ? true : type === 2 ? false : this.value(type, depth);
    }
  }

  /** @param {number} depth */
  list(depth) {
    const head = this.byte();
    const count = head >> 4 === 15 ? this.varint() : head >> 4;
    this.items += count;
    if (count > this.bytes.length - this.at || this.items > ITEMS) {
      throw new DamagedError("a Thrift list is longer than its file");
    }
    const type = head & 15;
    const values = [];
    for (let i = 0; i < count; i++) {
      values.push(type === 1 || type === 2 ? this.byte() === 1 : this.value(type, depth));
    }
    return values;
  }

  /** @param {number} type @param {number} depth @returns {any} */
  value(type, depth) {
    switch (type) {
      case 3:
        return (this.byte() << 24) >> 24;
      case 4:
      case 5:
      case 6:
        return this.integer();
      case 7:
        this.at += 8;
        return this.view.getFloat64(this.at - 8, true);
      case 8:
        return this.binary();
      case 9:
      case 10:
        return this.list(depth + 1);
      case 12:
        return this.struct(depth + 1);
      default:
        throw new DamagedError(`Thrift type ${type} is not used by Parquet`);
    }
  }
}

/** A field that must be a list; an absent one is empty. @param {unknown} value @returns {any[]} */
export function asList(value) {
  if (value === undefined) return [];
  if (Array.isArray(value)) return value;
  throw wrongType();
}

/** A field that must be a struct; an absent one is empty. @param {unknown} value @returns {Struct} */
export function asStruct(value) {
  if (value === undefined) return {};
  const other = typeof value !== "object" || Array.isArray(value) || value instanceof Uint8Array;
  if (!other && value !== null) return /** @type {Struct} */ (value);
  throw wrongType();
}

/** A field that must be a length, a place or a code. @param {unknown} value @returns {number} */
export function asNumber(value) {
  if (Number.isSafeInteger(value) && Number(value) >= 0) return Number(value);
  throw wrongType();
}

/** A field that must be bytes; an absent one is empty. @param {unknown} value @returns {Uint8Array} */
export function asBytes(value) {
  if (value === undefined) return new Uint8Array(0);
  if (value instanceof Uint8Array) return value;
  throw wrongType();
}

function wrongType() {
  return new DamagedError("a field of the Parquet file has the wrong type");
}
