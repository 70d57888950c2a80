// What the page keeps in the browser: for the session the key, and for longer the reader's choices.

const prefix = "leaderboard.";

/** A browser may refuse to keep anything. */
function keep(storage: () => Storage, name: string, value: string): void {
  try {
    if (value) storage().setItem(prefix + name, value);
    else storage().removeItem(prefix + name);
  } catch { /* the choice lasts until the page is closed */ }
}

function kept(storage: () => Storage, name: string): string {
  try {
    return storage().getItem(prefix + name) ?? "";
  } catch {
    return "";
  }
}

const session = () => sessionStorage, local = () => localStorage;

export const settings = {
  get key(): string { return kept(session, "key"); },
  set key(value: string) { keep(session, "key", value); },
  get locale(): string { return kept(local, "locale"); },
  set locale(value: string) { keep(local, "locale", value); },
  get theme(): string { return kept(local, "theme"); },
  set theme(value: string) { keep(local, "theme", value); },
  get me(): string { return kept(local, "me"); },
  set me(value: string) { keep(local, "me", value); },
};

/** The user of a JSON web token, or "" if a key is none. The server checks the token. */
export function userOfToken(key: string): string {
  try {
    const payload = key.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(payload), (c) => c.charCodeAt(0));
    const { sub } = JSON.parse(new TextDecoder().decode(bytes)) as { sub?: unknown };
    return typeof sub === "string" ? sub : "";
  } catch {
    return "";
  }
}
