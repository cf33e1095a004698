// What every benchmark is: something that runs, once and briefly when `smoke`, and prints lines.

export type Print = (line: string) => void;

export type Bench = (print: Print, smoke: boolean) => Promise<void> | void;

export const print: Print = (line) => {
  process.stdout.write(`${line}\n`);
};
