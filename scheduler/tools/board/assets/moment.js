// A moment as the time since then, drawn again as time passes; its title is the date and the time.
import { html } from "./dom.js";
import { age } from "./format.js";
import { useTopic } from "./store.js";

export function Ago({ at, words = " ago" }) {
  useTopic("rates");
  const moment = new Date(at);
  if (Number.isNaN(moment.valueOf())) return ""; // an Event may have no time
  return html`<time datetime=${moment.toISOString()} title=${moment.toLocaleString()}>${age(at)}${words}</time>`;
}
