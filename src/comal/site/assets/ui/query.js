/**
 * Parameters of requests, and what is said of their failures.
 */

/**
 * @param {Record<string, unknown>} parameters null and "" are left out; a list is repeated
 * @returns {URLSearchParams}
 */
export function queryOf(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, String(one));
    }
  }
  return query;
}

/** What went wrong, for people. @param {unknown} error */
export function reasonOf(error) {
  return error instanceof Error ? error.message : String(error);
}
