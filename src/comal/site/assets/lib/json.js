/**
 * JSON of strangers, and numbers of more digits than JavaScript keeps.
 */

/**
 * For `JSON.parse`: integers that a number would round are texts of all their digits. Browsers that
 * do not tell it how a number is written round them.
 * @type {any}
 */
export const exact = (
  /** @type {string} */ _,
  /** @type {unknown} */ value,
  /** @type {{source?: string} | undefined} */ context,
) => {
  const isRounded =
    typeof value === "number" &&
    !Number.isSafeInteger(value) &&
    /^-?\d+$/.test(context?.source ?? "");
  return isRounded ? context?.source : value;
};

/** JSON, or undefined when it is none. @param {string} content */
export function parseJson(content) {
  try {
    return JSON.parse(content.replace(/^\uFEFF/, ""));
  } catch {
    return undefined;
  }
}
