/**
 * Indexes of archives that outlive the worker: browsers stop it after half a minute of silence.
 *
 * A database that is missing, forbidden or full is no failure: then nothing is kept.
 */

import { LIMITS } from "./limits.js";

const NAME = "comal-indexes";
const STORE = "indexes";
const BY_AGE = "age";

/**
 * A stretch of an object.
 * @typedef {object} Span
 * @property {number} start
 * @property {Uint8Array} bytes
 */

/**
 * What was read of an object to open it.
 * @typedef {object} Kept
 * @property {string} url
 * @property {string} version of the object, as its store tells it
 * @property {number} size
 * @property {Span} end
 * @property {Span[]} spans
 */

/** Indexes by address, the ones that were written longest ago dropped first. */
export class IndexStore {
  /** @param {number} [budget] bytes kept at most */
  constructor(budget = LIMITS.kept) {
    this.budget = budget;
    /** @type {Promise<IDBDatabase> | undefined} */
    this.opening = undefined;
  }

  /** @param {string} url @returns {Promise<Kept | undefined>} */
  async get(url) {
    return this.run("readonly", (indexes) => indexes.get(url));
  }

  /** @param {Kept} kept */
  async put(kept) {
    const weight = weightOf(kept);
    if (weight > LIMITS.keptOne || weight > this.budget) return;
    const age = [Date.now(), weight];
    await this.run("readwrite", (indexes) => {
      const done = indexes.put({ ...kept, age });
      this.trim(indexes);
      return done;
    });
  }

  /** @param {string} url */
  async drop(url) {
    await this.run("readwrite", (indexes) => indexes.delete(url));
  }

  /** Delete what is over the budget; ages hold the weights, so that no content is read. @param {IDBObjectStore} indexes */
  trim(indexes) {
    const newestFirst = indexes.index(BY_AGE).openKeyCursor(null, "prev");
    let held = 0;
    newestFirst.onsuccess = () => {
      const cursor = newestFirst.result;
      if (!cursor) return;
      held += /** @type {[number, number]} */ (cursor.key)[1];
      if (held > this.budget) indexes.delete(cursor.primaryKey);
      cursor.continue();
    };
  }

  /**
   * @template Result
   * @param {IDBTransactionMode} mode
   * @param {(indexes: IDBObjectStore) => IDBRequest<Result>} work
   * @returns {Promise<Result | undefined>}
   */
  async run(mode, work) {
    try {
      this.opening ??= openDatabase();
      const transaction = (await this.opening).transaction(STORE, mode);
      const request = work(transaction.objectStore(STORE));
      await new Promise((resolve, reject) => {
        transaction.oncomplete = () => resolve(true);
        transaction.onabort = () => reject(transaction.error);
      });
      return request.result;
    } catch {
      // Private windows, full disks and databases of other versions: archives are read anew.
      return undefined;
    }
  }
}

/** @returns {Promise<IDBDatabase>} */
function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () =>
      request.result.createObjectStore(STORE, { keyPath: "url" }).createIndex(BY_AGE, "age");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("the database is blocked"));
  });
}

/** @param {Kept} kept */
function weightOf({ end, spans }) {
  return [end, ...spans].reduce((sum, span) => sum + span.bytes.length, 0);
}
