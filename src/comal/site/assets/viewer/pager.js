/**
 * From page to page.
 */

import { h } from "../ui/dom.js";
import { fill } from "../ui/page.js";

/**
 * @param {HTMLElement} holder hidden where one page is all
 * @param {number} offset of the page that is shown
 * @param {number} step how many a page holds
 * @param {number} total
 * @param {(offset: number) => void} go
 */
export function showPager(holder, offset, step, total, go) {
  /** @param {string} text @param {number} to @param {boolean} isThere */
  const button = (text, to, isThere) =>
    h(
      "button",
      { type: "button", class: "button button--small", disabled: !isThere, click: () => go(to) },
      text,
    );
  const buttons = [
    button("Previous", Math.max(0, offset - step), offset > 0),
    button("Next", offset + step, offset + step < total),
  ];
  const hadFocus = [...holder.children].findIndex((one) => one === document.activeElement);
  holder.hidden = total <= step;
  fill(holder, ...buttons);
  // At an end the button that leads on is switched off, and the other one is left.
  if (hadFocus >= 0) (buttons[hadFocus].disabled ? buttons[1 - hadFocus] : buttons[hadFocus]).focus();
}
