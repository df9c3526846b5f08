/**
 * Who answers for the tiles: the service worker, or this page itself where there can be none
 * (plain http, private windows of some browsers, or `?engine=page`).
 */

import { addProtocol } from "../../vendor/maplibre-gl/maplibre-gl.js";

const PATIENCE = 4000;

/**
 * @typedef {object} Host
 * @property {"worker" | "page"} kind
 * @property {(url: string) => Promise<Response>} fetch
 * @property {(url: string) => string} tileUrl the address that the map asks for
 */

/** @param {URL} base folder of the page @returns {Promise<Host>} */
export async function connect(base) {
  const forced = new URLSearchParams(location.search).get("engine") === "page";
  if (!forced && "serviceWorker" in navigator && (await controlled(base).catch(() => false))) {
    return { kind: "worker", fetch: (url) => fetch(url), tileUrl: (url) => url };
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
    const late = new Promise((resolve) => setTimeout(() => resolve(false), PATIENCE));
    if (!(await Promise.race([claimed, late]))) return false;
  }
  workers.controller?.postMessage("reset");
  return true;
}

/** @param {URL} base @returns {Promise<Host>} */
async function inPage(base) {
  const { Engine } = await import("../lib/engine.js");
  const engine = new Engine(new URL("site.json", base).href);
  // The scheme that MapLibre sees: `comal+https://…`.
  addProtocol(`comal+${base.protocol.slice(0, -1)}`, async ({ url }) => {
    const response = await engine.respond(url.slice("comal+".length));
    if (response.ok) return { data: await response.arrayBuffer() };
    const problem = await response.json();
    throw Object.assign(new Error(problem.title), { status: response.status, problem });
  });
  return { kind: "page", fetch: (url) => engine.respond(url), tileUrl: (url) => `comal+${url}` };
}
