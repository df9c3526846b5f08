/**
 * The tiles under a place: where they come from, and what was answered with them.
 */

import { byId, facts, h } from "./dom.js";
import { mark, tileAt } from "./mapview.js";

/** @typedef {import("./sources.js").SourceState} SourceState */

/** Headers that say nothing about the tile. */
const HIDDEN = /^x-(comal-|content-type-options)/;

/**
 * Let a button switch the inspector, and clicks choose a place. Enter chooses the centre.
 * @param {import("../../vendor/maplibre-gl/maplibre-gl.js").Map} map
 * @param {() => SourceState[]} states
 * @param {(url: string) => Promise<Response>} ask
 */
export function watchTiles(map, states, ask) {
  const [button, panel, body] = [byId("inspect"), byId("inspector"), byId("inspector-body")];
  let on = false;

  const toggle = (/** @type {boolean} */ wanted) => {
    on = wanted;
    button.setAttribute("aria-pressed", String(on));
    panel.hidden = !on;
    map.getCanvas().style.cursor = on ? "crosshair" : "";
    body.replaceChildren(
      h("p", {}, "Choose a place on the map, or press Enter on the map for its centre."),
    );
    mark(map, undefined);
  };
  const look = async (/** @type {{lng: number, lat: number}} */ place) => {
    const found = states()
      .map((state) => ({ state, tile: tileAt(map, state, place) }))
      .filter((entry) => entry.tile !== undefined);
    mark(map, found[0]?.tile);
    body.replaceChildren(h("p", {}, "Reading…"));
    const parts = await Promise.all(
      found.map(({ state, tile }) => describe(state, /** @type {any} */ (tile), ask)),
    );
    body.replaceChildren(
      ...(parts.length ? parts : [h("p", {}, "No source has tiles here at this zoom.")]),
    );
  };
  button.addEventListener("click", () => toggle(!on));
  byId("inspector-close").addEventListener("click", () => {
    toggle(false);
    button.focus();
  });
  panel.addEventListener(
    "keydown",
    (event) => event.key === "Escape" && byId("inspector-close").click(),
  );
  map.on("click", (event) => on && look(event.lngLat.wrap()));
  map.getCanvas().addEventListener("keydown", (event) => {
    if (on && event.key === "Enter") look(map.getCenter().wrap());
    if (on && event.key === "Escape") toggle(false);
  });
}

/**
 * @param {SourceState} state @param {[number, number, number]} tile
 * @param {(url: string) => Promise<Response>} ask
 */
async function describe(state, [z, x, y], ask) {
  const template = state.info.tiles[0];
  const url = template
    .replace("{z}", String(z))
    .replace("{x}", String(x))
    .replace("{y}", String(y));
  const title = h("h3", {}, state.info.name);
  const started = performance.now();
  try {
    const response = await ask(url + (state.look.size ? `?${state.look}` : ""));
    const bytes = (await response.clone().arrayBuffer()).byteLength;
    const took = Math.round(performance.now() - started);
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      return h(
        "article",
        { class: "tile" },
        title,
        address(z, x, y),
        h(
          "p",
          { class: response.status === 404 ? "notice" : "notice notice--danger" },
          `${response.status}: ${problem.title ?? "failed"}`,
        ),
      );
    }
    /** @type {[string, string][]} */
    const headers = [...response.headers]
      .filter(([name]) => !HIDDEN.test(name))
      .map(([name, value]) => [headerName(name), value]);
    const archive = response.headers.get("X-Comal-Archive") ?? "";
    headers.unshift(
      ["Archive", archive.replace(new URL("./", location.href).href, "")],
      ["Entry", response.headers.get("X-Comal-Entry") ?? ""],
    );
    return h(
      "article",
      { class: "tile" },
      title,
      address(z, x, y, `${size(bytes)}, ${took} ms`),
      facts(headers),
    );
  } catch (error) {
    return h(
      "article",
      { class: "tile" },
      title,
      h("p", { class: "notice notice--danger" }, String(error)),
    );
  }
}

/** @param {number} z @param {number} x @param {number} y @param {string} [more] */
function address(z, x, y, more) {
  return h(
    "p",
    { class: "tile__line" },
    h("span", { class: "mono" }, `${z}/${x}/${y}`),
    more && ` · ${more}`,
  );
}

/** `content-type` as `Content-Type`. @param {string} name */
function headerName(name) {
  return name.replace(/(^|-)[a-z]/g, (part) => part.toUpperCase()).replace(/^Etag$/, "ETag");
}

/** @param {number} bytes */
function size(bytes) {
  return bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(bytes < 10_240 ? 1 : 0)} KB`;
}
