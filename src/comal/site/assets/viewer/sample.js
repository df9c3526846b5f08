/**
 * One sample in a dialog: its picture, what is known of it, what it holds, its bytes.
 */

import { facts, h, iconButton } from "../ui/dom.js";
import { assetAddress, getJson, pathInAddress } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { cell, counted, size } from "../ui/format.js";
import { failure, fill, waiting } from "../ui/page.js";

/** The ends of a time that nobody knows. */
const EVER = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"];

const CLOSE = "m5 5 10 10M15 5 5 15";
const MOST_CHILDREN = 50;

/**
 * Show a sample until the dialog is closed.
 * @param {HTMLDialogElement} dialog
 * @param {string} source the source's name as it stands in an address
 * @param {string} path ids joined by slashes
 * @param {(bounds: number[]) => void} [fit] move the map
 * @returns {Promise<void>} settled when the dialog is closed
 */
export async function showSample(dialog, source, path, fit) {
  const closed = new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(true), { once: true }),
  );
  if (!dialog.open) dialog.showModal();
  // A click beside the dialog lands on the dialog itself, for its backdrop is part of it.
  dialog.onclick = (event) => {
    if (event.target === dialog) dialog.close();
  };
  await show(dialog, source, path, fit);
  await closed;
}

/**
 * @param {HTMLDialogElement} dialog @param {string} source @param {string} path
 * @param {((bounds: number[]) => void) | undefined} fit
 */
async function show(dialog, source, path, fit) {
  const body = h(
    "div",
    { class: "sample__body", "aria-busy": "true" },
    waiting("Reading the sample"),
  );
  const go = (/** @type {string} */ other) => show(dialog, source, other, fit);
  const close = iconButton("Close", CLOSE, () => dialog.close());
  fill(dialog, h("header", {}, title(path, go), close), body);
  close.focus();
  try {
    const item = await getJson(`${source}/items/${pathInAddress(path)}`);
    const isFolder = item["comal:type"] === "FOLDER";
    const inside = isFolder
      ? await getJson(`${source}/tree`, { path, limit: MOST_CHILDREN })
      : null;
    fill(
      body,
      picture(item),
      properties(item),
      inside && contents(inside, go),
      actions(item, dialog, fit),
    );
  } catch (error) {
    fill(
      body,
      failure("The sample cannot be read", reasonOf(error), () => go(path)),
    );
  }
  body.removeAttribute("aria-busy");
}

/** The path, whose folders lead back up. @param {string} path @param {(path: string) => void} go */
function title(path, go) {
  const ids = path.split("/");
  const parts = ids.map((id, index) => {
    const isLast = index === ids.length - 1;
    const click = () => go(ids.slice(0, index + 1).join("/"));
    return isLast
      ? h("bdi", {}, id)
      : h(
          "span",
          {},
          h("button", { type: "button", class: "link", dir: "auto", click }, id),
          " / ",
        );
  });
  return h("h2", { id: "sample-title" }, ...parts);
}

/** @param {any} item */
function picture(item) {
  if (!item.assets?.thumbnail) return null;
  const frame = h("div", { class: "sample__picture" });
  const src = assetAddress(item, "preview", { size: 512 });
  const image = h("img", { src, alt: `Preview of ${item.id}`, width: 512, height: 512 });
  image.addEventListener("error", () => frame.remove());
  return fill(frame, image);
}

/** @param {any} item */
function properties(item) {
  const told = Object.entries(item.properties ?? {});
  const known = told.filter(([, one]) => one !== null && !EVER.includes(one));
  if (!known.length) return null;
  const rows = known.map(([name, one]) => {
    const text = cell(one, name === "datetime" ? "time" : "");
    return /** @type {[string, string]} */ ([name, text]);
  });
  return facts(rows);
}

/** @param {any} found @param {(path: string) => void} go */
function contents(found, go) {
  const items = found.children.map((/** @type {any} */ child) => {
    const link = h(
      "button",
      { type: "button", class: "link", dir: "auto", click: () => go(child.path) },
      child.id,
    );
    return h(
      "li",
      {},
      link,
      h("span", { class: "tree__facts" }, child.size === null ? "" : size(child.size)),
    );
  });
  const rest = found.total - found.children.length;
  return h(
    "section",
    {},
    h("h3", {}, counted(found.total, "sample"), " inside"),
    h("ul", { class: "tree" }, ...items),
    rest > 0 && h("p", { class: "caption" }, `and ${rest} more, in the tree`),
  );
}

/**
 * @param {any} item @param {HTMLDialogElement} dialog
 * @param {((bounds: number[]) => void) | undefined} fit
 */
function actions(item, dialog, fit) {
  const data = item.assets?.data;
  const move = () => {
    dialog.close();
    fit?.(item.bbox);
  };
  const text = data && `Download, ${size(data["file:size"])}`;
  const href = data && assetAddress(item, "data");
  return h(
    "p",
    { class: "sample__actions" },
    data && h("a", { class: "button button--primary", href, download: "" }, text),
    item.bbox &&
      fit &&
      h("button", { type: "button", class: "button", click: move }, "Show on the map"),
  );
}
