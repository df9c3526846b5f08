/**
 * Samples as pictures.
 */

import { h } from "../ui/dom.js";
import { assetAddress } from "./api.js";
import { instant } from "../ui/format.js";
import { fill } from "../ui/page.js";

/**
 * @param {any[]} items
 * @param {(path: string) => void} open
 * @param {(path: string | null) => void} choose called as the pointer or the focus comes and goes
 */
export function thumbnails(items, open, choose) {
  const none = !items.some((item) => item.assets?.thumbnail);
  const name = none ? "thumbnails thumbnails--bare" : "thumbnails";
  return h("ul", { class: name }, ...items.map((item) => thumbnail(item, open, choose)));
}

/** @param {any} item @param {(path: string) => void} open @param {(path: string | null) => void} choose */
function thumbnail(item, open, choose) {
  const path = item["comal:path"];
  const time = item.properties?.datetime;
  const listeners = {
    click: () => open(path),
    mouseenter: () => choose(path),
    focus: () => choose(path),
    mouseleave: () => choose(null),
    blur: () => choose(null),
  };
  return h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "thumbnail", title: item.id, ...listeners },
      picture(item),
      h("span", { class: "thumbnail__id", dir: "auto" }, item.id),
      time && h("span", { class: "thumbnail__time" }, instant(time)),
    ),
  );
}

/** @param {any} item */
function picture(item) {
  const frame = h("span", { class: "picture" });
  const pictured = Boolean(item.assets?.thumbnail);
  const none = h("span", { class: "picture__none" }, pictured ? "no picture" : "no raster");
  if (!pictured) return fill(frame, none);
  const src = assetAddress(item, "preview", { size: 256 });
  const image = h("img", { src, alt: "", loading: "lazy", width: 256, height: 256 });
  image.addEventListener("error", () => fill(frame, none));
  return fill(frame, image);
}
