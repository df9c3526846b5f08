/**
 * Light or dark: as the system prefers, until the reader chooses.
 */

const KEY = "comal-theme";
const prefersDark = globalThis.matchMedia("(prefers-color-scheme: dark)");

/** @returns {"light" | "dark"} */
export function currentTheme() {
  const chosen = stored();
  return chosen === "light" || chosen === "dark" ? chosen : prefersDark.matches ? "dark" : "light";
}

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // Storage may be forbidden.
  }
}

/**
 * Let a button change the colours, and tell when they change.
 * @param {HTMLElement} button
 * @param {() => void} changed
 */
export function watchTheme(button, changed) {
  const show = () => {
    const theme = currentTheme();
    if (stored()) document.documentElement.dataset.theme = theme;
    document.documentElement.toggleAttribute("data-dark", theme === "dark");
    button.setAttribute("aria-pressed", String(theme === "dark"));
    changed();
  };
  button.addEventListener("click", () => {
    try {
      localStorage.setItem(KEY, currentTheme() === "dark" ? "light" : "dark");
    } catch {
      return;
    }
    show();
  });
  prefersDark.addEventListener("change", show);
  show();
}

/** The colour of a design token as the theme has it. @param {string} name */
export function token(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name);
  const both = /light-dark\((\S+), (\S+)\)/.exec(text) ?? [];
  return both[currentTheme() === "dark" ? 2 : 1];
}
