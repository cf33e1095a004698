// Tables and figures as a terminal shows them.

/** Rows in columns: the first one to the left, the others to the right. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return column === 0 ? cell.padEnd(width) : cell.padStart(width);
      })
      .join("  ")
      .trimEnd(),
  );
}

export const percent = (part: number, digits = 1): string => `${(100 * part).toFixed(digits)} %`;
export const grouped = (value: number): string => Math.round(value).toLocaleString("en-US");
export const seconds = (ms: number | undefined): string =>
  ms === undefined ? "-" : `${(ms / 1_000).toFixed(1)} s`;
