/**
 * What is told of one tile: its address and its headers.
 */

import { facts, h } from "./dom.js";
import { headerName, size } from "./format.js";

/** @typedef {[z: number, x: number, y: number]} TileAddress */

/** Headers about the tile, in the order in which they are shown; further ones follow. */
const TOLD = [
  "content-type",
  "content-encoding",
  "content-length",
  "etag",
  "last-modified",
  "cache-control",
];
/** Headers of the server, which say nothing about the tile. */
const HIDDEN = /^x-(comal-|content-type-options$|request-id$)/;
/** Headers by which the reader in the browser says where it found the tile. */
const FOUND = { Archive: "x-comal-archive", Entry: "x-comal-entry" };

/** The address of a tile. @param {string} template @param {TileAddress} tile */
export function addressOf(template, [z, x, y]) {
  return template.replace("{z}", String(z)).replace("{x}", String(x)).replace("{y}", String(y));
}

/**
 * One source at a place.
 * @param {string} title
 * @param {TileAddress | undefined} tile
 * @param {...(Node | string | false | null | undefined)} parts
 */
export function tileArticle(title, tile, ...parts) {
  const address = tile && h("p", { class: "mono" }, tile.join("/"));
  return h("article", { class: "tile" }, h("h3", { dir: "auto" }, title), address, ...parts);
}

/**
 * Where the tile was found, then the usual headers, then those that the archive adds.
 * @param {[string, string][]} headers
 */
export function headerFacts(headers) {
  const here = new URL("./", document.baseURI).href;
  const before = Object.entries(FOUND).map(([name, header]) => {
    const text = headers.find(([one]) => one === header)?.[1];
    return /** @type {[string, string | undefined]} */ ([name, text?.replace(here, "")]);
  });
  const own = headers.filter(
    ([name]) => TOLD.includes(name) || (name.startsWith("x-") && !HIDDEN.test(name)),
  );
  const order = (/** @type {string} */ name) =>
    (TOLD.indexOf(name) + TOLD.length + 1) % (TOLD.length + 1);
  own.sort(([a], [b]) => order(a) - order(b));
  const rows = own.map(([name, text]) => {
    const content = name === "content-length" ? size(Number(text)) : text;
    return /** @type {[string, string]} */ ([headerName(name), content]);
  });
  return facts([...before, ...rows]);
}
