/**
 * Byte ranges of objects over HTTP: aligned blocks, a bounded cache, one flight per block.
 */

import { BlockCache } from "./blockcache.js";
import { collect } from "./bytes.js";
import { AbsentError, ChangedError, DamagedError, StorageError } from "./errors.js";
import { LIMITS } from "./limits.js";

const BLOCK = 64 * 1024;
const TIMEOUT = 30_000;
const RETRIES = 2;

/**
 * How the store is reached, and what all objects share.
 * @typedef {object} Access
 * @property {BlockCache} cache
 * @property {typeof fetch} fetch
 * @property {string} origin the page's own; ranges of other origins avoid preflights
 * @property {ReadonlySet<number>} absent statuses that mean that there is no such object
 * @property {import("./store.js").IndexStore} [store] where indexes outlive the worker
 */

/**
 * @param {Partial<Access>} [access]
 * @returns {Access}
 */
export function accessOf(access = {}) {
  return {
    cache: new BlockCache(),
    fetch: (...args) => globalThis.fetch(...args),
    origin: globalThis.location?.origin ?? "",
    absent: new Set([404, 410]),
    ...access,
  };
}

/** @typedef {import("./store.js").Span} Span */

/** One object, read by ranges. It is never mixed with a later version of itself. */
export class RemoteFile {
  /** @param {string} url @param {Access} access */
  constructor(url, access) {
    this.url = url;
    this.access = access;
    /** @type {number | undefined} */
    this.size = undefined;
    /** @type {string | undefined} what told this version apart */
    this.version = undefined;
    /** @type {Span | undefined} the end of the object, once read */
    this.end = undefined;
    /** @type {Span[]} what is known of the object beside its end while it is opened */
    this.spans = [];
    this.isOpening = false;
    /** @type {Map<number, Promise<Uint8Array>>} */
    this.flights = new Map();
    this.requests = 0;
  }

  /**
   * Open the object by what was read for it before, if that was of the version of today; what is
   * read otherwise is kept for the next time.
   * @template Result
   * @param {() => Promise<Result>} work reads what opens the object
   */
  async open(work) {
    this.isOpening = true;
    try {
      if (await this.recall()) {
        try {
          return await work();
        } catch (error) {
          if (!(error instanceof DamagedError || error instanceof ChangedError)) throw error;
          this.forget();
          this.access.store?.drop(this.url);
        }
      }
      const result = await work();
      this.keep();
      return result;
    } finally {
      this.isOpening = false;
      this.spans = [];
    }
  }

  /** @returns {Promise<boolean>} whether the store has what opens this version */
  async recall() {
    const kept = await this.access.store?.get(this.url);
    if (!kept) return false;
    [this.size, this.version] = [kept.size, kept.version];
    try {
      const response = await this.send({ method: "HEAD", cache: "no-cache" });
      this.pin(response, Number(response.headers.get("Content-Length")));
    } catch (error) {
      this.forget();
      if (!(error instanceof AbsentError)) return false;
      this.access.store?.drop(this.url);
      throw error;
    }
    [this.end, this.spans] = [kept.end, kept.spans];
    return true;
  }

  /** Know nothing of the object. */
  forget() {
    this.size = this.version = this.end = undefined;
    this.spans = [];
  }

  /** Write down what opened the object. Nobody waits for it. */
  keep() {
    const { url, version, size, end, spans } = this;
    // Without a tag another version of the same size would pass for this one.
    if (size === undefined || !end || !version || version.startsWith(" ")) return;
    this.access.store?.put({ url, version, size, end: alone(end), spans: spans.map(alone) });
  }

  /**
   * The last `wanted` bytes, or all of a shorter object.
   *
   * A suffix range makes browsers ask for leave first when the store is another origin (Fetch,
   * 4.8: only `bytes=a-b` and `bytes=a-` are safelisted): the length is learned by HEAD there.
   * @param {number} wanted
   * @returns {Promise<{start: number, bytes: Uint8Array}>}
   */
  async tail(wanted) {
    if (this.end && this.size !== undefined && this.end.start <= Math.max(0, this.size - wanted)) {
      return this.end;
    }
    if (this.size === undefined && new URL(this.url).origin !== this.access.origin) {
      await this.learnSize();
    }
    if (this.size === undefined) {
      const bytes = await this.request(`bytes=-${wanted}`);
      const size = /** @type {number} */ (/** @type {unknown} */ (this.size));
      this.end = { start: size - bytes.length, bytes };
    } else {
      const start = Math.max(0, this.size - wanted);
      this.end = { start, bytes: await this.read(start, this.size - start) };
    }
    return this.end;
  }

