// Which operation of the capacity-credit API a path means.

/** Everything below this path belongs to the API. */
export const CREDITS_PATH = "/internal/capacity-credits";

export type CreditRoute =
  | { readonly kind: "capabilities"; readonly method: "GET" }
  | { readonly kind: "issue"; readonly method: "POST" }
  | { readonly kind: "arm"; readonly method: "POST"; readonly token: string }
  | { readonly kind: "credit"; readonly method: "DELETE"; readonly token: string };

/** True for every path that the API answers, known or not. */
export function isCreditPath(path: string): boolean {
  return path === CREDITS_PATH || path.startsWith(`${CREDITS_PATH}/`);
}

/** The operation of a path without its query; undefined = the API has none. Tokens are not decoded. */
export function creditRoute(path: string): CreditRoute | undefined {
  if (path === CREDITS_PATH) return { kind: "issue", method: "POST" };
  const [token = "", verb, ...more] = path.slice(CREDITS_PATH.length + 1).split("/");
  if (token === "" || more.length > 0) return undefined;
  if (verb === "arm") return { kind: "arm", method: "POST", token };
  if (verb !== undefined) return undefined;
  if (token === "capabilities") return { kind: "capabilities", method: "GET" };
  return { kind: "credit", method: "DELETE", token };
}
