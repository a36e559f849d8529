// The pods of a group and of a controller, and past preemptions.
import { html } from "./dom.js";
import { count, many, seconds } from "./format.js";
import { Ago } from "./moment.js";
import { asked, NodeLink, PodLink } from "./node.js";
import { YamlLink } from "./object.js";
import { quotaPath } from "./quotas.js";
import { useAnswer } from "./store.js";
import { Column, Paged } from "./table.js";

const AGAIN_MS = 3000;

export const GroupLink = ({ group }) => html`<a href=${`#/groups/${encodeURIComponent(group)}`}>${group}</a>`;

export const ControllerLink = ({ namespace, owner }) =>
  html`<a href=${`#/controllers/${[namespace, ...owner.split("/")].map(encodeURIComponent).join("/")}`}>${owner}</a>`;

export function Group({ group }) {
  const answer = useAnswer(`groups?key=${encodeURIComponent(group)}`, AGAIN_MS);
  if (!answer) return html`<p class="dim">Loading…</p>`;
  if (answer.problem) return html`<section class="panel"><h2>${group}</h2><p class="warn">${answer.problem}</p></section>`;
  return answer.groups.map((each) => html`<${OneGroup} key=${each.kind} group=${each} />`);
}

function OneGroup({ group }) {
  const onNodes = Object.entries(group.onNodes);
  return html`<section class="panel" aria-label=${`Group ${group.group}`}>
    <header><h2>Group ${group.group}</h2><${YamlLink} kind=${group.kind} of=${group.group} /></header>
    ${group.message && html`<p class="message">${group.message}</p>`}
    <dl><dt>kind</dt><dd>${group.kind}</dd>
      <dt>result</dt><dd>${group.result}${group.at && html`, <${Ago} at=${group.at} />, in ${seconds(group.seconds)}`}</dd>
      ${group.minCount !== null && html`<dt>minimum</dt><dd>${many(group.minCount, "pod")}</dd>`}
      ${group.topologyKey && html`<dt>in one</dt><dd>${group.topologyKey}</dd>`}
      <dt>pods</dt><dd>${count(group.placed)} on nodes; ${count(group.fits)} of ${many(group.members.length, "pending pod")} fit</dd>
      ${group.causes?.length > 0 && html`<dt>reason codes</dt><dd>${group.causes.map((cause) => `${cause.code} (${many(cause.members, "pod")})`).join(", ")}</dd>`}
      <dt>queue</dt><dd>${Object.entries(group.places).map(([place, n]) => `${count(n)} ${place}`).join(", ") || "none waits"}${group.before !== null ? `, ${count(group.before)} before it` : ""}${group.waitingSeconds !== null ? `, for ${seconds(group.waitingSeconds)}` : ""}</dd>
      ${group.victims.length > 0 && html`<dt>victims</dt><dd>${group.victims.join(", ")}</dd>`}</dl></section>
    ${group.placements?.length > 0 && html`<section class="panel" aria-label="Domains"><h2>Domains</h2>
      <${Paged} rows=${group.placements} caption="Domains, the most promising first" head=${html`<${Column}>domain<//><${Column} n>nodes<//><${Column} n>room for pods<//><${Column} n>pods that fit<//><${Column} n>total<//>`}
        row=${(each) => html`<tr key=${each.name} class=${each.chosen ? "chosen" : ""}><td>${each.name}${each.chosen ? html` <span class="good">chosen</span>` : ""}</td><td class="n">${count(each.nodes)}</td><td class="n">${each.room ?? ""}</td><td class="n">${each.fits ?? "not tried"}</td><td class="n">${each.total ?? ""}</td></tr>`} /></section>`}
    ${group.members.length > 0 && html`<section class="panel" aria-label="Members"><h2>Pending pods of the group</h2>
      <${Paged} rows=${group.members} caption=${many(group.members.length, "pod")} head=${html`<${Column}>pod<//><${Column}>result<//>`}
        row=${(each) => html`<tr key=${each.pod}><td><${PodLink} pod=${each.pod} /></td><td>${each.fits ? html`<span class="good">fits</span>${each.node ? html` on <${NodeLink} node=${each.node} />` : ""}` : html`<span class="warn">${each.message}</span>`}</td></tr>`} /></section>`}
    ${onNodes.length > 0 && html`<section class="panel" aria-label="Pods on nodes"><h2>Pods on nodes</h2>
      <${Paged} rows=${onNodes} caption=${many(onNodes.length, "pod")} head=${html`<${Column}>pod<//><${Column}>node<//>`}
        row=${([pod, node]) => html`<tr key=${pod}><td><${PodLink} pod=${pod} /></td><td><${NodeLink} node=${node} /></td></tr>`} /></section>`}`;
}

