/**
 * The JSON API of the server that this page comes from, and of no other.
 */

import { queryOf } from "../ui/query.js";

/** An answer that is no success, or none at all. */
export class ApiError extends Error {
  /**
   * @param {string} message what went wrong, for people
   * @param {{status?: number, code?: string, id?: string}} [details]
   */
  constructor(message, { status = 0, code = "unreachable", id = "" } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.id = id;
  }
}

/**
 * An address below the root of the server.
 * @param {string} path relative to the root
 * @param {Record<string, unknown>} [parameters] null and "" are left out; a list is repeated
 * @returns {string}
 */
export function address(path, parameters = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of queryOf(parameters)) url.searchParams.append(name, value);
  return url.href;
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
  return response.json();
}

/**
 * The headers of an answer, without its body.
 * @param {string} url
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<{status: number, headers: [string, string][]}>} also for answers that are no success
 */
export async function getHeaders(url, { signal } = {}) {
  try {
    const response = await fetch(url, { method: "HEAD", signal, cache: "no-store" });
    return { status: response.status, headers: [...response.headers] };
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError("The server does not answer.");
  }
}

/** Whether an error only says that nobody waits any more. @param {unknown} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/**
 * @param {string} url
 * @param {RequestInit} options
 */
async function ask(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError("The server does not answer.");
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

/** @param {Response} response */
async function problemOf(response) {
  /** @type {{title?: string, detail?: string, code?: string, id?: string}} */
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy in between may answer with a page of its own; the status still counts.
  }
  const title = problem.title || `status ${response.status}`;
  const message =
    problem.detail && problem.detail !== title ? `${title}: ${problem.detail}` : title;
  return new ApiError(message, { status: response.status, code: problem.code, id: problem.id });
}
