// The texts for each kind of problem.
import type { Kind } from "./api.ts";
import type { Key } from "./text.ts";

export const heads: Record<Kind, readonly [icon: string, title: Key, text: Key]> = {
  network: ["📡", "networkTitle", "networkText"],
  key: ["🔑", "keyTitle", "keyText"],
  forbidden: ["🔒", "forbiddenTitle", "forbiddenText"],
  board: ["🔍", "noBoardTitle", "noBoardText"],
  season: ["📅", "noSeasonTitle", "noSeasonText"],
  user: ["🔍", "otherTitle", "otherText"],
  busy: ["⏳", "busyTitle", "busyText"],
  unavailable: ["🛠️", "unavailableTitle", "unavailableText"],
  invalid: ["🔍", "invalidTitle", "invalidText"],
  other: ["⚠️", "otherTitle", "otherText"],
};
