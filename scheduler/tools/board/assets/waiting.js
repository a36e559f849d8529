// Pending pods by cause.
import { html, useEffect, useState } from "./dom.js";
import { count, many } from "./format.js";
import { Ago } from "./moment.js";
import { PodLink } from "./node.js";
import { setParams, usePlace } from "./place.js";
import { ask, now, useAnswer, useTopic } from "./store.js";
import { Column, Sorted } from "./table.js";
import { GroupLink } from "./workloads.js";

const PLACES = ["active", "backoff", "unschedulable", "gated", "in flight", "waits"];
const AGES = [["any age", 0], ["over 1 minute", 60], ["over 10 minutes", 600], ["over 1 hour", 3600], ["over 1 day", 86400]];
const FILTERS = [["namespace", "namespace", "default"], ["owner", "controller", "Job/train"], ["label", "label", "app=web"]];
const AGAIN_MS = 3000;
const KEYS = { count: (group) => group.count, age: (group) => -new Date(group.oldest) };

// Returns the filters of pods in the address, as the query of a request; "" without filters.
function useFilter() {
  const { params } = usePlace();
  return new URLSearchParams(FILTERS.map(([name]) => [name, params.get(name)]).filter(([, value]) => value)).toString();
}

export function Filters() {
  const { params } = usePlace();
  const set = (event) => {
    event.preventDefault();
    setParams(Object.fromEntries(new FormData(event.target)));
  };
  return html`<form class="filters" onSubmit=${set} aria-label="Filter pods">${FILTERS.map(([name, words, example]) => html`<label>${words} <input key=${`${name} ${params.get(name) ?? ""}`} name=${name} defaultValue=${params.get(name) ?? ""} placeholder=${example} /></label>`)}
    <button>Filter</button><button type="button" onClick=${() => setParams(Object.fromEntries(FILTERS.map(([name]) => [name, ""])))}>Show all</button></form>`;
}

// Numbers of pending pods by namespace or priority; a namespace is a link to its pods.
function Totals({ name, totals }) {
  if (!totals || totals.largest.length + (totals.others > 0) < 2) return null;
  return html`<p class="dim">by ${name}: ${totals.largest.map(([value, n], place) => html`${place > 0 && ", "}${name === "namespace" ? html`<button class="plain" onClick=${() => setParams({ namespace: value })}>${value}</button>` : value} (${count(n)})`)}${totals.others > 0 && `, others (${count(totals.others)})`}</p>`;
}

export function Waiting() {
  const all = useTopic("waiting").waiting;
  const filter = useFilter();
  const filtered = useAnswer(filter ? `pending?${filter}` : null, AGAIN_MS);
  const shown = filter ? filtered?.groups ? filtered : { groups: [] } : all;
  const waiting = shown.groups;
  const [place, setPlace] = useState("");
  const [over, setOver] = useState(0);
  const [by, setBy] = useState({ name: "count", down: true });
  const [open, setOpen] = useState(null);
  const old = now() - over * 1000;
  const groups = waiting.filter((group) => (!place || group.places[place]) && (!over || new Date(group.oldest) < old));
  groups.sort((one, other) => (KEYS[by.name](one) - KEYS[by.name](other)) * (by.down ? -1 : 1));
  const number = waiting.reduce((sum, group) => sum + group.count, 0);
  return html`<section class="panel" aria-label="Pending pods">
    <header><h2>${number ? many(number, "pending pod") : filter && !filtered ? "Loading…" : "No pending pods"}</h2>
      <span><label>in <select value=${place} onChange=${(event) => setPlace(event.target.value)}>
          <option value="">any queue</option>${PLACES.map((each) => html`<option value=${each}>${each === "waits" ? "pending" : each}</option>`)}</select></label>
        <label>pending for <select value=${over} onChange=${(event) => setOver(Number(event.target.value))}>
          ${AGES.map(([words, seconds]) => html`<option value=${seconds}>${words}</option>`)}</select></label></span></header>
    <${Filters} />
    <${Totals} name="namespace" totals=${shown.namespaces} /><${Totals} name="priority" totals=${shown.priorities} />
    ${groups.length > 0 && html`<div class="scroll"><table><caption class="unseen">Pending pods by cause</caption>
      <thead><tr><${Sorted} name="count" by=${by} setBy=${setBy} n>pods<//><${Column}>cause<//><${Column}>queue<//>
        <${Sorted} name="age" by=${by} setBy=${setBy}>oldest<//><${Column} wide>requeued by changes of<//></tr></thead>
      <tbody>${groups.map((group) => html`<${Group} key=${group.name} group=${group} filter=${filter} isOpen=${open === group.name}
        turn=${() => setOpen(open === group.name ? null : group.name)} />`)}</tbody></table></div>`}
  </section>`;
}

