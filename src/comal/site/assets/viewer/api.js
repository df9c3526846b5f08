/**
 * The one door to what the page shows: the API of the server that it comes from or, on a static
 * site, the same API below `tiles/`, which the browser answers itself.
 */

import { exact } from "../lib/json.js";
import { queryOf, reasonOf } from "../ui/query.js";
import { READS, connect } from "./host.js";

const ROOT = new URL(READS ? "tiles/" : "./", document.baseURI);
const host = connect(new URL("./", document.baseURI));
host.then(({ kind }) => (document.documentElement.dataset.engine = kind));

/** An answer that is no success, or none at all. */
export class ApiError extends Error {
  /**
   * @param {string} message what went wrong, for people
   * @param {number} [status] 0 without an answer
   */
  constructor(message, status = 0) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/**
 * An address below the root of the server.
 * @param {string} path relative to the root
 * @param {Record<string, unknown>} [parameters] null and "" are left out; a list is repeated
 * @returns {string}
 */
export function address(path, parameters = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of queryOf(parameters)) url.searchParams.append(name, value);
  return url.href;
}

/** An address as the map has to ask for it. @param {string} url */
export async function tileUrl(url) {
  return (await host).tileUrl(url);
}

/**
 * Ids of a sample as they stand in an address.
 * @param {string} path ids joined by slashes
 */
export function pathInAddress(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

/**
 * The address of a sample's picture or bytes. Those in its item are for clients elsewhere: they may
 * name a host that this page may not ask.
 * @param {any} item
 * @param {"preview" | "data"} kind
 * @param {Record<string, unknown>} [parameters]
 */
export function assetAddress(item, kind, parameters) {
  const path = pathInAddress(item["comal:path"]);
  return address(`${item.collection}/${kind}/${path}`, parameters);
}

/**
 * One JSON document.
 * @param {string} path
 * @param {Record<string, unknown>} [parameters]
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function getJson(path, parameters = {}, { signal } = {}) {
  const response = await ask(address(path, parameters), {
    signal,
    headers: { Accept: "application/json" },
  });
  return JSON.parse(await response.text(), exact);
}

/**
 * The headers of a tile, without its body.
 * @param {string} url
 * @returns {Promise<[string, string][] | null>} null where there is no tile
 */
export async function getHeaders(url) {
  const { ok, status, headers } = await send(url, { method: "HEAD", cache: "no-store" });
  if (status === 404 || status === 204) return null;
  // Only an answer with a body says what is wrong.
  return [...(ok ? headers : (await ask(url)).headers)];
}

/** Whether an error only says that nobody waits any more. @param {unknown} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** @param {string} url @param {RequestInit} [options] */
async function send(url, options) {
  try {
    return await (await host).fetch(url, options);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(READS ? reasonOf(error) : "The server does not answer.");
  }
}

/** @param {string} url @param {RequestInit} [options] */
async function ask(url, options) {
  const response = await send(url, options);
  if (response.ok) return response;
  throw problemOf(response.status, await response.text());
}

/**
 * What a problem document says.
 * @param {number} status @param {string} text of the document, or of what a proxy says instead
 */
export function problemOf(status, text) {
  /** @type {{title?: string, detail?: string}} */
  let problem = {};
  try {
    problem = JSON.parse(text) ?? {};
  } catch {
    // A proxy in between may answer with a page of its own; the status still counts.
  }
  const title = problem.title || `status ${status}`;
  const message =
    problem.detail && problem.detail !== title ? `${title}: ${problem.detail}` : title;
  return new ApiError(message, status);
}
