// The page /embed, for sites that show it in a frame, and for big screens. Its query has the element's attributes.
import type { LeaderBoard } from "./embed.ts";

const element = document.createElement("leader-board") as LeaderBoard, query = new URLSearchParams(location.search), mode = query.get("mode");
for (const name of ["board", "season", "division", "method", "user", "theme", "limit", "locale", "rotate"]) {
  const value = query.get(name);
  if (value !== null) element.setAttribute(name, value);
}
element.src = "";
element.apiKey = sessionStorage.getItem("leaderboard.key") ?? "";
element.toggleAttribute("compact", mode === "compact");
element.toggleAttribute("kiosk", mode === "kiosk");
document.documentElement.classList.toggle("kiosk", mode === "kiosk");
document.querySelector("main")!.append(element);
