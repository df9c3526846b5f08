/**
 * Samples as rows.
 */

import { h } from "../ui/dom.js";
import { cell } from "../ui/format.js";

const LONG = 36;

/**
 * @param {{columns: {name: string, kind: string}[], rows: unknown[][]}} found
 * @param {string} sortby a column, `-` before it for descending order, or nothing
 * @param {{sort: (sortby: string) => void, open: (path: string) => void}} actions
 */
export function sampleTable({ columns, rows }, sortby, actions) {
  const head = columns.map((column) => heading(column, sortby, actions.sort));
  const body = rows.map((row) => {
    const cells = row.map((content, index) => {
      const text = cell(content, columns[index].kind);
      return index === 0
        ? first(text, () => actions.open(String(content)))
        : other(text, columns[index].kind);
    });
    return h("tr", {}, ...cells);
  });
  return h(
    "div",
    { class: "table" },
    h(
      "table",
      {},
      h("caption", { class: "sr-only" }, "Samples. The headings sort them."),
      h("thead", {}, h("tr", {}, ...head)),
      h("tbody", {}, ...body),
    ),
  );
}

/** @param {string} text @param {() => void} click */
function first(text, click) {
  return h(
    "th",
    { scope: "row" },
    h("button", { type: "button", class: "link", dir: "auto", click }, text),
  );
}

/** @param {string} text @param {string} kind */
function other(text, kind) {
  const title = text.length > LONG ? text : undefined;
  return h("td", { class: kind === "number" ? "numeric" : undefined, dir: "auto", title }, text);
}

/**
 * @param {{name: string, kind: string}} column @param {string} sortby
 * @param {(sortby: string) => void} sort
 */
function heading({ name, kind }, sortby, sort) {
  const isUp = sortby === name;
  const isDown = sortby === `-${name}`;
  // Once up, once down, and then the order of the archive again.
  const next = isUp ? `-${name}` : isDown ? "" : name;
  const order = isUp ? "ascending" : isDown ? "descending" : "none";
  const arrow = isUp ? "\u2191" : isDown ? "\u2193" : "";
  return h(
    "th",
    { scope: "col", class: kind === "number" ? "numeric" : undefined, "aria-sort": order },
    h(
      "button",
      { type: "button", class: "link", dir: "auto", "data-column": name, click: () => sort(next) },
      name,
      h("span", { class: "arrow", "aria-hidden": "true" }, arrow),
    ),
  );
}
