/**
 * Tabs: arrows move between them, Home and End to the outermost.
 */

import { h } from "../ui/dom.js";

/**
 * @param {string} label
 * @param {string} chosen
 * @param {string[]} names
 * @param {HTMLElement} panel what every tab shows its content in
 * @param {(name: string) => void} onChoose
 */
export function tabList(label, chosen, names, panel, onChoose) {
  const buttons = names.map((name) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        class: "tab",
        id: `tab-${name}`,
        "aria-controls": panel.id,
        click: () => choose(name),
      },
      name[0].toUpperCase() + name.slice(1),
    ),
  );

  /** @param {string} name */
  function mark(name) {
    buttons.forEach((button, index) => {
      const isOwn = names[index] === name;
      button.setAttribute("aria-selected", String(isOwn));
      button.tabIndex = isOwn ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", `tab-${name}`);
  }

  /** @param {string} name */
  function choose(name) {
    mark(name);
    onChoose(name);
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    const at = buttons.findIndex((button) => button.tabIndex === 0);
    const last = buttons.length - 1;
    const next = {
      ArrowRight: at === last ? 0 : at + 1,
      ArrowLeft: at === 0 ? last : at - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(names[next]);
    buttons[next].focus();
  }

  mark(chosen);
  return h(
    "div",
    { class: "tabs", role: "tablist", "aria-label": label, keydown: move },
    ...buttons,
  );
}
