/**
 * Filters by column: a histogram for numbers and times, boxes to tick for texts.
 */

import { h, iconButton, newId } from "../ui/dom.js";
import { getJson } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { count, instant, instantOf, value as shown } from "../ui/format.js";
import { histogram } from "../ui/histogram.js";
import { emptiness, failure, fill, waiting } from "../ui/page.js";

const FILTERED = new Set(["number", "time", "text", "boolean"]);
const CLOSE = "m6 6 8 8M14 6l-8 8";

/** @typedef {{name: string, kind: string}} Column */

/**
 * The part of the page where columns are chosen and restricted.
 * @param {string} link address of a column, with `{name}`
 * @param {Column[]} columns
 * @param {Map<string, any>} filters changed in place
 * @param {() => void} onChange
 */
export function columnFilters(link, columns, filters, onChange) {
  const usable = columns.filter((column) => FILTERED.has(column.kind) && column.name !== "id");
  if (!usable.length) return null;
  const chosen = h("div", { class: "column-filters" });
  const select = h("select", { class: "select", "aria-label": "Filter by a column" });

  function refreshSelect() {
    const open = new Set([...chosen.children].map((one) => one.getAttribute("data-column")));
    const rest = usable.filter((column) => !open.has(column.name));
    const first = rest.length ? "By a column\u2026" : "All columns are in use";
    select.disabled = !rest.length;
    fill(
      select,
      h("option", { value: "" }, first),
      ...rest.map((column) => h("option", { value: column.name }, column.name)),
    );
  }

  select.addEventListener("change", () => {
    const column = usable.find((one) => one.name === select.value);
    if (column) chosen.append(box(column));
    refreshSelect();
  });

  /** @param {Column} column */
  function box(column) {
    const body = h("div", {}, waiting("Counting values"));
    const remove = () => {
      const isRestricted = filters.delete(column.name);
      element.remove();
      refreshSelect();
      select.focus();
      if (isRestricted) onChange();
    };
    const id = newId();
    const element = h(
      "div",
      { class: "column-filter", role: "group", "aria-labelledby": id, "data-column": column.name },
      h(
        "div",
        { class: "column-filter__head" },
        h("h3", { id, dir: "auto" }, column.name),
        iconButton(`Remove the filter by ${column.name}`, CLOSE, remove),
      ),
      body,
    );
    const read = async () => {
      try {
        const found = await getJson(link.replace("{name}", encodeURIComponent(column.name)));
        fill(body, found.histogram ? ranged(column, found) : listed(column, found));
      } catch (error) {
        fill(body, failure("No values", reasonOf(error), read));
      }
    };
    read();
    return element;
  }

  /** @param {Column} column @param {any} filter null lets everything through */
  function restrict(column, filter) {
    if (filter === null) filters.delete(column.name);
    else filters.set(column.name, filter);
    onChange();
  }

  /** @param {Column} column @param {any} found */
  function ranged(column, found) {
    const isTime = column.kind === "time";
    const { counts } = found.histogram;
    const edges = isTime
      ? found.histogram.edges.map((/** @type {string} */ edge) => Date.parse(edge))
      : found.histogram.edges;
    const [low, high] = [edges[0], edges.at(-1)];
    if (!counts.length) return emptiness("No values", "The column is empty.");
    if (low === high)
      return h(
        "p",
        { class: "caption" },
        `Every value is ${isTime ? instant(found.min) : shown(found.min)}.`,
      );
    const back = (/** @type {number} */ edge) => (isTime ? new Date(edge).toISOString() : edge);
    const format = (/** @type {number} */ edge) =>
      isTime ? new Date(edge).toISOString().slice(0, 10) : shown(edge);
    return histogram({
      edges,
      counts,
      chosen: [low, high],
      label: column.name,
      format,
      parse: isTime ? instantOf : Number,
      onChange: ([from, to]) => {
        // A handle at its end lets everything through, so that nothing is lost to rounding.
        const isWhole = from <= low && to >= high;
        const ends = { low: from <= low ? null : back(from), high: to >= high ? null : back(to) };
        restrict(column, isWhole ? null : { kind: column.kind, ...ends });
      },
    });
  }

  /** @param {Column} column @param {any} found */
  function listed(column, found) {
    if (!found.values.length) return emptiness("No values", "The column is empty.");
    const wanted = new Set();
    const items = found.values.map((/** @type {any} */ entry) => {
      const change = () => {
        wanted[input.checked ? "add" : "delete"](entry.value);
        restrict(column, wanted.size ? { kind: column.kind, chosen: new Set(wanted) } : null);
      };
      const input = h("input", { type: "checkbox", change });
      const text = String(entry.value);
      return h(
        "li",
        {},
        h(
          "label",
          {},
          input,
          h(
            "span",
            { class: "values__value", dir: "auto", title: text },
            text === "" ? "(empty)" : text,
          ),
          " ",
          h("span", { class: "values__count" }, count(entry.count)),
        ),
      );
    });
    const isShort = found.unique > found.values.length;
    const more = isShort && `The ${found.values.length} most frequent of ${count(found.unique)}.`;
    return h(
      "div",
      {},
      h("ul", { class: "values" }, ...items),
      more && h("p", { class: "caption" }, more),
    );
  }

  refreshSelect();
  return h("div", {}, chosen, select);
}
