// One node: its resources, their requested share, and its pods.
import { html } from "./dom.js";
import { amount, many, pathOf } from "./format.js";
import { YamlLink } from "./object.js";
import { store, useAnswer, useTopic } from "./store.js";

const FLAGS = [[1, "cordoned"], [2, "tainted"], [4, "not ready"]];
const AGAIN_MS = 3000;

export const states = (tile) => FLAGS.filter(([flag]) => tile[2] & flag).map(([, word]) => word);

// Returns the requested share of a resource, from 0 to above 1; null if the node has none of it. "any" is the largest.
export function sharesOf(tile, resource) {
  const [, , , , allocatable, requested] = tile;
  const places = resource === "any" ? allocatable.keys() : [store.resources.indexOf(resource)];
  let largest = null;
  for (const place of places) {
    if (allocatable[place] > 0) largest = Math.max(largest ?? 0, requested[place] / allocatable[place]);
  }
  return largest;
}

export function Usage({ resources, tile }) {
  return html`<table class="usage"><tbody>${resources.map((resource, place) =>
    tile[4][place] > 0 && html`<tr><th scope="row">${resource}</th>
      <td><meter min="0" max=${tile[4][place]} value=${tile[5][place]} aria-label=${`${resource} requested`}></meter></td>
      <td class="n">${amount(resource, tile[4][place] - tile[5][place])} free of ${amount(resource, tile[4][place])}</td></tr>`)}
  </tbody></table>`;
}

export function Node({ name, close }) {
  const { nodes, resources } = useTopic("nodes");
  const details = useAnswer(`nodes/${encodeURIComponent(name)}`, AGAIN_MS);
  const tile = nodes.get(name);
  return html`<section class="panel" aria-label=${`Node ${name}`}>
    <header><h2>${name}</h2><${YamlLink} kind="v1/nodes" of=${name} /><button onClick=${close} aria-label="Close the node">✕</button></header>
    ${!tile && html`<p>This node was deleted.</p>`}
    ${tile && html`<p>${tile[1] || "no zone"}${states(tile).map((state) => html`, <span class="warn">${state}</span>`)}</p>
      <${Usage} resources=${resources} tile=${tile} />`}
    ${details?.replica && html`<p>Replica: ${details.replica}</p>`}
    ${details?.rests && html`<p class="warn">Paused: ${details.rests}</p>`}
    ${details?.taints?.length > 0 && html`<p>Taints: ${details.taints.map((taint) => html`<code>${taint.key}${taint.value && "="}${taint.value}:${taint.effect}</code> `)}</p>`}
    ${details?.problem && html`<p class="warn">${details.problem}</p>`}
    ${details?.pods && html`<div class="scroll low"><table><caption>${many(details.pods.length, "pod")} by priority</caption>
      <thead><tr><th scope="col">pod</th><th scope="col" class="n">priority</th><th scope="col">requests</th></tr></thead>
      <tbody>${details.pods.slice(0, 300).map((pod) => html`<tr key=${pod.pod}><td><${PodLink} pod=${pod.pod} /></td><td class="n">${pod.priority}</td>
        <td>${asked(pod.requests)}</td></tr>`)}</tbody></table></div>`}
    ${details?.labels && html`<details><summary>${many(Object.keys(details.labels).length, "label")}</summary>
      <ul class="labels">${Object.entries(details.labels).map(([key, value]) => html`<li><code>${key}=${value}</code></li>`)}</ul></details>`}
  </section>`;
}

export const asked = (requests) =>
  Object.entries(requests).map(([resource, value]) => `${amount(resource, value)} ${resource}`).join(", ") || "none";

export const NodeLink = ({ node }) => html`<a href=${`#/?node=${encodeURIComponent(node)}`}>${node}</a>`;

export const PodLink = ({ pod }) => html`<a href=${`#/${pathOf(pod)}`}>${pod}</a>`;
