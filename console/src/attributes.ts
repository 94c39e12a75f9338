// Attributes of a request as people write them: `resource=api path="/a b"`. A value with a space or a quotation mark in it
// is written as in JSON.

const PAIR = /([^\s=]+)(?:=("(?:[^"\\]|\\.)*"(?!\S)|\S*))?/g;

export function written(attributes: Readonly<Record<string, string>>): string {
  const value = (text: string) => (/[\s"]/.test(text) ? JSON.stringify(text) : text);
  return Object.entries(attributes)
    .map(([name, text]) => `${name}=${value(text)}`)
    .join(" ");
}

/** The names and values of what is written. */
export function pairsOf(text: string): [string, string][] {
  return [...text.matchAll(PAIR)].map(([, name = "", value = ""]) => [name, unquoted(value)]);
}

function unquoted(value: string): string {
  if (!/^".*"$/s.test(value)) return value;
  try {
    return String(JSON.parse(value));
  } catch {
    return value;
  }
}
