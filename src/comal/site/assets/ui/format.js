/** Numbers, sizes and times as people read them. */

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
/** Keeps groups of digits together, and is narrower than a space. */
const THIN = "\u202f";

/** A count with separators. @param {number | null | undefined} number */
export function count(number) {
  if (number === null || number === undefined) return "?";
  return PLAIN.format(number).replaceAll(",", THIN);
}

/** "1 sample", "2 samples". @param {number | null | undefined} number @param {string} noun */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A value with as many digits as say something. @param {unknown} number */
export function value(number) {
  if (number === null || number === undefined) return "no data";
  if (typeof number !== "number") return String(number);
  if (!Number.isFinite(number) || Number.isInteger(number)) return String(number);
  const size = Math.abs(number);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return number.toExponential(3);
  return String(Number(number.toPrecision(6)));
}

/** Bytes in decimal units. @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown size";
  let amount = bytes;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (amount < 1000) {
      return `${amount < 10 && unit !== "B" ? amount.toFixed(1) : Math.round(amount)} ${unit}`;
    }
    amount /= 1000;
  }
  return `${amount.toFixed(1)} TB`;
}

/** An instant: the day alone where the time of day is midnight. @param {unknown} text */
export function instant(text) {
  if (!text) return "no time";
  return String(text)
    .replace(/T00:00:00(\.0+)?(Z|\+00:00)?$/, "")
    .replace("T", " ")
    .replace(/(:00)?(\.0+)?(Z|\+00:00)$/, " UTC");
}

/**
 * A day, or an instant in UTC unless it names another zone, in milliseconds; NaN if it is neither.
 * @param {string} text @param {boolean} isEnd whether a day means its end
 */
export function instantOf(text, isEnd) {
  const found = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d\S*))?(?: UTC)?$/.exec(text.trim());
  if (!found) return NaN;
  const [, date, clock] = found;
  if (!clock) return Date.parse(date) + (isEnd ? 86_399_999 : 0);
  return Date.parse(`${date}T${clock}${/(Z|[+-]\d\d:?\d\d)$/.test(clock) ? "" : "Z"}`);
}

/** The day of an instant. @param {unknown} text */
export function day(text) {
  return text ? String(text).slice(0, 10) : "\u2026";
}

/**
 * A place as people write it.
 * @param {number} longitude
 * @param {number} latitude
 * @param {number} [digits]
 */
export function place(longitude, latitude, digits = 4) {
  const east = `${Math.abs(longitude).toFixed(digits)}° ${longitude < 0 ? "W" : "E"}`;
  return `${Math.abs(latitude).toFixed(digits)}° ${latitude < 0 ? "S" : "N"}, ${east}`;
}

/** What a cell of a table shows. @param {unknown} content @param {string} kind */
export function cell(content, kind) {
  if (content === null || content === undefined) return "";
  if (kind === "time") return instant(content);
  if (typeof content === "number") return value(content);
  if (typeof content === "object") return JSON.stringify(content);
  return String(content);
}

/** `content-type` as `Content-Type`. @param {string} name */
export function headerName(name) {
  return name.replace(/(^|-)[a-z]/g, (part) => part.toUpperCase()).replace(/^Etag$/, "ETag");
}
