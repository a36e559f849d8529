// Decisions as they happen.
import { html, useState } from "./dom.js";
import { count, many, seconds } from "./format.js";
import { Ago } from "./moment.js";
import { PodLink } from "./node.js";
import { useParam } from "./place.js";
import { useTopic } from "./store.js";
import { Column } from "./table.js";

const SHOWN = 60;

export function Decisions({ choose }) {
  const { decisions, kind } = useTopic("decisions");
  const [held, setHeld] = useState(null);
  const [only, setOnly] = useState("");
  const [open, setOpen] = useState("");
  const [namespace] = useParam("namespace");
  const wanted = (held ?? decisions).filter((each) => (!only || (only === "placed") === Boolean(each.node)) && (!namespace || each.pod.startsWith(`${namespace}/`)));
  const shown = linesOf(wanted).slice(0, SHOWN);
  return html`<section class="panel" aria-label="Decisions">
    <header><h2>Decisions</h2><span>
      <label>show <select value=${only} onChange=${(event) => setOnly(event.target.value)}><option value="">all</option><option value="placed">placed</option><option value="refused">not placed</option></select></label>
      <button aria-pressed=${held !== null} onClick=${() => setHeld(held ? null : decisions)}>${held ? "Resume" : "Pause"}</button></span></header>
    ${!shown.length && html`<p class="dim">None yet.</p>`}
    ${shown.length > 0 && html`<div class="scroll low"><table><caption class="unseen">Latest decisions, newest first</caption>
      <thead><tr><${Column}>time<//><${Column}>pod<//>${kind !== "cluster" && html`<${Column} n wide>attempt<//><${Column} n wide>duration<//>`}<${Column}>result<//></tr></thead>
      <tbody>${shown.map(({ key, each, equal }) => html`<tr key=${key}><td class="w"><${Ago} at=${each.at} /></td><td><span class="name"><${PodLink} pod=${each.pod} /></span>
          ${equal.length > 1 && html` <button class="count" aria-expanded=${open === key} aria-label=${`${many(equal.length, "equal decision")}`} onClick=${() => setOpen(open === key ? "" : key)}>×${count(equal.length)}</button>`}
          ${open === key && html`<ul class="causes">${equal.slice(1).map((other) => html`<li key=${other.serial}><${PodLink} pod=${other.pod} /> <span class="dim"><${Ago} at=${other.at} /></span></li>`)}</ul>`}</td>
        ${kind !== "cluster" && html`<td class="n wide">${each.number}</td><td class="n wide">${seconds(each.seconds)}</td>`}
        <td class="cause">${each.node ? html`<span class="good">→</span> <button class="plain" onClick=${() => choose(each.node)}>${each.node}</button>` : html`<span class="warn">${each.message}</span>`}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

// Decisions with the same message become one line, at the time of the newest.
function linesOf(decisions) {
  const lines = [];
  const known = new Map();
  for (const each of decisions) {
    const line = each.node ? null : known.get(each.message);
    if (line) {
      line.equal.push(each);
      continue;
    }
    const fresh = { key: each.node ? String(each.serial) : each.message, each, equal: [each] };
    lines.push(fresh);
    if (!each.node) known.set(each.message, fresh);
  }
  return lines;
}
