/**
 * The page of a static site: its sources on a map, read by the browser alone.
 */

import { byId, h, plainText } from "./ui/dom.js";
import { connect } from "./ui/host.js";
import { watchTiles } from "./ui/inspector.js";
import { addSource, applyState, createMap, firstZoom, fit, repaint } from "./ui/mapview.js";
import { emptiness, failure, fill, waiting } from "./ui/page.js";
import { queryOf } from "./ui/query.js";
import { watchPointer } from "./ui/readout.js";
import { SourceCard } from "./ui/sources.js";
import { watchTheme } from "./ui/theme.js";

/** @typedef {import("./ui/sources.js").SourceState} SourceState */

const BASE = new URL("./", location.href);
/** Whether the address says where to look; the map writes that into it from now on. */
const PLACED = location.hash.includes("map=");
const list = byId("sources");
/** @type {Map<string, SourceCard>} cards of sources that opened */
const cards = new Map();
/** @type {string[]} names in the order of the list, the uppermost first */
const order = [];
/** @type {Set<string>} what people were told about a tile already */
const reported = new Set();

const map = begin();
const ready = new Promise((resolve) => map.once("load", resolve));
map.getCanvas().setAttribute("aria-label", "Map. Arrow keys move, plus and minus zoom.");
watchFold();
start().catch((error) => {
  byId("waiting").hidden = true;
  list.append(
    failure("The page cannot start", String(error?.message ?? error), () => location.reload()),
  );
});

/** The map, or what hinders the browser. */
function begin() {
  try {
    return createMap(byId("map"));
  } catch (error) {
    byId("waiting").hidden = true;
    list.append(
      failure(
        "This browser cannot draw the map",
        "It needs WebGL 2, which is switched off or missing.",
        () => location.reload(),
      ),
    );
    throw error;
  }
}

async function start() {
  const [host, config] = await Promise.all([connect(BASE), readConfig(), ready]);
  document.documentElement.dataset.engine = host.kind;
  document.title = config.title || document.title;
  byId("title").textContent = document.title;
  byId("title").title = document.title;
  byId("waiting").hidden = true;
  if (!config.sources.length) {
    const hint = "Name some in site.json beside this page, or write the site again with tilesets.";
    list.append(emptiness("No sources yet", hint));
  }
  const items = h("ul", { "aria-label": "Sources" });
  list.append(items);
  watchTheme(byId("theme"), () => {
    repaint(map);
    for (const card of cards.values()) {
      card.recolor();
      applyState(map, card.state);
    }
  });
  order.push(...config.sources.map((entry) => entry.name));
  await Promise.all(config.sources.map((entry) => open(entry, items, host)));
  list.setAttribute("aria-busy", "false");
  if (!PLACED) fit(map, shown(), false, uncovered());
  watchPointer(map, byId("readout"), shown, (state, { lng, lat }) => {
    const zoom = Math.round(map.getZoom() + Math.log2(512 / state.info.comal.tileSize));
    const query = new URLSearchParams({
      zoom: String(Math.max(0, zoom)),
      time: state.look.get("time") ?? "0",
    });
    return ask(host, tilesOf(state.id, `point/${lng.toFixed(8)},${lat.toFixed(8)}?${query}`));
  });
  watchTiles(map, shown, host.fetch);
  map.on("zoomend", tellZooms);
  tellZooms();
  map.on("error", (event) => report(/** @type {any} */ (event)));
  document.documentElement.dataset.state = "ready";
}

/** @returns {Promise<{title: string, sources: {name: string}[]}>} */
async function readConfig() {
  const response = await fetch(new URL("site.json", BASE), { cache: "no-cache" });
  if (!response.ok) throw new Error(`site.json: the server answers ${response.status}`);
  const config = await response.json().catch(() => {
    throw new Error("site.json is no JSON");
  });
  const sources = Array.isArray(config?.sources) ? config.sources : [];
  return { title: typeof config?.title === "string" ? config.title : "", sources };
}

/** @param {string} name @param {string} rest */
function tilesOf(name, rest) {
  return new URL(`tiles/${name}/${rest}`, BASE).href;
}

/** @param {import("./ui/host.js").Host} host @param {string} url */
async function ask(host, url) {
  const response = await host.fetch(url);
  const document = await response.json();
  if (!response.ok) throw Object.assign(new Error(document.title), { hint: document.detail });
  return document;
}

