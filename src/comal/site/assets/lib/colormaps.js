/**
 * Colour maps for single bands, as tables of 256 colours.
 */

/** Evenly spaced stops; what is between is mixed. */
const STOPS = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  magma: "000004 180f3d 440f76 721f81 9e2f7f cd4071 f1605d fd9668 feca8d fcfdbf",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  terrain: "2f6f6b 5f9b6c a3c07a dfd9a0 d9bd82 b88f61 93694b 9a8577 cfc6bf fbfaf8",
  ocean: "0a1b3d 0f315f 14507f 1f759b 3b9bb0 6fbcbf a3d5cd cfe8dc eaf5ec",
  redblue: "7f1d34 b5404a db7a67 f2b79b f7ecdf d7e3ea a2c5de 639cc7 366fa8 1f4379",
  gray: "000000 ffffff",
};

/** @type {Record<string, string>} names for people */
const COLORMAPS = {
  viridis: "Viridis",
  magma: "Magma",
  cividis: "Cividis",
  terrain: "Terrain",
  ocean: "Ocean",
  redblue: "Red to blue",
  gray: "Gray",
};

/** Colours of a ramp that is shown. */
const SHOWN = 16;

/** @type {Map<string, Uint8Array>} */
const tables = new Map();

/**
 * 256 colours of three bytes; undefined for a name that there is not.
 * @param {string} name
 */
export function colormap(name) {
  if (!Object.hasOwn(STOPS, name)) return undefined;
  let table = tables.get(name);
  if (!table) {
    const colors = STOPS[/** @type {keyof typeof STOPS} */ (name)].split(" ").map(rgb);
    table = new Uint8Array(768);
    for (let i = 0; i < 256; i++) table.set(mixed(colors, i / 255), i * 3);
    tables.set(name, table);
  }
  return table;
}

/** Each colour map with some of its colours, from low to high. */
export function colormapList() {
  return Object.entries(COLORMAPS).map(([name, title]) => {
    const table = /** @type {Uint8Array} */ (colormap(name));
    const colors = Array.from({ length: SHOWN }, (_, index) => {
      const at = Math.round((index / (SHOWN - 1)) * 255) * 3;
      return `rgb(${table.subarray(at, at + 3).join(" ")})`;
    });
    return { name, title, colors };
  });
}

/** @param {string} hex */
function rgb(hex) {
  return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** @param {number[][]} colors @param {number} share */
function mixed(colors, share) {
  const place = share * (colors.length - 1);
  const low = Math.min(colors.length - 2, Math.floor(place));
  return colors[low].map((from, i) =>
    Math.round(from + (colors[low + 1][i] - from) * (place - low)),
  );
}
