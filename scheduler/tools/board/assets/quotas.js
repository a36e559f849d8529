// Queues and quotas as a tree, with their use of one resource.
import { html } from "./dom.js";
import { amount, count, many } from "./format.js";
import { compare } from "./layout.js";
import { asked } from "./node.js";
import { YamlLink } from "./object.js";
import { useParam } from "./place.js";
import { useAnswer } from "./store.js";
import { Column } from "./table.js";

const AGAIN_MS = 3000;

// Returns the address of the page with one queue or quota selected; `resource` may be left out.
export const quotaPath = (quota, resource) => `#/quotas?${new URLSearchParams({ ...(resource && { resource }), quota })}`;

export function Quotas() {
  const answer = useAnswer("quotas", AGAIN_MS);
  const [chosen, choose] = useParam("resource");
  if (!answer) return html`<p class="dim">Loading…</p>`;
  if (answer.problem) return html`<p class="warn">${answer.problem}</p>`;
  const resources = resourcesOf(answer);
  const resource = resources.includes(chosen) ? chosen : resources[0];
  const plugins = [...new Set(answer.map((each) => each.plugin))];
  if (!plugins.length) return html`<section class="panel" aria-label="Quotas"><h2>Quotas</h2><p class="dim">No plugin of the active profiles has queues or quotas with objects.</p></section>`;
  return plugins.map((plugin) => html`<section class="panel" aria-label=${`Quotas of ${plugin}`} key=${plugin}>
    <header><h2>Quotas of ${plugin}</h2><span><label>resource <select value=${resource} onChange=${(event) => choose(event.target.value)}>${resources.map((each) => html`<option value=${each}>${each}</option>`)}</select></label></span></header>
    <${Tree} rows=${treeOf(answer.filter((each) => each.plugin === plugin))} resource=${resource} /></section>`);
}

function Tree({ rows, resource }) {
  const [chosen] = useParam("quota");
  const hasShares = rows.some(([each]) => each.fair_share);
  const hasAverages = rows.some(([each]) => each.average_share != null);
  const show = (amounts) => (resource in amounts ? amount(resource, amounts[resource]) : "");
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Quotas as a table"><table><caption class="unseen">Use of ${resource}, each with the queues below it</caption>
    <thead><tr><${Column}>name<//><${Column} fill>use<//><${Column} n>used<//><${Column} n>guaranteed<//>${hasShares && html`<${Column} n>fair share<//>`}${hasAverages && html`<${Column} n>average<//>`}<${Column} n>borrowed<//><${Column} n>limit<//><${Column} n>waiting<//><${Column} n>pending pods<//><${Column}><span class="unseen">object</span><//></tr></thead>
    <tbody>${rows.map(([each, depth]) => html`<tr key=${each.key} class=${each.key === chosen ? "chosen" : ""}><th scope="row" class="w"><span class=${`depth-${Math.min(depth, 8)}`}></span><a href=${quotaPath(each.key, resource)}>${each.key}</a>${depth > 0 && html`<span class="unseen">, below ${each.parent}</span>`}
        ${each.fault && html`<div class="warn fault">${each.fault}</div>`}</th>
      <td><${Use} of=${each} resource=${resource} /></td>
      <td class="n">${show(each.used) || 0}</td><td class="n">${show(each.guaranteed)}</td>${hasShares && html`<td class="n">${show(each.fair_share ?? {}) || 0}</td>`}${hasAverages && html`<td class="n" title="average part of the cluster, of the resource with the largest part">${each.average_share == null ? "" : `${(100 * each.average_share).toFixed(1)}%`}</td>`}
      <td class=${each.borrowed[resource] ? "n warn" : "n"}>${show(each.borrowed)}</td><td class="n">${show(each.limit)}</td>
      <td class="n" title=${asked(each.waiting)}>${show(each.waiting)}</td><td class="n">${each.pending ? count(each.pending) : ""}</td>
      <td><${YamlLink} kind=${each.kind} of=${each.key} /></td></tr>`)}</tbody></table></div>
    <p class="keys"><span class="key"><i class="part use-own"></i>used, own</span><span class="key"><i class="part use-borrowed"></i>used, borrowed</span><span class="key"><i class="part use-waiting"></i>waiting</span></p>`;
}

// A bar of what is used and what waits; its length is the larger of them and of the amounts that limit the use.
function Use({ of, resource }) {
  const [used, borrowed, waiting] = [of.used, of.borrowed, of.waiting].map((amounts) => amounts[resource] ?? 0);
  const whole = Math.max(used + waiting, of.guaranteed[resource] ?? 0, of.limit[resource] ?? 0, of.fair_share?.[resource] ?? 0);
  if (!whole) return null;
  const parts = [["own", used - borrowed], ["borrowed", borrowed], ["waiting", waiting]];
  const words = parts.map(([name, part]) => `${name} ${amount(resource, part)}`).join(", ");
  return html`<span class="bar" role="img" aria-label=${words} title=${words}>${parts.map(([name, part]) => html`<i class=${`part use-${name}`} style=${{ width: `${(100 * part) / whole}%` }}></i>`)}</span>`;
}

function resourcesOf(quotas) {
  const names = new Set(quotas.flatMap((each) => [each.used, each.guaranteed, each.limit, each.waiting].flatMap((amounts) => Object.keys(amounts))));
  const first = ["cpu", "memory"].filter((name) => names.delete(name));
  return [...first, ...[...names].sort()];
}

// Returns [quota, depth] of each quota, children after their parent.
function treeOf(quotas) {
  const known = new Set(quotas.map((each) => each.key));
  const children = new Map();
  for (const each of quotas) {
    const parent = known.has(each.parent) ? each.parent : "";
    children.set(parent, [...(children.get(parent) ?? []), each]);
  }
  const below = (parent, depth) => (children.get(parent) ?? []).sort((one, other) => compare(one.key, other.key)).flatMap((each) => [[each, depth], ...below(each.key, depth + 1)]);
  return below("", 0);
}