function Group({ group, filter, isOpen, turn }) {
  const kinds = [...new Set(Object.values(group.requeuingEvents).flatMap((events) => events.map(([resource]) => resource)))].sort();
  return html`<tr><td class="n"><button class="count" aria-expanded=${isOpen} onClick=${turn}>${count(group.count)}</button></td>
      <td class="cause"><ul class="causes">${group.causes.map((cause) => html`<li>${cause.reason}${nodes(cause, group.nodes)}</li>`)}</ul>
        ${group.reasonCodes.length > 0 && html`<p class="dim">${group.reasonCodes.join(", ")}</p>`}
        ${group.postFilter && html`<p class="dim">${group.postFilter}</p>`}
        ${group.podGroups > 0 && html`<p class="dim">${ofGroups(group)}</p>`}</td>
      <td class="w">${Object.entries(group.places).map(([place, n]) => html`<div>${place === "waits" ? "" : `${count(n)} ${place}`}</div>`)}
        ${Object.keys(group.profiles).map((profile) => html`<div class="dim wide">${profile}</div>`)}</td>
      <td class="w"><${Ago} at=${group.oldest} words="" /></td>
      <td class="dim wide">${kinds.join(", ")}</td></tr>
    ${isOpen && html`<tr><td></td><td colspan="4"><${Pods} group=${group} filter=${filter} />
      ${Object.entries(group.requeuingEvents).map(([plugin, events]) => html`<p class="dim">${plugin} checks these events:
        ${" "}${events.map(([resource, actions]) => `${resource} ${actions.join(" or ")}`).join("; ")}</p>`)}</td></tr>`}`;
}

function ofGroups({ podGroups, largestPodGroups }) {
  const named = Object.entries(largestPodGroups);
  const more = podGroups > named.length ? ` and ${count(podGroups - named.length)} more` : "";
  return html`in ${many(podGroups, "pod group")}: ${named.map(([name, n], place) => html`${place > 0 && ", "}<${GroupLink} group=${name} /> (${count(n)})`)}${more}`;
}

function nodes(cause, all) {
  if (cause.most === null) return "";
  const number = cause.fewest === cause.most ? count(cause.most) : `${count(cause.fewest)} to ${count(cause.most)}`;
  return html` <span class="dim">on ${number}${all ? ` of ${count(all)}` : ""} nodes</span>`;
}

function Pods({ group, filter }) {
  const [details, setDetails] = useState({ pods: group.pods.map((pod) => ({ pod })), start: 0, count: group.count });
  const [start, setStart] = useState(0);
  useEffect(() => {
    let isHere = true;
    ask(`waiting/${group.name}?start=${start}&${filter}`).then((answer) => isHere && setDetails(answer));
    return () => { isHere = false; };
  }, [group.name, start, filter]);
  if (details.problem) return html`<p>${details.problem}</p>`;
  const end = details.start + details.pods.length;
  return html`<ul class="pods">${details.pods.map(({ pod, since }) => html`<li key=${pod}><${PodLink} pod=${pod} /> <span class="dim">${since && html`<${Ago} at=${since} words="" />`}</span></li>`)}</ul>
    ${details.count > details.pods.length && html`<p class="pages"><button disabled=${!details.start} onClick=${() => setStart(Math.max(0, details.start - 200))}>Previous</button>
      <span>${count(details.start + 1)} to ${count(end)} of ${count(details.count)}, oldest first</span>
      <button disabled=${end >= details.count} onClick=${() => setStart(end)}>Next</button></p>`}`;
}