  async learnSize() {
    const response = await this.send({ method: "HEAD" });
    const length = response.headers.get("Content-Length");
    if (length === null || response.headers.has("Content-Encoding")) {
      throw new StorageError("the store does not say how long the object is", {
        where: this.url,
        hint: "allow HEAD in its CORS rules, and serve archives without content encoding",
      });
    }
    this.pin(response, Number(length));
  }

  /**
   * Exactly these bytes.
   * @param {number} offset
   * @param {number} length
   */
  async read(offset, length) {
    if (!(offset >= 0 && length >= 0) || (this.size !== undefined && offset + length > this.size)) {
      throw new DamagedError("a length points past the end of the object", { where: this.url });
    }
    if (length === 0) return new Uint8Array(0);
    if (this.end && offset >= this.end.start) {
      const from = offset - this.end.start;
      return this.end.bytes.subarray(from, from + length);
    }
    const span = this.spans.find(
      ({ start, bytes }) => offset >= start && offset + length <= start + bytes.length,
    );
    if (span) return span.bytes.subarray(offset - span.start, offset - span.start + length);
    const bytes = await this.readBlocks(offset, length);
    if (this.isOpening) this.spans.push({ start: offset, bytes });
    return bytes;
  }

  /** @param {number} offset @param {number} length */
  async readBlocks(offset, length) {
    const first = Math.floor(offset / BLOCK);
    const last = Math.floor((offset + length - 1) / BLOCK);
    const blocks = await Promise.all(this.blocks(first, last));
    const from = offset - first * BLOCK;
    if (blocks.length === 1) return this.cut(blocks[0], from, length);
    const joined = new Uint8Array(blocks.reduce((sum, block) => sum + block.length, 0));
    let at = 0;
    for (const block of blocks) {
      joined.set(block, at);
      at += block.length;
    }
    return this.cut(joined, from, length);
  }

  /** @param {Uint8Array} bytes @param {number} from @param {number} length */
  cut(bytes, from, length) {
    if (from + length > bytes.length) {
      throw new DamagedError("the object ends before its content does", { where: this.url });
    }
    return bytes.subarray(from, from + length);
  }

  /**
   * The blocks `first` to `last`; neighbours that nobody has or awaits come in one request.
   * @param {number} first
   * @param {number} last
   */
  blocks(first, last) {
    const wanted = [];
    for (let block = first; block <= last; block++) {
      const held = this.access.cache.get(this.key(block));
      wanted.push(held ? Promise.resolve(held) : this.flights.get(block));
    }
    for (let from = 0; from < wanted.length; from++) {
      if (wanted[from]) continue;
      let to = from;
      while (to + 1 < wanted.length && !wanted[to + 1]) to += 1;
      const flight = this.request(
        `bytes=${(first + from) * BLOCK}-${(first + to + 1) * BLOCK - 1}`,
      );
      for (let i = from; i <= to; i++) wanted[i] = this.launch(flight, first + from, first + i);
      from = to;
    }
    return /** @type {Promise<Uint8Array>[]} */ (wanted);
  }

  /** @param {Promise<Uint8Array>} flight @param {number} first @param {number} block */
  async launch(flight, first, block) {
    const own = flight.then((bytes) => {
      // A copy, so that the cache does not keep the whole answer alive for one block of it.
      const start = (block - first) * BLOCK;
      const alone = start === 0 && bytes.length <= BLOCK;
      const part = alone ? bytes : bytes.slice(start, start + BLOCK);
      this.access.cache.put(this.key(block), part);
      return part;
    });
    this.flights.set(block, own);
    try {
      return await own;
    } finally {
      this.flights.delete(block);
    }
  }

  /** @param {number} block */
  key(block) {
    return `${this.url} ${this.version ?? ""} ${block}`;
  }

