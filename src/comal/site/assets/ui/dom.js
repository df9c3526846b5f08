/**
 * Elements, made so that content is always text.
 */

/**
 * An element. Properties that are functions listen; `class`, `aria-…` and others are attributes.
 * Children that are no elements become text, whatever they look like.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, unknown>} [properties]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function")
      element.addEventListener(key, /** @type {EventListener} */ (value));
    else if (typeof value === "boolean") element.toggleAttribute(key, value);
    else if (value !== undefined && value !== null) element.setAttribute(key, String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false)
      element.append(typeof child === "number" ? String(child) : child);
  }
  return element;
}

/**
 * An SVG element.
 * @param {string} name
 * @param {Record<string, string | number>} [attributes]
 * @param {...Node} children
 */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/**
 * A button that shows one of our own icons.
 * @param {string} label
 * @param {string} path of the icon, drawn on 20 by 20
 * @param {() => void} click
 */
export function iconButton(label, path, click) {
  const view = { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" };
  const name = "button button--icon button--plain";
  return h(
    "button",
    { type: "button", class: name, "aria-label": label, title: label, click },
    svg("svg", view, svg("path", { d: path })),
  );
}

/**
 * The element with this id, which the page is known to have.
 * @param {string} id
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page lacks #${id}`);
  return element;
}

/** Names and values as a list of facts. @param {[string, string | number | undefined][]} pairs */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    ...shown.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** Characters that attributions name; others are left as they are written. */
const ENTITIES = /** @type {Record<string, string>} */ ({
  amp: "&",
  apos: "'",
  copy: "\u00a9",
  deg: "\u00b0",
  gt: ">",
  hellip: "\u2026",
  lt: "<",
  mdash: "\u2014",
  middot: "\u00b7",
  nbsp: "\u00a0",
  ndash: "\u2013",
  quot: '"',
  reg: "\u00ae",
  trade: "\u2122",
});
/** Beyond this nobody reads on, and hostile texts would cost time. */
const LONGEST = 4000;

/**
 * What stands in a text that may hold HTML, as plain text. Nothing parses it as a document: what
 * is left over is shown as text, so that nothing depends on finding every tag.
 * @param {unknown} content
 */
export function plainText(content) {
  return String(content ?? "")
    .slice(0, LONGEST)
    .replace(/<(script|style)\b[^>]*>[^]*?<\/\1[^>]*>/gi, "")
    .replace(/<!--[^]*?-->|<\/?[a-z][^<>]*>/gi, "")
    .replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]+));/gi, (whole, decimal, hex, name) => {
      if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : whole;
      const code = decimal ? Number(decimal) : parseInt(hex, 16);
      return code > 31 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
    })
    .trim();
}

let lastId = 0;

/** An id that no other element has. */
export function newId() {
  lastId += 1;
  return `field-${lastId}`;
}
