// The menu of the page: ties, language, theme, big screen, key.
import { html, nothing, type TemplateResult } from "lit";
import type { App } from "./app.ts";
import type { Method } from "./api.ts";
import { settings } from "./settings.ts";
import { languages, type Key } from "./text.ts";

const methods: [Method, Key][] = [["competition", "methodCompetition"], ["dense", "methodDense"], ["ordinal", "methodOrdinal"]];
const themes: [string, Key][] = [["auto", "themeAuto"], ["light", "themeLight"], ["dark", "themeDark"]];

export function menu(app: App): TemplateResult {
  const { t, format, view } = app;
  const select = (id: string, label: string, options: readonly (readonly [string, string])[], chosen: string, choose: (value: string) => void) =>
    html`<label for=${id}>${label}</label><select id=${id} @change=${(e: Event) => choose((e.target as HTMLSelectElement).value)}>${options.map(([value, text]) =>
      html`<option value=${value} .selected=${value === chosen}>${text}</option>`)}</select>`;
  const screen = new URLSearchParams({ mode: "kiosk", board: view.board, ...(view.season && { season: view.season }), ...(view.division && { division: view.division }) });
  return html`<div id="menu" popover><div class="menu">
    ${select("method", t("ties"), methods.map(([m, key]) => [m, t(key)] as const), view.method, (method) => app.go({ method: method as Method }))}
    ${select("language", t("language"), Object.entries(languages), format.language.language, (locale) => { settings.locale = locale; location.reload(); })}
    ${select("theme", t("theme"), themes.map(([theme, key]) => [theme, t(key)] as const), settings.theme || "auto", (theme) => {
      settings.theme = document.documentElement.dataset.theme = theme;
      app.requestUpdate();
    })}
    <hr>
    <a class="item" href="/embed?${screen}">${t("bigScreen")}</a>
    <a class="item" href="/gallery">${t("embedIt")}</a>
    <a class="item" href="/docs">${t("apiDocs")}</a>
    ${app.me ? html`<button class="item" @click=${() => app.chooseMe("")}>${t("notMe")}</button>` : nothing}
    ${app.client.key ? html`<button class="item" id="forget" @click=${() => app.useKey("")}>${t("forgetKey")}</button>` : nothing}
  </div></div>`;
}
