/**
 * How a raster is drawn: bands, colour map, stretch, formula, time. The names are the server's.
 */

/**
 * @typedef {object} RasterStyle
 * @property {"one" | "rgb" | "formula"} mode
 * @property {number[]} bands counted from 1
 * @property {string | null} colormap
 * @property {([number, number] | null)[]} rescale by place in `bands`; null until values are known
 * @property {string} expression
 * @property {number} time step of a time series
 */

/**
 * The style that a source has before anybody chooses.
 * @param {any} detail
 * @returns {RasterStyle}
 */
export function initialStyle(detail) {
  const bands = detail.defaults?.bidx ?? [1];
  const mode = bands.length >= 3 ? "rgb" : "one";
  /** @type {number[]} */
  const shown = mode === "rgb" ? bands.slice(0, 3) : bands.slice(0, 1);
  const rescale = detail.defaults?.rescale ?? [];
  return {
    mode,
    bands: shown,
    colormap: detail.defaults?.colormap_name ?? null,
    rescale: shown.map((band, index) => rescale[index] ?? rescale[0] ?? fullRange(detail, band)),
    expression: "",
    time: 0,
  };
}

/**
 * The stretch that changes nothing: bytes are colours as they are.
 * @param {any} detail
 * @param {number} band
 * @returns {[number, number] | null}
 */
export function fullRange(detail, band) {
  return detail.bands?.[band - 1]?.dtype === "uint8" ? [0, 255] : null;
}

/**
 * What turns the numbers of pixels into those that the unit of a band counts, and back.
 * @param {any} band null for a formula
 */
export function physical(band) {
  const [scale, offset] = [band?.scale || 1, band?.offset || 0];
  if (scale === 1 && offset === 0) return { of: (/** @type {any} */ one) => one, back: Number };
  return {
    of: (/** @type {any} */ one) => (one === null ? null : Number(one) * scale + offset),
    back: (/** @type {string} */ text) => (Number(text) - offset) / scale,
  };
}

/** Whether a band is drawn in the colours of its own table. @param {any} detail @param {RasterStyle} style */
export function isPaletted(detail, style) {
  return (
    style.mode === "one" &&
    !style.colormap &&
    Boolean(detail.bands?.[style.bands[0] - 1]?.has_colortable)
  );
}

/**
 * Parameters of a tile request.
 * @param {any} detail
 * @param {RasterStyle} style
 * @returns {Record<string, unknown>}
 */
export function tileParameters(detail, style) {
  const time = detail.time ? style.time : null;
  const wanted = style.mode === "rgb" ? 3 : 1;
  const stretches = style.rescale.slice(0, wanted);
  // One stretch counts for every band, so that all of them are said or none.
  const isKnown = stretches.length === wanted && stretches.every(Boolean);
  const rescale = isKnown ? stretches.map((one) => /** @type {number[]} */ (one).join(",")) : [];
  if (style.mode === "formula") {
    return { expression: style.expression, rescale, colormap_name: style.colormap, time };
  }
  const bidx = style.bands.slice(0, wanted);
  if (isPaletted(detail, style)) return { bidx, time };
  return { bidx, rescale, colormap_name: style.mode === "one" ? style.colormap : null, time };
}

/**
 * Parameters that name the same values at a point or in a histogram.
 * @param {any} detail
 * @param {RasterStyle} style
 * @param {number} [index] which of the bands; all of them without
 * @returns {Record<string, unknown>}
 */
export function valueParameters(detail, style, index) {
  const time = detail.time ? style.time : null;
  if (style.mode === "formula" && style.expression) return { expression: style.expression, time };
  const shown = style.mode === "rgb" ? style.bands.slice(0, 3) : style.bands.slice(0, 1);
  return { bidx: index === undefined ? shown : shown[index], time };
}
