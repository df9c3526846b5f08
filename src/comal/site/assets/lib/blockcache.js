/**
 * Blocks of objects in memory.
 */

import { LIMITS } from "./limits.js";

/** Blocks of any objects, the ones used longest ago dropped first. */
export class BlockCache {
  /** @param {number} [budget] bytes held at most */
  constructor(budget = LIMITS.blocks) {
    this.budget = budget;
    this.held = 0;
    /** @type {Map<string, Uint8Array>} in the order of use */
    this.blocks = new Map();
  }

  /** @param {string} key */
  get(key) {
    const block = this.blocks.get(key);
    if (block) {
      this.blocks.delete(key);
      this.blocks.set(key, block);
    }
    return block;
  }

  /** @param {string} key @param {Uint8Array} block */
  put(key, block) {
    this.drop(key);
    if (block.length > this.budget) return;
    this.blocks.set(key, block);
    this.held += block.length;
    for (const oldest of this.blocks.keys()) {
      if (this.held <= this.budget) break;
      this.drop(oldest);
    }
  }

  /** @param {string} key */
  drop(key) {
    const block = this.blocks.get(key);
    if (!block) return;
    this.held -= block.length;
    this.blocks.delete(key);
  }
}
