/**
 * Colours for layers that nobody has styled: by what their names suggest, else in turn.
 */

/** @type {[RegExp, string, string][]} what a name contains, its colour on light and on dark */
const MEANINGS = [
  [/water|ocean|sea|lake|river|bathy|hydro/i, "#5b9bc4", "#4a86ad"],
  [/ice|glacier|snow/i, "#9cc3d6", "#8fb6c9"],
  [/park|wood|forest|grass|green|landcover|vegetation|crop/i, "#84a866", "#6f9355"],
  [/land|earth|soil|sand/i, "#c9b78f", "#8d8062"],
  [/building|urban|settlement|resident/i, "#b79a86", "#97806f"],
  [/road|street|highway|transport|path|rail/i, "#d08a3e", "#d99a55"],
  [/bound|border|admin|country|state/i, "#8d6a9f", "#a888b8"],
  [/place|label|poi|point|station|city/i, "#b5484f", "#e0787c"],
];
const TURN = [
  ["#0f7f86", "#4fb8b6"],
  ["#c26a2d", "#e09a63"],
  ["#5f6fb0", "#8f9cd6"],
  ["#a5486b", "#d17f9d"],
  ["#6d8a3a", "#9dbb67"],
  ["#8a6b3f", "#bd9c6c"],
  ["#3f7fa6", "#74b0d3"],
  ["#7d5ba0", "#ab8bcd"],
];

/**
 * @param {string} name
 * @param {number} index
 * @param {boolean} dark
 */
export function layerColor(name, index, dark) {
  const meaning = MEANINGS.find(([pattern]) => pattern.test(name));
  return meaning ? meaning[dark ? 2 : 1] : TURN[index % TURN.length][dark ? 1 : 0];
}
