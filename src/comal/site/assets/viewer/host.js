/**
 * Who answers this page: comal's server or, for the page of a static site, a service worker, or the
 * page itself where there can be none (plain http, private windows of some browsers, or
 * `?engine=page`).
 */

import { addProtocol } from "../../vendor/maplibre-gl/maplibre-gl.js";

const PATIENCE = 4000;

/**
 * @typedef {object} Host
 * @property {"server" | "worker" | "page"} kind
 * @property {(url: string, options?: RequestInit) => Promise<Response>} fetch
 * @property {(url: string) => string} tileUrl the address that the map asks for
 */

/** Whether this page reads archives, and has no server but one for files. */
export const READS = document.documentElement.hasAttribute("data-site");

/** @param {URL} base folder of the page @returns {Promise<Host>} */
export async function connect(base) {
  const asked = { fetch: fetch.bind(globalThis), tileUrl: (/** @type {string} */ url) => url };
  if (!READS) return { kind: "server", ...asked };
  const forced = new URLSearchParams(location.search).get("engine") === "page";
  if (!forced && "serviceWorker" in navigator && (await controlled(base).catch(() => false))) {
    return { kind: "worker", ...asked };
  }
  return inPage(base);
}

/** Register the worker, and wait until it answers for this page. @param {URL} base */
async function controlled(base) {
  const workers = navigator.serviceWorker;
  await workers.register(new URL("sw.js", base), { type: "module", updateViaCache: "none" });
  const { active } = await workers.ready;
  if (!workers.controller) {
    const claimed = new Promise((resolve) =>
      workers.addEventListener("controllerchange", () => resolve(true), { once: true }),
    );
    active?.postMessage("claim");
    if (!(await Promise.race([claimed, tooLate()]))) return false;
  }
  return Promise.race([forgotten(workers.controller), tooLate()]);
}

/**
 * Have the worker forget what it read for the page before. Messages and requests reach a worker by
 * different ways: only its answer says that the next request meets fresh sources.
 * @param {ServiceWorker | null} worker
 * @returns {Promise<boolean>}
 */
function forgotten(worker) {
  const { port1, port2 } = new MessageChannel();
  const done = new Promise((resolve) => {
    port1.onmessage = () => resolve(true);
  });
  worker?.postMessage("reset", [port2]);
  return done;
}

/** @returns {Promise<boolean>} */
function tooLate() {
  return new Promise((resolve) => setTimeout(() => resolve(false), PATIENCE));
}

/** @param {URL} base @returns {Promise<Host>} */
async function inPage(base) {
  const { Engine } = await import("../lib/engine.js");
  const engine = new Engine(new URL("site.json", base).href);
  // The scheme that MapLibre sees: `comal+https://…`.
  addProtocol(`comal+${base.protocol.slice(0, -1)}`, async ({ url }) => {
    const response = await engine.respond(url.slice("comal+".length));
    if (response.ok) return { data: await response.arrayBuffer() };
    // As MapLibre tells of answers that it asked for itself.
    const { status } = response;
    throw Object.assign(new Error(`status ${status}`), { status, body: await response.blob() });
  });
  return {
    kind: "page",
    fetch: async (url, { method, signal } = {}) => {
      const response = await engine.respond(url, method);
      signal?.throwIfAborted();
      return response;
    },
    tileUrl: (url) => `comal+${url}`,
  };
}
