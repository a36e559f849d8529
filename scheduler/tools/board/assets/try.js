// Tries changes of a profile: which pending pods would get which node, with nothing written.
import { divisible, html, useState } from "./dom.js";
import { count, many } from "./format.js";
import { NodeLink, PodLink } from "./node.js";
import { ask, useAnswer, useTopic } from "./store.js";
import { Column, Paged } from "./table.js";

export function TryProfile() {
  const { configuration } = useTopic("configuration");
  const given = useAnswer("configuration");
  const [name, setName] = useState("");
  const [changes, setChanges] = useState({}); // plugin -> "on", "off" or a weight
  const [added, setAdded] = useState([]);
  const [answer, setAnswer] = useState(null); // null, "running", or the answer
  if (!configuration) return html`<p class="dim">No data yet.</p>`;
  const profile = configuration.profiles.find((each) => each.name === name) ?? configuration.profiles[0];
  const plugins = [...profile.plugins, ...added.map((plugin) => ({ name: plugin, weight: null, points: [] }))];
  const addable = (given?.addable ?? []).filter((each) => plugins.every((plugin) => plugin.name !== each));
  const change = (plugin, value) => {
    const { [plugin]: _, ...others } = changes;
    setChanges(value === null ? others : { ...others, [plugin]: value });
  };
  const choose = (event) => {
    setName(event.target.value);
    setChanges({});
    setAdded([]);
    setAnswer(null);
  };
  const add = (plugin) => {
    setAdded([...added, plugin]);
    change(plugin, "on");
  };
  const run = async (event) => {
    event.preventDefault();
    setAnswer("running");
    const query = new URLSearchParams([["profile", profile.name], ...Object.entries(changes).map(([plugin, value]) => ["change", `${plugin}=${value}`])]);
    setAnswer(await ask(`dry-run?${query}`));
  };
  return html`<section class="panel" aria-label="Try a profile"><header><h2>Try a profile</h2><span><label>profile <select value=${profile.name} onChange=${choose}>${configuration.profiles.map((each) => html`<option value=${each.name}>${each.name}</option>`)}</select></label></span></header>
      <p class="dim">Change weights and plugins, and see which pending pods would get another node. Nothing is written. Preemption and PreEnqueue do not take part.</p>
      <form onSubmit=${run}><div class="scroll"><table><caption class="unseen">Plugins of the profile</caption>
        <thead><tr><${Column}>plugin<//><${Column}>enabled<//><${Column}>weight<//><${Column} wide>extension points<//></tr></thead>
        <tbody>${plugins.map((plugin) => html`<${Row} key=${plugin.name} plugin=${plugin} isAdded=${added.includes(plugin.name)} value=${changes[plugin.name]} change=${change} drop=${() => { setAdded(added.filter((each) => each !== plugin.name)); change(plugin.name, null); }} />`)}</tbody></table></div>
        <p class="pages">${addable.length > 0 && html`<label>add a plugin <select value="" onChange=${(event) => event.target.value && add(event.target.value)}><option value="">choose</option>${addable.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
          <button disabled=${answer === "running" || !Object.keys(changes).length}>${answer === "running" ? "Evaluating…" : "Try"}</button></p></form></section>
    ${answer && answer !== "running" && html`<${Outcome} answer=${answer} />`}`;
}

function Row({ plugin, isAdded, value, change, drop }) {
  const isOn = value !== "off";
  const weight = isOn && value !== "on" ? value ?? plugin.weight ?? "" : plugin.weight ?? "";
  const turn = () => (isAdded ? drop() : change(plugin.name, isOn ? "off" : null));
  const weigh = (event) => change(plugin.name, event.target.value === String(plugin.weight) ? null : event.target.value || (isAdded ? "on" : null));
  return html`<tr class=${value === undefined ? "" : "chosen"}><td class="plugin">${divisible(plugin.name)}</td>
    <td><input type="checkbox" checked=${isOn} onChange=${turn} aria-label=${`${plugin.name} enabled`} /></td>
    <td>${(plugin.weight !== null || isAdded) && html`<input type="number" min="1" max="100" value=${weight} disabled=${!isOn} onInput=${weigh} aria-label=${`weight of ${plugin.name}`} />`}</td>
    <td class="wide">${plugin.points.join(", ")}</td></tr>`;
}

function Outcome({ answer }) {
  if (answer.problem) return html`<section class="panel" aria-label="Result"><p class="warn" role="alert">${answer.problem}</p></section>`;
  const kind = ({ before, after }) => (before.node === after.node ? "same" : !before.node ? "placed" : !after.node ? "lost" : "moved");
  const counts = { moved: 0, placed: 0, lost: 0, same: 0 };
  for (const each of answer.pods) counts[kind(each)] += 1;
  const rows = [...answer.pods].sort((one, other) => (kind(one) === "same") - (kind(other) === "same"));
  const place = ({ node, message }) => (node ? html`<${NodeLink} node=${node} />` : html`<span class="warn">${message}</span>`);
  return html`<section class="panel" aria-label="Result"><header><h2>${rows.length ? `${many(counts.moved, "pod")} on another node, ${count(counts.placed)} more placed, ${count(counts.lost)} no longer placed, ${count(counts.same)} unchanged` : "No pending pods"}</h2></header>
    ${answer.count > rows.length && html`<p class="dim">The first ${count(rows.length)} of ${many(answer.count, "pending pod")} were evaluated, by priority and age.</p>`}
    ${rows.length > 0 && html`<${Paged} rows=${rows} caption="Pods, those that change first" head=${html`<${Column}>pod<//><${Column}>with the active profile<//><${Column}>with the changes<//>`}
      row=${(each) => html`<tr key=${each.pod} class=${kind(each) === "same" ? "" : "chosen"}><td><${PodLink} pod=${each.pod} /></td><td>${place(each.before)}</td><td>${kind(each) === "same" && !each.after.node ? html`<span class="dim">no node either</span>` : place(each.after)}</td></tr>`} />`}</section>`;
}
