/**
 * Choices of a user as CQL2 text, the one filter language that the server takes.
 */

/** A name as CQL2 writes it. @param {string} name */
export function quotedName(name) {
  return `"${name.replaceAll('"', '""')}"`;
}

/** A text as CQL2 writes it. @param {unknown} text */
export function quotedText(text) {
  return `'${String(text).replaceAll("'", "''")}'`;
}

/**
 * @typedef {{kind: "number" | "time", low: number | string | null, high: number | string | null} |
 *   {kind: "text" | "boolean", chosen: Set<string | boolean>}} ColumnFilter
 */

/**
 * One condition per column that is restricted.
 * @param {Map<string, ColumnFilter>} filters
 * @returns {string} "" when nothing is
 */
export function filterText(filters) {
  return [...filters]
    .map(([name, filter]) => condition(quotedName(name), filter))
    .filter((text) => text !== "")
    .join(" AND ");
}

/** @param {string} name @param {ColumnFilter} filter */
function condition(name, filter) {
  if ("low" in filter) {
    const literal =
      filter.kind === "time"
        ? (/** @type {unknown} */ end) => `TIMESTAMP(${quotedText(end)})`
        : String;
    return [
      filter.low === null ? "" : `${name} >= ${literal(filter.low)}`,
      filter.high === null ? "" : `${name} <= ${literal(filter.high)}`,
    ]
      .filter((text) => text !== "")
      .join(" AND ");
  }
  if (!filter.chosen.size) return "";
  const literal =
    filter.kind === "boolean"
      ? (/** @type {unknown} */ one) => (one ? "TRUE" : "FALSE")
      : quotedText;
  return `${name} IN (${[...filter.chosen].map(literal).join(", ")})`;
}
