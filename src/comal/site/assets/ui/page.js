/**
 * Parts that the modules of the pages share. What strangers wrote only ever becomes text
 * nodes and attributes that hold no code (see `h` of ./dom.js).
 */

import { byId, h, newId } from "./dom.js";

/**
 * Everything in `parent` replaced.
 * @template {Element} Parent
 * @param {Parent} parent
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {Parent}
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter(isThere));
  return parent;
}

/** @param {unknown} child @returns {child is Node | string} */
function isThere(child) {
  return child !== null && child !== undefined && child !== false;
}

/** Say something to those who do not see the page. @param {string} text */
export function announce(text) {
  byId("announcer").textContent = text;
}

/**
 * A failure in place of content, and another try if there can be one.
 * @param {string} title
 * @param {string} [reason]
 * @param {() => void} [again]
 */
export function failure(title, reason = "", again = undefined) {
  const button = h("button", { class: "button button--small", type: "button" }, "Try again");
  // Its answer takes the place of all this: one is enough.
  button.addEventListener("click", () => again?.(), { once: true });
  return h(
    "div",
    { class: "notice notice--danger", role: "alert" },
    h("strong", {}, title),
    reason && h("p", { class: "clipped", dir: "auto" }, reason),
    again && button,
  );
}

/**
 * Nothing there, and what to do about it.
 * @param {string} title
 * @param {string} [hint]
 */
export function emptiness(title, hint = "") {
  return h("div", { class: "notice" }, h("strong", {}, title), hint && h("p", {}, hint));
}

/** Something is on its way. @param {string} text what, for those who do not see the bars */
export function waiting(text) {
  return h(
    "div",
    { class: "waiting" },
    h("div", { class: "skeleton" }),
    h("div", { class: "skeleton" }),
    h("span", { class: "sr-only" }, text),
  );
}

/**
 * A control with its label before it.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {...(Node | null)} more what stands below the control
 */
export function field(label, control, ...more) {
  control.id ||= newId();
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, ...more);
}

/**
 * A slider with what it says beside it.
 * @param {string} label
 * @param {{min: number, max: number, step: number, value: number}} range
 * @param {(value: number) => string} format
 * @param {(value: number) => void} onInput
 */
export function slider(label, { min, max, step, value }, format, onInput) {
  const id = newId();
  const shown = h("output", { for: id }, format(value));
  const input = h("input", {
    id,
    type: "range",
    min,
    max,
    step,
    value,
    "aria-valuetext": format(value),
  });
  input.addEventListener("input", () => {
    const now = Number(input.value);
    shown.textContent = format(now);
    input.setAttribute("aria-valuetext", format(now));
    onInput(now);
  });
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    h("div", { class: "slider" }, input, shown),
  );
}

/**
 * A function that runs once nothing has called it for a while.
 * @template {unknown[]} Values
 * @param {(...values: Values) => void} action
 * @param {number} milliseconds
 * @returns {(...values: Values) => void}
 */
export function debounced(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/**
 * Lines of code with a button that copies them.
 * @param {HTMLElement} code the element whose text they are
 */
export function codeBlock(code) {
  const button = h("button", { class: "button button--small", type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent ?? "");
      button.textContent = "Copied";
    } catch {
      // Without https there is no clipboard; the selected text is one key away from it.
      getSelection()?.selectAllChildren(code);
      button.textContent = "Press Ctrl+C";
    }
    announce(button.textContent);
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return h("div", { class: "code" }, h("pre", { tabindex: 0 }, code), button);
}
