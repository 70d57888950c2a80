// The page /gallery: examples of the element <leader-board>, with what to copy.
import { Client } from "./api.ts";
import { settings } from "./settings.ts";

interface Example { id: string; title: string; text: string; attributes: Record<string, string>; snippet?: string }

const origin = location.origin;

/** The script's tag, with its hash where the browser can compute it: only over HTTPS, or on this machine. */
async function script(): Promise<string> {
  let integrity = "";
  if (crypto.subtle) {
    const code = await (await fetch("/embed.js")).arrayBuffer();
    const hash = btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest("SHA-384", code))));
    integrity = `\n  integrity="sha384-${hash}"`;
  }
  return `<script type="module" src="${origin}/embed.js" crossorigin${integrity}></script>`;
}

const escape = (value: string): string => value.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

function tag(attributes: Record<string, string>): string {
  const list = Object.entries(attributes).map(([name, value]) => (value ? `\n  ${name}="${escape(value)}"` : `\n  ${name}`));
  return `<leader-board${list.join("")}>\n</leader-board>`;
}

function examples(board: string): Example[] {
  const frame = new URLSearchParams({ board, mode: "compact", limit: "5" }), screen = new URLSearchParams({ mode: "kiosk", board, rotate: "20" });
  return [
    { id: "standard", title: "The element", text: "The first three on a podium, then the rows. A click opens the full ranking.", attributes: { board, limit: "8" } },
    { id: "compact", title: "Compact", text: "For a side column: no podium, no pictures.", attributes: { board, compact: "", limit: "8" } },
    { id: "dark", title: "Light or dark", text: "theme is light, dark, or auto (the default), which follows the device.", attributes: { board, theme: "dark", limit: "5" } },
    { id: "colors", title: "In your colors", text: "CSS variables set the colors, the font and the corners; the parts of the element, such as ::part(row), take any style.",
      attributes: { board, limit: "5", theme: "dark" },
      snippet: `<style>\n  leader-board {\n    --leaderboard-panel: #14261d;\n    --leaderboard-text: #eafbf1;\n    --leaderboard-soft: #9cc7b0;\n    --leaderboard-accent: #4ade80;\n    --leaderboard-radius: .2rem;\n  }\n  leader-board::part(title) { font-size: 1.5rem; }\n</style>\n` },
    { id: "language", title: "In a language", text: "Without locale, the element has the language of your page. Arabic and Persian run from right to left.", attributes: { board, locale: "ar", compact: "", limit: "5" } },
    { id: "frame", title: "Without a script", text: "For sites that cannot run scripts. The server must allow your site in web.frame_ancestors.", attributes: {},
      snippet: `<iframe src="${origin}/embed?${escape(String(frame))}" title="Leaderboard" width="400" height="420" loading="lazy"></iframe>` },
    { id: "screen", title: "On a big screen", text: "Open this address in full screen. It shows one board after another; rotate=0 stays on the first one.", attributes: {}, snippet: `${origin}/embed?${screen}` },
  ];
}

function section(example: Example): HTMLElement {
  const element = document.createElement("section"), title = document.createElement("h2"), text = document.createElement("p");
  element.id = example.id;
  [title.textContent, text.textContent] = [example.title, example.text];
  element.append(title, text);
  const shown = Object.keys(example.attributes).length > 0;
  if (shown) {
    const board = document.createElement("leader-board");
    for (const [name, value] of Object.entries(example.attributes)) board.setAttribute(name, value);
    if (settings.key) board.setAttribute("api-key", settings.key);
    element.append(board);
    element.className = "shown";
  }
  element.append(snippet(example.id, (example.snippet ?? "") + (shown ? tag({ src: origin, ...example.attributes }) : "")));
  return element;
}

function snippet(id: string, code: string): HTMLElement {
  const box = document.createElement("div"), pre = document.createElement("pre"), copy = document.createElement("button");
  box.className = "snippet";
  pre.textContent = code;
  pre.tabIndex = 0; // it scrolls
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", `Code of the example ${id}`);
  copy.textContent = "Copy";
  copy.addEventListener("click", () => void navigator.clipboard.writeText(code).then(() => { copy.textContent = "Copied"; }));
  box.append(pre, copy);
  return box;
}

const select = document.querySelector<HTMLSelectElement>("#board")!, main = document.querySelector("main")!;
const code = await script();

function show(): void {
  const intro = document.createElement("section"), title = document.createElement("h2");
  title.textContent = "The script";
  intro.append(title, snippet("script", code));
  main.replaceChildren(intro, ...examples(select.value || "default").map(section));
}

select.addEventListener("change", show);
const boards = await new Client("", settings.key).boards().catch(() => []);
select.replaceChildren(...boards.map((b) => new Option(b.title || b.board_id, b.board_id)));
const named = boards.find((b) => b.board_id !== "default");
if (named) select.value = named.board_id;
show();
