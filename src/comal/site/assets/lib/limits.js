/**
 * Caps on what a file may make us hold, checked before memory is taken. Sizes are bytes.
 */

const MIB = 1024 * 1024;

export const LIMITS = Object.freeze({
  /** A metadata document. */
  json: 16 * MIB,
  /** The central directory of one archive. */
  directory: 64 * MIB,
  /** One tile, packed or unpacked. */
  tile: 64 * MIB,
  /** The footer of a Parquet file. */
  footer: 64 * MIB,
  /** One column chunk, where it has to be read as a whole. */
  chunk: 256 * MIB,
  /** An object that is kept whole, because its server does not answer ranges. */
  whole: 64 * MIB,
  /** Blocks in memory, of all objects together. */
  blocks: 96 * MIB,
  /** Indexes that are kept from one start of the worker to the next, and one of them. */
  kept: 48 * MIB,
  keptOne: 12 * MIB,
  /** Side of a RaQuet tile in pixels. */
  side: 8192,
  /** Bands of a RaQuet file. */
  bands: 1024,
  /** Archives whose directory is kept. */
  archives: 256,
});
