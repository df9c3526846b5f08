/**
 * Errors of the readers. Each kind has the status that a tile client gets for it.
 */

/** Anything that goes wrong while an archive is read. */
export class ArchiveError extends Error {
  static status = 500;

  /**
   * @param {string} message what went wrong, for people
   * @param {{where?: string, hint?: string}} [details]
   */
  constructor(message, { where = "", hint = "" } = {}) {
    super(message);
    this.name = new.target.name;
    this.status = new.target.status;
    this.where = where;
    this.hint = hint;
  }

  /** The error as a problem document (RFC 9457). */
  toProblem() {
    /** @type {Record<string, unknown>} */
    const problem = { title: this.message, status: this.status };
    if (this.where) problem.instance = this.where;
    if (this.hint) problem.detail = this.hint;
    return problem;
  }
}

/** There is nothing at the address. Only this error means absent. */
export class AbsentError extends ArchiveError {
  static status = 404;
}

/** The network or the store failed. */
export class StorageError extends ArchiveError {
  static status = 502;
}

/** The object was replaced while it was read. */
export class ChangedError extends ArchiveError {
  static status = 503;
}

/** The bytes contradict the format or themselves, or are larger than a limit. */
export class DamagedError extends ArchiveError {}

/** A request that means nothing. */
export class RequestError extends ArchiveError {
  static status = 400;
}

/**
 * Any thrown value as an error of ours.
 * @param {unknown} thrown
 * @returns {ArchiveError}
 */
export function asArchiveError(thrown) {
  if (thrown instanceof ArchiveError) return thrown;
  if (thrown instanceof RangeError) {
    // Reads past the end of a view: the lengths in the file contradict its size.
    return new DamagedError("the file contradicts itself: a length points outside of it");
  }
  return new ArchiveError(thrown instanceof Error ? thrown.message : String(thrown));
}
