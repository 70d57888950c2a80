// What the page shows in place of a ranking: what is wrong, and what to do next.
import { html, nothing, type TemplateResult } from "lit";
import type { App } from "./app.ts";
import type { Problem } from "./api.ts";
import { formatLink } from "./link.ts";
import { heads } from "./problems.ts";

export function problemPanel(app: App, problem: Problem): TemplateResult {
  const { t, view, ranking } = app, [icon, title, text] = heads[problem.kind];
  return html`<div class="panel problem" data-problem=${problem.kind}><p class="big" aria-hidden="true">${icon}</p>
    <div role="alert"><h1>${t(title, { board: view.board, season: view.season })}</h1></div><p>${t(text)}</p>
    ${problem.kind === "invalid" || problem.kind === "other" ? html`<p class="detail"><bdi>${problem.message}</bdi></p>` : nothing}
    ${problem.kind === "key" || problem.kind === "forbidden" ? keyForm(app) : nothing}
    ${problem.kind === "board" ? links(app.boards.map((b) => [b.title || b.board_id, formatLink({ board: b.board_id })])) : nothing}
    ${problem.kind === "season" ? links([[t("currentSeason"), formatLink({ board: view.board })], ...ranking.seasons.slice(0, 8).map((s) =>
      [ranking.board ? app.format.season(ranking.board, s) : s.id, formatLink({ board: view.board, season: s.id })] as [string, string])]) : nothing}
    ${problem.kind === "invalid" ? links([[t("overall"), formatLink({ board: view.board })]]) : nothing}
    ${["network", "busy", "unavailable", "other"].includes(problem.kind) ? html`<button class="main" @click=${() => app.restart()}>${t("tryNow")}</button>` : nothing}
  </div>`;
}

const links = (list: [string, string][]): TemplateResult =>
  html`<ul class="links">${list.map(([text, href]) => html`<li><a class="button" href=${href}><bdi>${text}</bdi></a></li>`)}</ul>`;

function keyForm(app: App): TemplateResult {
  const { t } = app;
  const use = (e: Event) => {
    e.preventDefault();
    app.useKey(String(new FormData(e.target as HTMLFormElement).get("key")).trim());
  };
  return html`<form @submit=${use}><label for="key">${t("keyLabel")}</label>
    <div class="line"><input id="key" name="key" type="password" autocomplete="off" required aria-describedby="refused"><button class="main">${t("useKey")}</button></div>
    <p id="refused" class="wrong" role="alert">${app.refused ? t("keyRefused") : nothing}</p></form>
    ${app.client.key ? html`<button class="plain" id="forget" @click=${() => app.useKey("")}>${t("forgetKey")}</button>` : nothing}`;
}
