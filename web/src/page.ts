// The page at "/": it loads the reader's language, and starts.
import { App } from "./app.ts";
import { settings } from "./settings.ts";
import { chooseLocale, loadLanguage } from "./text.ts";

const language = await loadLanguage(chooseLocale([settings.locale, ...navigator.languages].filter(Boolean)), "");
document.documentElement.lang = language.locale;
document.documentElement.dir = language.direction;
document.documentElement.dataset.theme = settings.theme || "auto";
App.language = language;
customElements.define("lb-app", App);
