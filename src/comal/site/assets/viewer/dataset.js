/**
 * The page of one data set: what is chosen, what fits it, and the line of Python that loads it.
 */

import { byId, h, newId } from "../ui/dom.js";
import { getJson } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { columnFilters } from "./columnfilters.js";
import { filterText } from "./cql.js";
import { count, counted, day, size } from "../ui/format.js";
import { FootprintLoader } from "./footprintloader.js";
import {
  announce,
  codeBlock,
  debounced,
  emptiness,
  failure,
  field,
  fill,
  waiting,
} from "../ui/page.js";
import { showPager } from "./pager.js";
import { showSample } from "./sample.js";
import { sampleTable } from "./table.js";
import { tabList } from "./tabs.js";
import { thumbnails } from "./thumbnails.js";
import { SampleTree } from "./tree.js";

const PAGE = 60;
const ROWS = 100;
const KEY = "data";

/** One data set as it is looked at. */
export class Dataset {
  /**
   * @param {HTMLElement} holder
   * @param {import("./map.js").MapView} view
   * @param {string} name
   * @param {any} detail what the server says of it
   */
  constructor(holder, view, name, detail) {
    this.holder = holder;
    this.view = view;
    this.title = name;
    this.name = encodeURIComponent(name);
    this.detail = detail;
    /** @type {Map<string, any>} */
    this.filters = new Map();
    this.byMap = false;
    this.time = ["", ""];
    this.sortby = "";
    this.offset = 0;
    this.tab = "thumbnails";
    /** @type {AbortController | null} */
    this.running = null;
    /** What the footprints on the map were asked with. */
    this.drawn = "";
    this.isClosed = false;
    this.footprints = new FootprintLoader(
      view,
      { key: KEY, name: this.name, color: -1, isPlaced: detail.placed !== false },
      (text) => view.note(text),
    );
    this.summary = h("p", { class: "summary", role: "status" });
    this.results = h("div", { class: "results", id: "results", role: "tabpanel", tabindex: 0 });
    this.pager = h("nav", { class: "pager", "aria-label": "Pages", hidden: true });
    this.filterHolder = h("div", { class: "filters__body" });
    this.clearButton = h(
      "button",
      { type: "button", class: "button button--small", hidden: true },
      "Clear",
    );
    this.clearButton.addEventListener("click", () => this.clear());
    this.refreshSoon = debounced(() => this.refresh(), 250);
  }

  open() {
    const tabs = tabList(
      "Samples as",
      this.tab,
      ["thumbnails", "table", "tree"],
      this.results,
      (id) => {
        this.tab = id;
        this.offset = 0;
        this.results.scrollTop = 0;
        this.refresh();
      },
    );
    fill(
      this.holder,
      h("div", { class: "filters" }, this.about(), this.filterHolder),
      h(
        "div",
        { class: "found" },
        h("div", { class: "found__head" }, tabs, this.summary),
        this.results,
        this.pager,
        h(
          "details",
          { class: "python" },
          h("summary", {}, "Load this in Python"),
          codeBlock(h("code", {}, this.detail.python ?? "")),
        ),
      ),
    );
    this.showFilters();
    if (!this.view.isPlaced) this.view.fit(this.detail.bounds, { animate: false });
    this.refresh();
  }

  close() {
    this.running?.abort();
    this.isClosed = true;
    this.footprints.close();
  }

  /** The map was moved. */
  moved() {
    if (this.byMap) this.changed();
    else this.footprints.moved();
  }

  changed() {
    this.offset = 0;
    this.results.setAttribute("aria-busy", "true");
    this.clearButton.toggleAttribute("hidden", !this.isFiltered());
    this.refreshSoon();
  }

  isFiltered() {
    return this.byMap || this.time.some(Boolean) || this.filters.size > 0;
  }

  about() {
    const { detail } = this;
    const facts = [
      counted(detail.count, "sample"),
      detail.size ? size(detail.size) : null,
      detail.time ? `${day(detail.time[0])} to ${day(detail.time[1])}` : null,
      detail.licenses?.length ? detail.licenses.join(", ") : null,
    ];
    const items = facts.filter(Boolean).map((fact) => h("li", { dir: "auto" }, fact));
    const keywords = (detail.keywords ?? []).map((/** @type {unknown} */ word) =>
      h("li", { class: "chip", dir: "auto" }, String(word)),
    );
    return h(
      "div",
      { class: "about" },
      h("a", { class: "back", href: "#/" }, "\u2190 All sources"),
      h("h1", { dir: "auto" }, String(detail.title ?? detail.name)),
      h("ul", { class: "about__facts" }, ...items),
      detail.description && h("p", { class: "about__text", dir: "auto" }, detail.description),
      keywords.length > 0 && h("ul", { class: "keywords", "aria-label": "Keywords" }, ...keywords),
    );
  }

  /** Let everything through again. */
  clear() {
    this.byMap = false;
    this.time = ["", ""];
    this.filters.clear();
    this.showFilters();
    this.changed();
    byId("filter-title").focus();
  }

  /** Filters as they are when nothing is chosen. */
  showFilters() {
    const columns = this.detail.levels?.[0]?.columns ?? [];
    fill(
      this.filterHolder,
      h(
        "div",
        { class: "filters__head" },
        h("h2", { id: "filter-title", tabindex: -1 }, "Filter"),
        this.clearButton,
      ),
      this.detail.placed === false ? null : this.mapFilter(),
      this.timeFilter(),
      columnFilters(`${this.name}/columns/{name}`, columns, this.filters, () => this.changed()),
    );
  }

