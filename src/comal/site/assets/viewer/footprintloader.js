/**
 * Footprints of one data set: of all that fits the filters or, where those are more than the
 * server sends at once, of what lies where the map looks.
 */

import { getJson, isAbort } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { count } from "../ui/format.js";
import { debounced } from "../ui/page.js";

const MOST = 1000;

/** Keeps the footprints of one data set on the map. */
export class FootprintLoader {
  /**
   * @param {import("./map.js").MapView} view
   * @param {{key: string, name: string, color: number, isPlaced: boolean}} group `name` is the
   *   source's as it stands in an address; `isPlaced` whether samples can be found by a box
   * @param {(text: string) => void} tell what of them the map does not show
   */
  constructor(view, { key, name, color, isPlaced }, tell) {
    this.view = view;
    this.key = key;
    this.name = name;
    this.color = color;
    this.isPlaced = isPlaced;
    this.tell = tell;
    /** @type {Record<string, string | null>} */
    this.parameters = {};
    /** Whether there are more than the server sends at once. */
    this.isPart = false;
    /** @type {AbortController | null} */
    this.asking = null;
    this.followSoon = debounced(() => this.follow(), 250);
  }

  /**
   * Show what fits the filters.
   * @param {Record<string, string | null>} [parameters] of the filters
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>} the first of all that fit
   */
  async load(parameters = {}, signal = undefined) {
    this.asking?.abort();
    this.asking = null;
    const found = await this.ask(parameters, signal);
    this.parameters = parameters;
    this.isPart = found.numberMatched > found.features.length;
    if (this.follows) await this.follow();
    else this.show(found);
    return found;
  }

  /** Whether other footprints are wanted when the map looks elsewhere. */
  get follows() {
    return this.isPart && this.isPlaced && !this.parameters.bbox;
  }

  /** The map was moved. */
  moved() {
    if (this.follows) this.followSoon();
  }

  /** Show what lies where the map looks. */
  async follow() {
    if (!this.follows) return;
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      this.show(await this.ask({ ...this.parameters, bbox: this.view.box() }, signal));
    } catch (error) {
      if (!isAbort(error)) this.tell(`The samples here could not be read: ${reasonOf(error)}`);
    }
  }

  /** @param {Record<string, string | null>} parameters @param {AbortSignal | undefined} signal */
  ask(parameters, signal) {
    return getJson(`${this.name}/items`, { ...parameters, limit: MOST }, { signal });
  }

  /** @param {any} found */
  show(found) {
    this.view.footprints.show(this.key, found, this.color);
    this.tell(this.noteOf(found));
  }

  /** @param {any} found */
  noteOf({ features, numberMatched }) {
    if (features.length && !features.some((/** @type {any} */ one) => one.geometry))
      return "These samples do not say where they are.";
    if (numberMatched <= features.length) return "";
    const some = `The map shows the first ${count(features.length)} of ${count(numberMatched)} samples`;
    return this.follows
      ? `${some} that lie here. Zoom in to see the others.`
      : `${some}. Filter them to see others.`;
  }

  /** Take them off the map. */
  close() {
    this.asking?.abort();
    this.isPart = false;
    this.tell("");
    this.view.footprints.hide(this.key);
  }
}
