/**
 * The tiles under a place: where they come from, and what was answered with them.
 */

import { byId, h } from "./dom.js";
import { size } from "./format.js";
import { mark, tileAt } from "./mapview.js";
import { emptiness, failure, fill, waiting } from "./page.js";
import { reasonOf } from "./query.js";
import { addressOf, headerFacts, tileArticle } from "./tileinfo.js";

/** @typedef {import("./sources.js").SourceState} SourceState */

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
    fill(
      body,
      emptiness("Choose a place", "Click on the map, or press Enter on it for its centre."),
    );
    mark(map, undefined);
  };
  const look = async (/** @type {{lng: number, lat: number}} */ place) => {
    const found = states()
      .map((state) => ({ state, tile: tileAt(map, state, place) }))
      .filter((entry) => entry.tile !== undefined);
    mark(map, found[0]?.tile);
    fill(body, waiting("Reading"));
    const parts = await Promise.all(
      found.map(({ state, tile }) => describe(state, /** @type {any} */ (tile), ask)),
    );
    body.replaceChildren(
      ...(parts.length
        ? parts
        : [emptiness("Nothing is shown here", "No source has tiles here for this scale.")]),
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
 * @param {SourceState} state @param {import("./tileinfo.js").TileAddress} tile
 * @param {(url: string) => Promise<Response>} ask
 */
async function describe({ info, look }, tile, ask) {
  const about = (/** @type {(Node | string)[]} */ ...parts) =>
    tileArticle(info.name, tile, ...parts);
  try {
    const response = await ask(addressOf(info.tiles[0], tile) + (look.size ? `?${look}` : ""));
    if (response.status === 404) return about(h("p", {}, "There is no tile here."));
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      return about(failure("The tile cannot be read", problem.title));
    }
    const { byteLength } = await response.arrayBuffer();
    const archive = response.headers.get("X-Comal-Archive") ?? "";
    return about(
      headerFacts(
        [...response.headers],
        [
          ["Archive", archive.replace(new URL("./", location.href).href, "")],
          ["Entry", response.headers.get("X-Comal-Entry") ?? ""],
          ["Size", size(byteLength)],
        ],
      ),
    );
  } catch (error) {
    return about(failure("The tile cannot be read", reasonOf(error)));
  }
}
