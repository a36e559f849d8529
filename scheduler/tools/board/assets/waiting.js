// Pending pods by cause.
import { html, useEffect, useState } from "./dom.js";
import { age, count, many } from "./format.js";
import { PodLink } from "./node.js";
import { ask, useTopic } from "./store.js";
import { Column, Sorted } from "./table.js";

const PLACES = ["active", "backoff", "unschedulable", "gated", "in flight", "waits"];
const AGES = [["any age", 0], ["over 1 minute", 60], ["over 10 minutes", 600], ["over 1 hour", 3600], ["over 1 day", 86400]];
const KEYS = { count: (group) => group.count, age: (group) => -new Date(group.oldest) };

export function Waiting() {
  const { waiting } = useTopic("waiting");
  const [place, setPlace] = useState("");
  const [over, setOver] = useState(0);
  const [by, setBy] = useState({ name: "count", down: true });
  const [open, setOpen] = useState(null);
  const old = Date.now() - over * 1000;
  const groups = waiting.filter((group) => (!place || group.places[place]) && (!over || new Date(group.oldest) < old));
  groups.sort((one, other) => (KEYS[by.name](one) - KEYS[by.name](other)) * (by.down ? -1 : 1));
  const all = waiting.reduce((sum, group) => sum + group.count, 0);
  return html`<section class="panel" aria-label="Pending pods">
    <header><h2>${all ? many(all, "pending pod") : "No pending pods"}</h2>
      <span><label>in <select value=${place} onChange=${(event) => setPlace(event.target.value)}>
          <option value="">any queue</option>${PLACES.map((each) => html`<option value=${each}>${each === "waits" ? "pending" : each}</option>`)}</select></label>
        <label>pending for <select value=${over} onChange=${(event) => setOver(Number(event.target.value))}>
          ${AGES.map(([words, seconds]) => html`<option value=${seconds}>${words}</option>`)}</select></label></span></header>
    ${groups.length > 0 && html`<div class="scroll"><table><caption class="unseen">Pending pods by cause</caption>
      <thead><tr><${Sorted} name="count" by=${by} setBy=${setBy} n>pods<//><${Column}>cause<//><${Column}>queue<//>
        <${Sorted} name="age" by=${by} setBy=${setBy}>oldest<//><${Column}>requeued by changes of<//></tr></thead>
      <tbody>${groups.map((group) => html`<${Group} key=${group.name} group=${group} isOpen=${open === group.name}
        turn=${() => setOpen(open === group.name ? null : group.name)} />`)}</tbody></table></div>`}
  </section>`;
}

function Group({ group, isOpen, turn }) {
  const kinds = [...new Set(Object.values(group.requeuingEvents).flatMap((events) => events.map(([resource]) => resource)))].sort();
  return html`<tr><td class="n"><button class="count" aria-expanded=${isOpen} onClick=${turn}>${count(group.count)}</button></td>
      <td><ul class="causes">${group.causes.map((cause) => html`<li>${cause.reason}${nodes(cause, group.nodes)}</li>`)}</ul>
        ${group.postFilter && html`<p class="dim">${group.postFilter}</p>`}
        ${group.podGroups > 0 && html`<p class="dim">${ofGroups(group)}</p>`}</td>
      <td class="w">${Object.entries(group.places).map(([place, n]) => html`<div>${place === "waits" ? "" : `${count(n)} ${place}`}</div>`)}
        ${Object.keys(group.profiles).map((profile) => html`<div class="dim">${profile}</div>`)}</td>
      <td class="w">${age(group.oldest)}</td>
      <td class="dim">${kinds.join(", ")}</td></tr>
    ${isOpen && html`<tr><td></td><td colspan="4"><${Pods} group=${group} />
      ${Object.entries(group.requeuingEvents).map(([plugin, events]) => html`<p class="dim">${plugin} checks these events:
        ${" "}${events.map(([resource, actions]) => `${resource} ${actions.join(" or ")}`).join("; ")}</p>`)}</td></tr>`}`;
}

function ofGroups({ podGroups, largestPodGroups }) {
  const named = Object.entries(largestPodGroups);
  const more = podGroups > named.length ? ` and ${count(podGroups - named.length)} more` : "";
  return `in ${many(podGroups, "pod group")}: ${named.map(([name, n]) => `${name} (${count(n)})`).join(", ")}${more}`;
}

function nodes(cause, all) {
  if (cause.most === null) return "";
  const number = cause.fewest === cause.most ? count(cause.most) : `${count(cause.fewest)} to ${count(cause.most)}`;
  return html` <span class="dim">on ${number}${all ? ` of ${count(all)}` : ""} nodes</span>`;
}

function Pods({ group }) {
  const [details, setDetails] = useState({ pods: group.pods.map((pod) => ({ pod })), start: 0, count: group.count });
  const [start, setStart] = useState(0);
  useEffect(() => {
    let isHere = true;
    ask(`waiting/${group.name}?start=${start}`).then((answer) => isHere && setDetails(answer));
    return () => { isHere = false; };
  }, [group.name, start]);
  if (details.problem) return html`<p>${details.problem}</p>`;
  const end = details.start + details.pods.length;
  return html`<ul class="pods">${details.pods.map(({ pod, since }) => html`<li key=${pod}><${PodLink} pod=${pod} /> <span class="dim">${since ? age(since) : ""}</span></li>`)}</ul>
    ${details.count > details.pods.length && html`<p class="pages"><button disabled=${!details.start} onClick=${() => setStart(Math.max(0, details.start - 200))}>Previous</button>
      <span>${count(details.start + 1)} to ${count(end)} of ${count(details.count)}, oldest first</span>
      <button disabled=${end >= details.count} onClick=${() => setStart(end)}>Next</button></p>`}`;
}
