// JSON values as YAML.

const PLAIN = /^[A-Za-z_/][\w./-]*( [\w./-]+)*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n)$/i;

export const yaml = (value) => text(value, "").trimStart() + "\n";

function text(value, indent) {
  if (Array.isArray(value)) {
    return value.length ? `\n${value.map((each) => `${indent}- ${text(each, `${indent}  `).trimStart()}`).join("\n")}` : " []";
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    return entries.length ? `\n${entries.map(([key, each]) => `${indent}${scalar(key)}:${text(each, Array.isArray(each) ? indent : `${indent}  `)}`).join("\n")}` : " {}";
  }
  return ` ${scalar(value)}`;
}

const scalar = (value) => (typeof value === "string" && PLAIN.test(value) && !WORDS.test(value) ? value : JSON.stringify(value));