export function Controller({ namespace, owner }) {
  const answer = useAnswer(`controllers/${[namespace, ...owner.split("/")].map(encodeURIComponent).join("/")}`, AGAIN_MS);
  if (!answer) return html`<p class="dim">Loading…</p>`;
  if (answer.problem) return html`<section class="panel"><h2>${owner}</h2><p class="warn">${answer.problem}</p></section>`;
  const causes = Object.entries(answer.causes);
  const nodes = Object.entries(answer.nodes);
  return html`<section class="panel" aria-label=${`Controller ${owner}`}><header><h2>${owner} in ${namespace}</h2></header>
      <dl><dt>pods</dt><dd>${count(answer.placed)} of ${count(answer.count)} on ${many(nodes.length, "node")}</dd>
        <dt>requests</dt><dd>${asked(answer.requests)}</dd></dl>
      ${causes.length > 0 && html`<h3>Why pods are pending</h3><ul class="rejections">${causes.map(([message, n]) => html`<li>${many(n, "pod")}: ${message || "no attempt yet"}</li>`)}</ul>`}</section>
    <section class="panel" aria-label="Pods"><h2>Pods</h2>
      <${Paged} rows=${answer.pods} caption=${answer.count > answer.pods.length ? `The first ${count(answer.pods.length)} of ${count(answer.count)} pods` : many(answer.count, "pod")} head=${html`<${Column}>pod<//><${Column}>node<//><${Column}>queue<//><${Column} wide>message<//>`}
        row=${(each) => html`<tr key=${each.pod}><td><${PodLink} pod=${each.pod} /></td><td>${each.node && html`<${NodeLink} node=${each.node} />`}</td><td class="w">${each.node || each.place === "outside" ? "" : each.place}</td><td class="wide">${each.message}</td></tr>`} /></section>`;
}

export function Preemptions() {
  const answer = useAnswer("preemptions", AGAIN_MS);
  if (!answer) return html`<p class="dim">Loading…</p>`;
  const { problem, preemptions, count: kept } = answer;
  return html`<section class="panel" aria-label="Preemptions"><header><h2>Preemptions</h2></header>
    ${problem && html`<p class="dim">${problem}</p>`}
    ${preemptions?.length === 0 && html`<p class="dim">None by this process.</p>`}
    ${preemptions?.length > 0 && html`<${Paged} rows=${preemptions} caption=${kept > preemptions.length ? `The last ${count(preemptions.length)} of ${count(kept)} preemptions in memory` : `${many(kept, "preemption")} by this process`}
      head=${html`<${Column}>time<//><${Column}>for<//><${Column}>cause<//><${Column} wide>node<//><${Column}>victims<//><${Column} wide>plugin<//>`}
      row=${(each) => html`<tr key=${`${each.at} ${each.preemptor}`}><td class="w"><${Ago} at=${each.at} /></td>
        <td>${each.kind === "pod" ? html`<${PodLink} pod=${each.preemptor} />` : html`<${GroupLink} group=${each.preemptor} />`}<div class="dim">priority ${each.priority}${each.placed ? html`, now on <${NodeLink} node=${each.placed} />` : ""}</div>
          ${each.quota && html`<div class="dim">queue or quota <a href=${quotaPath(each.quota)}>${each.quota}</a></div>`}</td>
        <td>${each.cause}</td><td class="wide">${each.node && html`<${NodeLink} node=${each.node} />`}</td>
        <td>${each.victims.map(({ pod, priority }) => html`<div><${PodLink} pod=${pod} /> <span class="dim">priority ${priority}</span></div>`)}${each.count > each.victims.length ? html`<div class="dim">and ${count(each.count - each.victims.length)} more</div>` : ""}</td>
        <td class="dim wide">${each.plugin}</td></tr>`} />`}</section>`;
}
