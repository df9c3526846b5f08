/**
 * The page: which part of it is shown, and what its parts tell one another.
 */

import { reasonOf } from "../ui/query.js";
import { byId } from "../ui/dom.js";
import { watchTheme } from "../ui/theme.js";
import { Inspector } from "./inspector.js";
import { MapView } from "./map.js";
import { announce, failure, fill, waiting } from "../ui/page.js";
import { Sources } from "./sources.js";

const { body } = document;

/** @type {import("./dataset.js").Dataset | null} */
let dataset = null;

const view = makeMap();
const sources = new Sources(byId("sources"), view);
const inspector = new Inspector({
  readout: byId("readout"),
  panel: byId("inspector"),
  sources,
  view,
});
start();

function makeMap() {
  try {
    return new MapView(byId("map"), {
      onMove: () => moved(),
      onHover: (place) => inspector.hover(place),
      onClick: (place) => inspector.inspect(place),
      onSample: (key, path) => openSample(key, path),
      onFailure: (id, reason) => sources.report(id, reason),
    });
  } catch (error) {
    const note = byId("map-note");
    fill(
      note,
      failure(
        "This browser cannot draw the map",
        "It needs WebGL 2, which is switched off or missing.",
      ),
    );
    note.hidden = false;
    throw error;
  }
}

function moved() {
  dataset?.moved();
  sources.moved();
}

/** @param {string} key of a group of footprints @param {string} path */
async function openSample(key, path) {
  const entry = sources.byId(key);
  if (!entry) {
    await dataset?.show(path);
    return;
  }
  view.footprints.choose(key, path);
  const { showSample } = await import("./sample.js");
  const dialog = /** @type {HTMLDialogElement} */ (byId("sample"));
  await showSample(dialog, encodeURIComponent(entry.source.name), path, (bounds) =>
    view.fit(bounds),
  );
  view.footprints.choose(key, null);
}

/** On a phone the list of sources lies over the map, and can be folded away. */
function watchFold() {
  const button = byId("fold");
  button.addEventListener("click", () => {
    const isOpen = body.toggleAttribute("data-folded") === false;
    button.setAttribute("aria-expanded", String(isOpen));
    view.map.resize();
  });
}

function watchSkip() {
  byId("skip").addEventListener("click", () =>
    byId(body.dataset.view === "map" ? "sources" : "dataset").focus(),
  );
}

/** The data set that the address names, if it names one. */
function wantedData() {
  return new URLSearchParams(location.hash.slice(1)).get("data");
}

/** The part of the page that the address names. */
async function route() {
  const wanted = wantedData();
  // Only the map has moved.
  if (wanted && dataset?.title === wanted) return;
  dataset?.close();
  dataset = null;
  inspector.close();
  /** @type {HTMLDialogElement} */ (byId("sample")).close();
  body.dataset.view = wanted ? "dataset" : "map";
  byId("sources").hidden = Boolean(wanted);
  byId("dataset").hidden = !wanted;
  sources.leave(wanted);
  byId("place").textContent = wanted ?? "";
  entitle();
  view.map.resize();
  if (wanted) await openDataset(wanted);
}

/** What the page is called: a static site has a title of its own. */
function entitle() {
  const wanted = wantedData();
  document.title = wanted ? `${wanted} \u2013 ${sources.title}` : sources.title;
  fill(byId("title"), sources.title);
}

/** @param {string} name */
async function openDataset(name) {
  const holder = byId("dataset");
  fill(holder, waiting("Opening"));
  const isLate = () => dataset !== null || wantedData() !== name;
  try {
    const [detail, { Dataset }] = await Promise.all([
      sources.detail(name),
      import("./dataset.js"),
    ]);
    if (isLate()) return;
    if (detail.kind !== "samples") {
      location.hash = "#/";
      return;
    }
    byId("place").textContent = detail.title ?? name;
    dataset = new Dataset(holder, view, name, detail);
    dataset.open();
    announce(`${detail.title ?? name} is open`);
  } catch (error) {
    if (isLate()) return;
    const back = failure("The data set cannot be opened", reasonOf(error), () => openDataset(name));
    fill(holder, back);
  }
}

async function start() {
  view.map.getCanvas().setAttribute("tabindex", "0");
  watchTheme(byId("theme"), () => {
    sources.recolor();
    view.repaint(sources.shownStates());
  });
  watchFold();
  watchSkip();
  addEventListener("hashchange", () => {
    // The map's own part of the address says where to look: a link without it looks anew.
    view.isPlaced = location.hash.includes("map=");
    route();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented) inspector.close();
  });
  await Promise.all([sources.load(!wantedData()), route()]);
  entitle();
  document.documentElement.dataset.state = "ready";
}
