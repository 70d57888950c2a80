// The texts of the pages, from the catalogue in ../text, in the reader's language.
import english from "../text/en.json";

export type Key = keyof typeof english;
export type Catalogue = Record<string, string | Record<string, string>>;

/** The languages of the catalogue, each in its own name. */
export const languages: Record<string, string> = {
  en: "English", de: "Deutsch", es: "Español", pt: "Português", zh: "中文", ja: "日本語", ar: "العربية", fa: "فارسی",
};

const rightToLeft = ["ar", "fa"];

/** Returns the first wished locale whose language the catalogue has. */
export const chooseLocale = (wished: readonly string[]): string => wished.find((tag) => tag.split("-")[0]!.toLowerCase() in languages) ?? "en";

/** A language with its texts. Values replace {names}; a text with plural forms takes the form of the number n. */
export class Language<K extends string = Key> {
  readonly language: string;
  readonly direction: "rtl" | "ltr";
  private readonly plurals: Intl.PluralRules;
  private readonly integers: Intl.NumberFormat;

  constructor(readonly locale: string, private readonly catalogue: Catalogue = english) {
    this.language = locale.split("-")[0]!.toLowerCase();
    this.direction = rightToLeft.includes(this.language) ? "rtl" : "ltr";
    this.plurals = new Intl.PluralRules(locale);
    this.integers = new Intl.NumberFormat(locale);
  }

  t = (key: K, values: Record<string, string | number> = {}): string => {
    const entry = this.catalogue[key] ?? (english as Catalogue)[key]!;
    const text = typeof entry === "string" ? entry : (entry as Record<string, string>)[this.plurals.select(Number(values.n))] ?? (entry as Record<string, string>).other!;
    return text.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = values[name] ?? "";
      return typeof value === "number" ? this.integers.format(value) : value;
    });
  };
}

/** Loads the texts of a locale from the server at base. English is in the script, so it also shows what is wrong. A page
 * with further texts names their folder, and has them in English. */
export async function loadLanguage<K extends string = Key>(locale: string, base: string, folder = "", more: Catalogue = {}): Promise<Language<K>> {
  const language = locale.split("-")[0]!.toLowerCase(), texts: Catalogue = { ...english, ...more };
  if (language === "en") return new Language(locale, texts);
  try {
    for (const path of folder ? ["", folder + "/"] : [""]) {
      const answer = await fetch(`${base}/web/text/${path}${language}.json`);
      if (!answer.ok) throw answer;
      Object.assign(texts, await answer.json());
    }
    return new Language(locale, texts);
  } catch { /* the texts stay English */ }
  return new Language("en", { ...english, ...more });
}
