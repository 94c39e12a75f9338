// Light, dark, or as the system has it.

import { Observable } from "./observable";

export type Theme = "system" | "light" | "dark";

const KEY = "tidegate-theme";
const THEMES: Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  const found = localStorage.getItem(KEY);
  return THEMES.find((theme) => theme === found) ?? "system";
}

export const theme = new Observable<Theme>(stored());

function apply(): void {
  document.documentElement.dataset.theme = theme.value;
}

export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
  localStorage.setItem(KEY, next);
  theme.set(next);
  apply();
}

apply();
