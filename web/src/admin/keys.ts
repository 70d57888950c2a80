// Keys: create, shown once, and revoke.
import { html } from "lit";
import { instant, type Act, type Values } from "./act.ts";
import type { Admin, Section } from "./app.ts";
import { facts, Load, moment, table, theirs, type Part } from "./show.ts";
import type { CreateKeyResponse, Key, ListKeysResponse } from "./types.gen.ts";

const list = (text: string | undefined): string[] => (text ?? "").split(",").map((x) => x.trim()).filter(Boolean);

export class Keys implements Section {
  private readonly keys: Load<ListKeysResponse>;

  constructor(private readonly app: Admin) {
    this.keys = new Load(app);
  }

  open(): void {
    if (!this.app.limited) void this.keys.read(() => this.app.client.get("/v1/keys"));
  }

  render(): Part {
    const { app } = this, { t } = app;
    if (app.limited) return html`<h1>${t("keys")}</h1><p class="quiet">${t("keysNeedAll")}</p>`;
    return html`<h1>${t("keys")}</h1><div class="buttons start"><button class="main" id="create-key" @click=${() => app.acts.open(this.create())}>${t("createKey")}</button></div>
      ${this.keys.show(({ keys }) => table(t("keys"), [t("name"), t("scopes"), t("boards"), t("created"), t("expires"), t("lastUse"), t("action")], keys.map((k) => [
        html`<bdi class="name">${k.name}</bdi> <small><code>${k.key_id}</code></small>${k.insecure ? html` <span class="badge bad">${t("insecureKey")}</span>` : ""}`,
        html`<code>${k.scopes.join(" ")}</code>`, this.reach(k.boards, k.board_prefixes), moment(app, k.created_at), this.expiry(k),
        k.last_used_at ? moment(app, k.last_used_at) : t("never"),
        html`<button class="revoke" @click=${() => app.acts.open(this.revoke(k))}>${t("revoke")}</button>`])))}`;
  }

  private expiry(k: Key): Part | string {
    const { app } = this;
    if (!k.expires_at) return app.t("never");
    return Date.parse(k.expires_at) > Date.now() ? html`${moment(app, k.expires_at)}` : html`${moment(app, k.expires_at)} <span class="badge bad">${app.t("expired")}</span>`;
  }

  private reach(boards: readonly string[] = [], prefixes: readonly string[] = []): Part | string {
    const all = [...boards, ...prefixes.map((p) => p + "…")];
    return all.length ? theirs(all.join(", ")) : this.app.t("everyBoard");
  }

  private create(): Act {
    const { app } = this, { t } = app, scopes = (v: Values) => ["read", "submit", "admin"].filter((s) => v[s] === "true");
    const body = (v: Values) => ({
      name: v.name, scopes: scopes(v), ...(v.expires && { expires_at: instant(v.expires) }),
      ...(list(v.boards).length && { boards: list(v.boards) }), ...(list(v.prefixes).length && { board_prefixes: list(v.prefixes) }),
    });
    return {
      title: "createKey", verb: "createKey", subject: "", records: () => ({ action: "key" }), done: () => this.open(), fields: [
        { name: "name", label: "name", required: true, hint: "keyNameHint" }, { name: "read", label: "scopeRead", kind: "check", value: "true" },
        { name: "submit", label: "scopeSubmit", kind: "check" }, { name: "admin", label: "scopeAdmin", kind: "check" },
        { name: "boards", label: "onlyBoards", hint: "onlyBoardsHint" }, { name: "prefixes", label: "onlyPrefixes", hint: "onlyBoardsHint" },
        { name: "expires", label: "expires", kind: "time", hint: "expiresHint" }],
      preview: async (v) => facts([[t("name"), theirs(v.name)], [t("scopes"), html`<code>${scopes(v).join(" ") || "–"}</code>`], [t("boards"), this.reach(list(v.boards), list(v.prefixes))],
        [t("expires"), v.expires ? moment(app, instant(v.expires)) : t("never")]]),
      run: (v) => app.client.send<CreateKeyResponse>("POST", "/v1/keys", body(v)),
      result: ({ secret }: CreateKeyResponse) => this.secret(secret),
    };
  }

  /** The secret, which only this answer has. It is a property of an input, not an attribute, and goes with the dialog. */
  private secret(secret: string): Part {
    const { t } = this.app;
    const copy = (e: Event) => {
      const button = e.target as HTMLButtonElement, input = button.parentElement!.querySelector("input")!;
      input.select();
      void navigator.clipboard?.writeText(secret).then(() => { button.textContent = t("copied"); }, () => undefined);
    };
    return html`<div class="trouble calm" role="status"><strong>${t("secretOnce")}</strong><div class="line"><input id="secret" readonly aria-label=${t("secret")} dir="ltr" .value=${secret}><button
      type="button" @click=${copy}>${t("copy")}</button></div></div>`;
  }

  private revoke(k: Key): Act {
    const { app } = this, { t } = app;
    return {
      title: "revoke", verb: "revoke", subject: k.name, fields: [], records: () => ({ action: "key" }), done: () => this.open(),
      preview: async () => html`<p>${t("revokeText")}</p>${facts([[t("name"), theirs(k.name)], [t("scopes"), html`<code>${k.scopes.join(" ")}</code>`], [t("boards"), this.reach(k.boards, k.board_prefixes)],
        [t("created"), moment(app, k.created_at)], [t("expires"), this.expiry(k)]])}`,
      run: () => app.client.send("DELETE", "/v1/keys/" + encodeURIComponent(k.key_id)),
    };
  }
}
