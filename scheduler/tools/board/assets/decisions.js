// Decisions as they happen.
import { html, useState } from "./dom.js";
import { seconds, time } from "./format.js";
import { PodLink } from "./node.js";
import { useTopic } from "./store.js";
import { Column } from "./table.js";

const SHOWN = 60;

export function Decisions({ choose }) {
  const { decisions, kind } = useTopic("decisions");
  const [held, setHeld] = useState(null);
  const [only, setOnly] = useState("");
  const shown = (held ?? decisions).filter((each) => !only || (only === "placed") === Boolean(each.node)).slice(0, SHOWN);
  return html`<section class="panel" aria-label="Decisions">
    <header><h2>Decisions</h2><span>
      <label>show <select value=${only} onChange=${(event) => setOnly(event.target.value)}><option value="">all</option><option value="placed">placed</option><option value="refused">not placed</option></select></label>
      <button aria-pressed=${held !== null} onClick=${() => setHeld(held ? null : decisions)}>${held ? "Resume" : "Pause"}</button></span></header>
    ${!shown.length && html`<p class="dim">None yet.</p>`}
    ${shown.length > 0 && html`<div class="scroll low"><table><caption class="unseen">Latest decisions, newest first</caption>
      <thead><tr><${Column}>time<//><${Column}>pod<//>${kind !== "cluster" && html`<${Column} n>attempt<//><${Column} n>duration<//>`}<${Column}>result<//></tr></thead>
      <tbody>${shown.map((each) => html`<tr key=${each.serial}><td class="w">${time(each.at)}</td><td><span class="name"><${PodLink} pod=${each.pod} /></span></td>
        ${kind !== "cluster" && html`<td class="n">${each.number}</td><td class="n">${seconds(each.seconds)}</td>`}
        <td>${each.node ? html`<span class="good">→</span> <button class="plain" onClick=${() => choose(each.node)}>${each.node}</button>` : html`<span class="warn">${each.message}</span>`}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}
