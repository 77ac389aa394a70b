/** JSON that may be looked at: what would command a terminal, turn the order of its text or end a line is escaped, which changes no value. */

/** JSON text as it was made, and the same to whoever parses it. JSON itself escapes only what is below U+0020. */
export function plainJson(json: string): string {
  return json.replace(/[\u007F-\u009F\u061C\u200B\u200E\u200F\u2028-\u202E\u2060\u2066-\u2069\uFEFF]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
