// Numbers, scores, times and seasons, as the reader's locale writes them.
import type { Board, Season } from "./api.ts";
import type { Language } from "./text.ts";

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export class Format {
  private readonly integer: Intl.NumberFormat;
  private readonly two: Intl.NumberFormat;

  constructor(readonly language: Language) {
    this.integer = new Intl.NumberFormat(language.locale);
    this.two = new Intl.NumberFormat(language.locale, { minimumIntegerDigits: 2, useGrouping: false });
  }

  number = (n: number): string => this.integer.format(n);

  /** Formats a share of 100 with as few digits as tell it from 0. */
  percent(share: number): string {
    const digits = share >= 1 ? 0 : share >= 0.1 ? 1 : 3;
    return new Intl.NumberFormat(this.language.locale, { style: "percent", maximumFractionDigits: digits }).format(share / 100);
  }

  /** A score is an integer: the amount in the board's unit times 10^decimals. A time of a minute or more is a clock time. */
  score(board: Board, value: number): string {
    const clock = isTime(board), places = board.decimals + (board.unit === "ms" ? 3 : 0);
    const digits = String(Math.abs(value)).padStart(places + 1, "0"), cut = digits.length - places;
    const whole = Number(digits.slice(0, cut)), sign = value < 0 ? "-" : "", fraction = digits.slice(cut);
    if (!clock || whole < MINUTE) return this.decimal(sign + digits.slice(0, cut), fraction, places, clock);
    const minutes = Math.floor(whole / MINUTE) % 60, hours = Math.floor(whole / HOUR);
    const head = hours ? [this.integer.format(hours), this.two.format(minutes)] : [this.integer.format(minutes)];
    const seconds = new Intl.NumberFormat(this.language.locale, { minimumIntegerDigits: 2, minimumFractionDigits: places, maximumFractionDigits: places, useGrouping: false });
    return (sign ? this.integer.formatToParts(-1)[0]!.value : "") + [...head, seconds.format(Number(`${whole % MINUTE}.${fraction || 0}`))].join(":");
  }

  private decimal(whole: string, fraction: string, places: number, clock: boolean): string {
    const options: Intl.NumberFormatOptions = { minimumFractionDigits: places, maximumFractionDigits: places };
    if (clock) Object.assign(options, { style: "unit", unit: "second", unitDisplay: "short" });
    return new Intl.NumberFormat(this.language.locale, options).format(`${whole}.${fraction || 0}` as `${number}`);
  }

  /** Formats a score with its unit, for a sentence. */
  scoreWithUnit(board: Board, value: number): string {
    if (isTime(board) || !board.unit) return this.score(board, value);
    if (board.unit === "points") return this.language.t("points", { n: value, value: this.score(board, value) });
    return this.score(board, value) + " " + board.unit;
  }

  /** The name of what the board counts, for a heading. */
  unit(board: Board): string {
    if (isTime(board)) return this.language.t("time");
    return !board.unit ? this.language.t("score") : board.unit === "points" ? this.language.t("pointsHeading") : board.unit;
  }

  private date(options: Intl.DateTimeFormatOptions, at: string, zone = "UTC"): string {
    return new Intl.DateTimeFormat(this.language.locale, { ...options, timeZone: zone }).format(new Date(at));
  }

  /** A time span without its end. */
  private range(options: Intl.DateTimeFormatOptions, start: string, end: string, zone: string): string {
    const last = new Date(Date.parse(end) - 1000);
    return new Intl.DateTimeFormat(this.language.locale, { ...options, timeZone: zone }).formatRange(new Date(start), last);
  }

  /** The last day of a season that ends at a time. */
  lastDay = (end: string): string => this.day(new Date(Date.parse(end) - 1000).toISOString());
  day = (at: string): string => new Intl.DateTimeFormat(this.language.locale, { dateStyle: "medium" }).format(new Date(at));
  moment = (at: string): string => new Intl.DateTimeFormat(this.language.locale, { dateStyle: "medium", timeStyle: "short" }).format(new Date(at));
  clock = (at: string): string => new Intl.DateTimeFormat(this.language.locale, { timeStyle: "medium" }).format(new Date(at));

  /** The name of a season by its time where the schedule has one, else its id. */
  season(board: Board, season: Pick<Season, "id" | "start" | "end">): string {
    const schedule = board.season?.schedule ?? "NONE", zone = board.season?.time_zone ?? "UTC";
    if (schedule === "NONE") return this.language.t("allTime");
    if (!season.start || !season.end) return season.id;
    switch (schedule) {
      // These seasons follow the Gregorian calendar in every language.
      case "MONTHLY": return this.date({ month: "long", year: "numeric", calendar: "gregory" }, season.start, zone);
      case "YEARLY": if (!board.season?.year_start) return this.date({ year: "numeric", calendar: "gregory" }, season.start, zone); // falls through
      case "WEEKLY": case "ROLLING": case "QUARTERLY": return this.range({ dateStyle: "medium" }, season.start, season.end, zone);
      case "DAILY": return this.date({ dateStyle: "medium" }, season.start, zone);
      case "HOURLY": case "EVERY": return this.range({ dateStyle: "medium", timeStyle: "short" }, season.start, season.end, zone);
      default: return season.id;
    }
  }

  /** A time from now, in its two largest units. */
  remaining(seconds: number): string {
    const parts: [number, string][] = seconds >= DAY ? [[Math.floor(seconds / DAY), "day"], [Math.floor(seconds / HOUR) % 24, "hour"]]
      : seconds >= HOUR ? [[Math.floor(seconds / HOUR), "hour"], [Math.floor(seconds / MINUTE) % 60, "minute"]]
      : [[Math.floor(seconds / MINUTE), "minute"], [Math.floor(seconds) % 60, "second"]];
    return parts.map(([n, unit]) => new Intl.NumberFormat(this.language.locale, { style: "unit", unit, unitDisplay: "short" }).format(n)).join(" ");
  }

  /** How long ago a time was, in words. */
  ago(at: number): string {
    const seconds = Math.max(0, Math.round((Date.now() - at) / 1000)), relative = new Intl.RelativeTimeFormat(this.language.locale, { numeric: "auto" });
    if (seconds < MINUTE) return relative.format(0, "second");
    if (seconds < HOUR) return relative.format(-Math.round(seconds / MINUTE), "minute");
    return seconds < DAY ? relative.format(-Math.round(seconds / HOUR), "hour") : relative.format(-Math.round(seconds / DAY), "day");
  }

  /** The name of a division: the values of its attributes. */
  division(division: string): string {
    const values = division.slice(division.indexOf(":") + 1);
    return division.slice(0, division.indexOf(":")).includes("+")
      ? [...values.matchAll(/((?:\\.|[^+\\])+)/g)].map((m) => m[1]!.replace(/\\(.)/g, "$1")).join(" · ") : values;
  }
}

export const isTime = (board: Board): boolean => board.unit === "s" || board.unit === "ms";

/** A name of an attribute or tie-breaker, such as goal_difference, for people. */
export const spaced = (name: string): string => name.replaceAll("_", " ");
