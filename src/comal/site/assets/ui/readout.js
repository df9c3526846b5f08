/**
 * What is under the pointer: the place, values of rasters, names of features.
 */

import { h } from "./dom.js";
import { place as placeText, value as shownValue } from "./format.js";
import { layerIds } from "./mapview.js";

/** @typedef {import("./sources.js").SourceState} SourceState */

const FEATURE_NAMES = ["name", "name:en", "title", "label", "kind", "class", "type", "id"];

/**
 * Keep the readout up to date. Without a pointer it tells of the centre of the map.
 * @param {import("../../vendor/maplibre-gl/maplibre-gl.js").Map} map
 * @param {HTMLElement} element
 * @param {() => SourceState[]} states that are shown, the uppermost first
 * @param {(state: SourceState, place: {lng: number, lat: number}) => Promise<any>} valuesAt
 */
export function watchPointer(map, element, states, valuesAt) {
  /** @type {{lng: number, lat: number} | undefined} */
  let next;
  let busy = false;

  const run = async () => {
    if (busy) return;
    busy = true;
    while (next) {
      const place = next;
      next = undefined;
      const values = await Promise.all(
        states().map((state) => valueOf(map, state, place, valuesAt)),
      );
      show(element, map, place, values.flat());
    }
    busy = false;
  };
  const want = (/** @type {{lng: number, lat: number}} */ place) => {
    next = place;
    run();
  };
  map.on("mousemove", (event) => want(event.lngLat.wrap()));
  map.on("click", (event) => want(event.lngLat.wrap()));
  map.on("moveend", (event) => {
    // Moved by the keyboard: there is no pointer to tell of.
    if (event.originalEvent instanceof KeyboardEvent || document.activeElement === map.getCanvas())
      want(map.getCenter().wrap());
  });
}

/**
 * @param {import("../../vendor/maplibre-gl/maplibre-gl.js").Map} map @param {SourceState} state
 * @param {{lng: number, lat: number}} place
 * @param {(state: SourceState, place: {lng: number, lat: number}) => Promise<any>} valuesAt
 */
async function valueOf(map, state, place, valuesAt) {
  if (state.info.comal.kind === "raquet") {
    const answer = await valuesAt(state, place).catch(() => undefined);
    const wanted = state.look.getAll("bidx").map((band) => Number(band) - 1);
    const values = wanted.map((band) => answer?.values?.[band]).filter(Boolean);
    if (!values.length) return [];
    const shown = values.map((/** @type {any} */ value) => shownValue(value.value));
    return [
      {
        name: state.info.name,
        value: shown.join(", "),
        unit: values[0].value === null ? "" : values[0].unit,
      },
    ];
  }
  if (state.info.comal.type !== "vector") return [];
  const [feature] = map.queryRenderedFeatures(map.project(place), { layers: layerIds(map, state) });
  if (!feature) return [];
  const key = FEATURE_NAMES.find((name) => feature.properties?.[name] !== undefined);
  return [
    {
      name: feature.sourceLayer ?? state.info.name,
      value: String(key ? feature.properties[key] : "feature"),
      unit: "",
    },
  ];
}

/**
 * @param {HTMLElement} element @param {import("../../vendor/maplibre-gl/maplibre-gl.js").Map} map
 * @param {{lng: number, lat: number}} place @param {{name: string, value: string, unit: string}[]} values
 */
function show(element, map, place, values) {
  const digits = Math.min(6, Math.max(2, Math.round(map.getZoom() / 3)));
  const text = placeText(place.lng, place.lat, digits);
  element.replaceChildren(
    ...values
      .slice(0, 4)
      .map(({ name, value, unit }) =>
        h(
          "span",
          { class: "readout__value" },
          h("span", { class: "readout__name", dir: "auto" }, name),
          " ",
          h("b", {}, value.slice(0, 60), unit && ` ${unit}`),
        ),
      ),
    h("span", { class: "readout__place" }, text),
  );
  element.hidden = false;
}
