// Numbers and times as text.
import { now } from "./store.js";

const UNITS = ["", " KiB", " MiB", " GiB", " TiB", " PiB"];
const BYTES = /^(memory|ephemeral-storage|storage)$|^hugepages-/;
const number = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (amount) => whole.format(amount);
export const short = (amount) => number.format(amount);

export function amount(resource, value) {
  if (resource === "cpu") return short(value / 1000);
  if (!BYTES.test(resource)) return count(value);
  let place = 0;
  while (Math.abs(value) >= 1024 && place < UNITS.length - 1) {
    value /= 1024;
    place += 1;
  }
  return short(value) + UNITS[place];
}

export const time = (text) => (text ? clock.format(new Date(text)) : "");

export function seconds(value) {
  if (value == null) return "–";
  if (value < 0.001) return `${short(value * 1e6)} µs`;
  return value < 1 ? `${short(value * 1000)} ms` : `${short(value)} s`;
}

export const age = (since) => duration((now() - new Date(since)) / 1000);
export const left = (until) => `${duration((new Date(until) - now()) / 1000)} left`;

function duration(given) {
  const passed = Math.max(0, given);
  if (Number.isNaN(passed)) return "";
  if (passed < 120) return `${Math.floor(passed)} s`;
  if (passed < 7200) return `${Math.floor(passed / 60)} min`;
  return passed < 172800 ? `${Math.floor(passed / 3600)} h` : `${Math.floor(passed / 86400)} d`;
}

export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

// Path of a pod, by `namespace/name`.
export const pathOf = (pod) => `pods/${pod.split("/").map(encodeURIComponent).join("/")}`;