/**
 * Open one source: a card and layers, or what went wrong and another try.
 * @param {{name: string}} entry @param {HTMLElement} items @param {import("./ui/host.js").Host} host
 */
async function open(entry, items, host) {
  const place = h("li", { class: "source", "aria-busy": "true" }, waiting("Opening"));
  items.append(place);
  await attempt();

  async function attempt() {
    try {
      const info = await ask(host, new URL(`tiles/${entry.name}.json`, BASE).href);
      /** @type {SourceState} */
      const state = {
        id: entry.name,
        info,
        visible: true,
        opacity: 1,
        hidden: new Set(),
        look: new URLSearchParams(),
      };
      const card = new SourceCard(state, listener(host));
      const above = order.slice(0, order.indexOf(entry.name)).findLast((name) => cards.has(name));
      addSource(
        map,
        state,
        tileUrl(host, state),
        above === undefined ? undefined : cards.get(above)?.state,
      );
      cards.set(entry.name, card);
      place.replaceWith(card.element);
      credit();
    } catch (error) {
      const { message, hint } = /** @type {{message: string, hint?: string}} */ (error);
      const again = async () => {
        fill(place, waiting("Opening"));
        await attempt();
        tellZooms();
      };
      place.removeAttribute("aria-busy");
      place.replaceChildren(
        h("div", { class: "source__head" }, h("h2", {}, entry.name)),
        failure("It cannot be opened", [message, hint].filter(Boolean).join(". "), again),
      );
    }
  }
}

/** @param {import("./ui/host.js").Host} host @param {SourceState} state */
function tileUrl(host, state) {
  return host.tileUrl(state.info.tiles[0]) + (state.look.size ? `?${state.look}` : "");
}

/** @param {import("./ui/host.js").Host} host @returns {import("./ui/sources.js").Listener} */
function listener(host) {
  return {
    changed: (state) => {
      applyState(map, state);
      tellZooms();
    },
    redrawn: (state) => {
      const source = /** @type {any} */ (map.getSource(state.id));
      source?.setTiles([tileUrl(host, state)]);
    },
    zoom: (state) => fit(map, [state], true, uncovered()),
    statistics: (state, parameters) =>
      ask(host, tilesOf(state.id, `statistics?${queryOf(parameters)}`)),
  };
}

/** Room for what lies over the map: the panel beside it, or below it on a phone. */
function uncovered() {
  const panel = /** @type {HTMLElement} */ (list.parentElement).getBoundingClientRect();
  const below = panel.left === 0;
  return below
    ? { top: 84, left: 20, right: 20, bottom: Math.round(globalThis.innerHeight - panel.top) + 20 }
    : { top: 36, left: Math.round(panel.right) + 40, right: 76, bottom: 84 };
}

/** States of the sources that are switched on, the uppermost first. */
function shown() {
  return order.flatMap((name) => cards.get(name)?.state ?? []).filter((state) => state.visible);
}

/** Say which sources have no tiles at so small a scale. */
function tellZooms() {
  for (const card of cards.values()) {
    const far = card.state.visible && map.getZoom() < firstZoom(card.state);
    card.tell(far ? "Zoom in to see it: there are no tiles for so small a scale." : "");
  }
}

/** A tile that failed; absent ones are no failure. @param {{sourceId?: string, error?: any, tile?: any}} event */
async function report({ sourceId, error }) {
  const card = sourceId === undefined ? undefined : cards.get(sourceId);
  if (!card || error?.status === 404) return;
  const body = error?.body instanceof Blob ? await error.body.text().catch(() => "") : "";
  const problem = error?.problem ?? parsed(body);
  const key = `${sourceId} ${error?.url ?? error?.message}`;
  if (reported.has(key)) return;
  reported.add(key);
  card.fail(problem?.title ?? error?.message ?? "unknown reason");
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What the sources want to be said about them, as text. */
function credit() {
  const texts = [...cards.values()]
    .map((card) => plainText(card.state.info.attribution ?? ""))
    .filter(Boolean);
  byId("credit").textContent = [...new Set(texts)].join(" · ").slice(0, 300);
}

function watchFold() {
  const [button, panel] = [
    byId("fold"),
    /** @type {HTMLElement} */ (byId("sources").parentElement),
  ];
  button.addEventListener("click", () => {
    const folded = panel.classList.toggle("is-folded");
    button.setAttribute("aria-expanded", String(!folded));
  });
}