  mapFilter() {
    const id = newId();
    const change = () => {
      this.byMap = box.checked;
      this.changed();
    };
    const box = h("input", { type: "checkbox", id, change });
    return h("div", { class: "tick" }, box, h("label", { for: id }, "Only in the area of the map"));
  }

  timeFilter() {
    const { time, timed } = this.detail;
    if (!time || timed === false) return null;
    const [min, max] = time.map((/** @type {unknown} */ end) =>
      end ? String(end).slice(0, 10) : undefined,
    );
    const inputs = ["From", "To"].map((label, which) => {
      const input = h("input", { type: "date", class: "number", min, max });
      input.addEventListener("change", () => {
        this.time[which] = input.value;
        this.changed();
      });
      return field(label, input);
    });
    return h("div", { class: "period" }, ...inputs);
  }

  /** What is chosen, as parameters. @returns {Record<string, string | null>} */
  parameters() {
    const [from, to] = this.time;
    return {
      bbox: this.byMap ? this.view.box() : null,
      datetime: from || to ? `${from || ".."}/${to || ".."}` : null,
      filter: filterText(this.filters),
    };
  }

  async refresh() {
    if (this.isClosed) return;
    this.running?.abort();
    const running = new AbortController();
    const { signal } = running;
    this.running = running;
    this.results.setAttribute("aria-busy", "true");
    if (!this.results.childElementCount) fill(this.results, waiting("Reading samples"));
    try {
      await this.view.ready;
      const parts = {
        thumbnails: () => this.pictures(signal),
        table: () => this.rows(signal),
        tree: () => this.tree(signal),
      };
      await Promise.all([parts[/** @type {"tree"} */ (this.tab)](), this.drawFootprints(signal)]);
    } catch (error) {
      if (signal.aborted) return;
      // What comes late does not take the place of the reason.
      running.abort();
      fill(this.summary);
      this.pager.hidden = true;
      fill(
        this.results,
        failure("The samples could not be read", reasonOf(error), () => this.refresh()),
      );
    }
    this.results.removeAttribute("aria-busy");
  }

  /** Footprints of all that fits. @param {AbortSignal} signal */
  async drawFootprints(signal) {
    const parameters = this.parameters();
    const wanted = JSON.stringify(parameters);
    if (wanted === this.drawn) return;
    await this.footprints.load(parameters, signal);
    this.drawn = wanted;
  }

  /** @param {AbortSignal} signal */
  async pictures(signal) {
    const asked = { ...this.parameters(), sortby: this.sortby, limit: PAGE, offset: this.offset };
    const found = await getJson(`${this.name}/items`, asked, { signal });
    this.tell(found.numberMatched, found.numberReturned);
    this.page(found.numberMatched, PAGE);
    const list = thumbnails(
      found.features,
      (path) => this.show(path),
      (path) => this.choose(path),
    );
    fill(this.results, found.features.length ? list : this.nothing());
  }

  /** @param {AbortSignal} signal */
  async rows(signal) {
    const asked = { ...this.parameters(), sortby: this.sortby, limit: ROWS, offset: this.offset };
    const found = await getJson(`${this.name}/table`, asked, { signal });
    this.tell(found.matched, found.returned);
    this.page(found.matched, ROWS);
    const sort = (/** @type {string} */ sortby) => {
      this.sortby = sortby;
      this.changed();
    };
    const table = sampleTable(found, this.sortby, { sort, open: (path) => this.show(path) });
    const column = this.results.querySelector(":focus")?.getAttribute("data-column");
    fill(this.results, found.rows.length ? table : this.nothing());
    if (column)
      [...table.querySelectorAll("button")].find((one) => one.dataset.column === column)?.focus();
  }

  /** @param {AbortSignal} signal */
  async tree(signal) {
    const tree = new SampleTree(this.name, this.detail, (path) => this.show(path));
    const { element, total } = await tree.read(signal);
    this.pager.hidden = true;
    const levels = this.detail.levels?.length ?? 1;
    const text = `${counted(total, "sample")}, ${counted(levels, "level")}`;
    fill(this.summary, this.isFiltered() ? `${text}; filters do not apply here` : text);
    fill(this.results, element);
  }

  /** @param {string | null} path */
  choose(path) {
    this.view.footprints.choose(KEY, path);
  }

  /** @param {string} path ids joined by slashes */
  async show(path) {
    const [top] = path.split("/");
    this.choose(top);
    const dialog = /** @type {HTMLDialogElement} */ (byId("sample"));
    await showSample(dialog, this.name, path, (bounds) => this.view.fit(bounds));
    this.choose(null);
  }

  /** @param {number} matched @param {number} returned */
  tell(matched, returned) {
    const span = `${count(this.offset + 1)} to ${count(this.offset + returned)} of `;
    const total = this.detail.count;
    const of = this.isFiltered() && matched !== total ? ` of ${count(total)}` : "";
    const text = (matched > returned ? span : "") + counted(matched, "sample") + of;
    fill(this.summary, text);
    announce(text);
  }

  nothing() {
    if (!this.detail.count) return emptiness("No samples", "The data set is empty.");
    return emptiness("No sample matches", "Widen the filters, or move the map.");
  }

  /** @param {number} matched @param {number} step */
  page(matched, step) {
    showPager(this.pager, this.offset, step, matched, (offset) => {
      this.offset = offset;
      this.results.scrollTop = 0;
      this.refresh();
    });
  }
}
