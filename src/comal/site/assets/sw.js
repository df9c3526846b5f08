/**
 * The service worker of a static site: a tile server inside the browser.
 *
 * Requests below `tiles/` are answered from the archives that `site.json` names; all others go
 * to the network as if there were no worker.
 */

// @ts-ignore - in a written site this file stands beside the folder `assets`
import { Engine } from "./assets/lib/engine.js";

const worker = /** @type {any} */ (globalThis);
const engine = new Engine(new URL("site.json", worker.registration.scope).href);

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) =>
  event.waitUntil(worker.clients.claim()),
);

worker.addEventListener("message", (/** @type {any} */ event) => {
  if (event.data === "reset") {
    engine.reset();
    event.ports[0]?.postMessage("done");
  }
  // A page that was reloaded past its worker asks for it.
  if (event.data === "claim") event.waitUntil(worker.clients.claim());
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { url, method } = event.request;
  if (engine.serves(url)) event.respondWith(engine.respond(url, method));
});