  /** @param {string} range */
  async request(range) {
    const response = await this.send({ headers: { Range: range } });
    const spanned = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "");
    if (response.status === 200) return this.whole(response, range);
    this.pin(response, spanned ? Number(spanned[3]) : this.size);
    if (this.size === undefined) {
      throw new StorageError("the store hides Content-Range", {
        where: this.url,
        hint: "expose Content-Range and ETag in its CORS rules",
      });
    }
    const bytes = await collect(bodyOf(response), LIMITS.chunk, this.url);
    const expected = spanned ? Number(spanned[2]) - Number(spanned[1]) + 1 : this.spanOf(range);
    if (bytes.length !== expected) {
      throw new StorageError("the answer was cut short", { where: this.url });
    }
    return bytes;
  }

  /** @param {string} range */
  spanOf(range) {
    const [start, stop] = range.slice(6).split("-").map(Number);
    return Math.min(stop + 1, /** @type {number} */ (this.size)) - start;
  }

  /**
   * The server sent all of the object: kept when it is small, as simple servers know no ranges.
   * @param {Response} response
   * @param {string} range
   */
  async whole(response, range) {
    const bytes = await collect(bodyOf(response), LIMITS.whole, this.url).catch((error) => {
      if (!(error instanceof DamagedError)) throw error;
      throw new StorageError("the server does not answer byte ranges", {
        where: this.url,
        hint: "serve the archive from a store or a server that does",
      });
    });
    this.pin(response, bytes.length);
    this.end = { start: 0, bytes };
    const [start, stop] = range.slice(6).split("-");
    return start ? bytes.subarray(Number(start), Number(stop) + 1) : bytes;
  }

  /**
   * Remember what version this is, and refuse another.
   * @param {Response} response
   * @param {number | undefined} size
   */
  pin(response, size) {
    const tag = response.headers.get("ETag") ?? response.headers.get("Last-Modified") ?? "";
    const version = `${tag} ${size}`;
    if (this.size !== undefined && this.version !== undefined && version !== this.version) {
      this.access.store?.drop(this.url);
      throw new ChangedError("the object has changed while it was read", { where: this.url });
    }
    if (size === undefined || !Number.isSafeInteger(size)) return;
    this.size = size;
    this.version = version;
  }

  /** @param {RequestInit} init */
  async send(init) {
    for (let attempt = 0; ; attempt++) {
      const failure = await this.attempt(init);
      if (failure instanceof Response) return failure;
      if (!failure.again || attempt >= RETRIES) throw failure.error;
      await new Promise((resolve) => setTimeout(resolve, 200 * 2 ** attempt));
    }
  }

  /**
   * @param {RequestInit} init
   * @returns {Promise<Response | {again: boolean, error: Error}>}
   */
  async attempt(init) {
    this.requests += 1;
    const where = this.url;
    let response;
    try {
      const signal = AbortSignal.timeout(TIMEOUT);
      response = await this.access.fetch(this.url, { ...init, signal, credentials: "same-origin" });
    } catch (thrown) {
      const hint = "the server is down, or its CORS rules do not name this page";
      const reason = thrown instanceof Error ? thrown.message : String(thrown);
      return {
        again: true,
        error: new StorageError(`cannot be reached (${reason})`, { where, hint }),
      };
    }
    if (response.ok) return response;
    await response.body?.cancel();
    if (this.access.absent.has(response.status)) {
      return { again: false, error: new AbsentError("there is no such object", { where }) };
    }
    if (response.status === 416) {
      return {
        again: false,
        error: new DamagedError("the object is shorter than expected", { where }),
      };
    }
    const again = response.status === 429 || response.status >= 500;
    return { again, error: new StorageError(`the store answers ${response.status}`, { where }) };
  }
}

/** A span without the rest of the answer that it came in. @param {Span} span @returns {Span} */
function alone({ start, bytes }) {
  return { start, bytes: bytes.slice() };
}

/** @param {Response} response */
function bodyOf(response) {
  return response.body ?? new Blob([]).stream();
}

/**
 * A small document as a whole.
 * @param {string} url
 * @param {Access} access
 * @param {number} [limit]
 */
export async function readWhole(url, access, limit = LIMITS.json) {
  const response = await new RemoteFile(url, access).send({ cache: "no-cache" });
  return collect(bodyOf(response), limit, url);
}
