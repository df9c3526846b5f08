/**
 * Samples as a tree: folders open as they are asked for.
 */

import { h } from "../ui/dom.js";
import { getJson } from "./api.js";
import { reasonOf } from "../ui/query.js";
import { size } from "../ui/format.js";
import { emptiness, failure, fill, waiting } from "../ui/page.js";

const LIMIT = 200;

/** The tree of one data set. */
export class SampleTree {
  /**
   * @param {string} name the source's name as it stands in an address
   * @param {any} detail
   * @param {(path: string) => void} open
   */
  constructor(name, detail, open) {
    this.name = name;
    this.detail = detail;
    this.open = open;
  }

  /** @param {AbortSignal} signal @returns {Promise<{element: HTMLElement, total: number}>} */
  async read(signal) {
    const found = await this.ask("", 0, signal);
    const branch = found.children.length
      ? this.branch("", found)
      : emptiness("No samples", "The data set is empty.");
    return { element: h("div", {}, this.schema(), branch), total: found.total };
  }

  /** @param {string} path @param {number} offset @param {AbortSignal} [signal] */
  ask(path, offset, signal) {
    return getJson(`${this.name}/tree`, { path, limit: LIMIT, offset }, { signal });
  }

  /** The position-invariant tree: what is the same in every sample. */
  schema() {
    const { tree } = this.detail;
    if (!tree) return null;
    const levels = Object.entries(tree.hierarchy ?? {}).map(([level, shapes]) =>
      h("li", {}, h("span", { class: "schema__level" }, `Level ${level}`), ...patterns(shapes)),
    );
    return h(
      "details",
      { class: "schema" },
      h("summary", {}, "What every sample holds"),
      h(
        "ul",
        {},
        h(
          "li",
          {},
          h("span", { class: "schema__level" }, "Level 0"),
          h("span", { class: "chip" }, String(tree.root?.type ?? tree.root)),
        ),
        ...levels,
      ),
    );
  }

  /** @param {string} path @param {any} found */
  branch(path, found) {
    const list = h(
      "ul",
      { class: "tree" },
      ...found.children.map((/** @type {any} */ child) => this.leaf(child)),
    );
    this.more(list, path, found.next);
    return list;
  }

  /** @param {HTMLElement} list @param {string} path @param {number | null | undefined} next */
  more(list, path, next) {
    if (next === null || next === undefined) return;
    const button = h("button", { type: "button", class: "button button--small" }, "More");
    const item = h("li", {}, button);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const found = await this.ask(path, next);
        item.replaceWith(...found.children.map((/** @type {any} */ child) => this.leaf(child)));
        this.more(list, path, found.next);
      } catch (error) {
        button.disabled = false;
        fill(item, failure("The rest could not be read", reasonOf(error)), button);
      }
    });
    list.append(item);
  }

  /** @param {any} child */
  leaf(child) {
    if (child.has_children) return this.folder(child);
    const facts = child.size === null ? "" : size(child.size);
    return h("li", {}, this.link(child.path, child.id), h("span", { class: "tree__facts" }, facts));
  }

  /** @param {string} path @param {string} text */
  link(path, text) {
    return h(
      "button",
      { type: "button", class: "link", dir: "auto", click: () => this.open(path) },
      text,
    );
  }

  /** @param {any} child */
  folder(child) {
    const below = h("div", {}, waiting("Reading"));
    const details = h(
      "details",
      {},
      h("summary", { dir: "auto" }, child.id),
      this.link(child.path, "About this folder"),
      below,
    );
    let isRead = false;
    const read = async () => {
      if (!details.open || isRead) return;
      isRead = true;
      try {
        fill(below, this.branch(child.path, await this.ask(child.path, 0)));
      } catch (error) {
        isRead = false;
        fill(below, failure("The folder cannot be read", reasonOf(error), read));
      }
    };
    details.addEventListener("toggle", read);
    return h("li", {}, details);
  }
}

/** The types and ids of a level. @param {any} shapes */
function patterns(shapes) {
  return (Array.isArray(shapes) ? shapes : [shapes]).map((shape) => {
    const types = [shape?.type ?? []].flat();
    const ids = [shape?.id ?? []].flat();
    const parts = types.map((type, index) =>
      ids[index] ? `${ids[index]} (${type})` : String(type),
    );
    return h(
      "span",
      { class: "schema__shape", dir: "auto" },
      parts.join(", ") || JSON.stringify(shape),
    );
  });
}
