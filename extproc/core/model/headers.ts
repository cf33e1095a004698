/** Request or response headers as the core sees them. */
export interface HeaderSource {
  /**
   * Every value of a header in the order of arrival, one entry per header line. `name` is lower
   * case. Each byte of a value is one character (latin-1), so that a byte above 0x7f stays visible.
   */
  all(name: string): readonly string[];
}

/** Headers from a plain record; for callers that already hold parsed headers. */
export function headersFrom(
  record: Readonly<Record<string, string | readonly string[]>>,
): HeaderSource {
  return {
    all: (name) => {
      const value = record[name];
      if (value === undefined) return [];
      return typeof value === "string" ? [value] : value;
    },
  };
}

/** No headers at all. */
export const NO_HEADERS = headersFrom({});
