// The page at "/admin": it loads the reader's language, and starts.
import english from "../../text/admin/en.json";
import { settings } from "../settings.ts";
import { chooseLocale, loadLanguage } from "../text.ts";
import { Admin } from "./app.ts";

const language = await loadLanguage<string>(chooseLocale([settings.locale, ...navigator.languages].filter(Boolean)), "", "admin", english);
document.documentElement.lang = language.locale;
document.documentElement.dir = language.direction;
document.documentElement.dataset.theme = settings.theme || "auto";
Admin.language = language;
customElements.define("lb-admin", Admin);
