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

/** One of our own icons, drawn on 20 by 20. @param {string} path */
export function icon(path) {
  return svg(
    "svg",
    { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("path", { d: path }),
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

/**
 * What stands in a text that may hold HTML, as plain text. Nothing of it is loaded or run.
 * @param {string} content
 */
export function plainText(content) {
  return new DOMParser().parseFromString(content, "text/html").body.textContent?.trim() ?? "";
}

let lastId = 0;

/** An id that no other element has. */
export function newId() {
  lastId += 1;
  return `field-${lastId}`;
}
