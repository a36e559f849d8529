// One pod: its attempts, its history in the queue, and the result of every node.
import { html, useEffect, useMemo, useState } from "./dom.js";
import { count, left, many, pathOf, seconds, time } from "./format.js";
import { compare } from "./layout.js";
import { Ago } from "./moment.js";
import { asked, NodeLink } from "./node.js";
import { YamlLink } from "./object.js";
import { ask, listen } from "./store.js";
import { Column, Paged } from "./table.js";
import { ControllerLink, GroupLink } from "./workloads.js";

const FEW_NODES = 5;
const MOST_DETAILS = 5;

export function Pod({ pod }) {
  const [details, setDetails] = useState(null);
  const [number, setNumber] = useState(null); // number of the attempt; null for the last one
  useEffect(() => {
    let isHere = true;
    const look = async () => {
      const answer = await ask(`${pathOf(pod)}${number === null ? "" : `?attempt=${number}`}`);
      if (isHere) setDetails(answer);
    };
    setDetails(null);
    look();
    // Loaded again after each decision about it; for another scheduler, after a new message in its status.
    const end = listen("fresh", (keys) => keys.has(pod) && look());
    return () => {
      isHere = false;
      end();
    };
  }, [pod, number]);
  if (details === null) return html`<p class="dim">Loading…</p>`;
  if (details.problem) return html`<section class="panel"><h2>${pod}</h2><p class="warn">${details.problem}</p></section>`;
  return html`<${Facts} details=${details} />
    ${details.attempt && html`<${Verdicts} key=${`${pod} ${details.attempt.number} ${details.attempt.at}`} details=${details} />`}
    <div class="beside"><${Attempts} details=${details} setNumber=${setNumber} /><${History} details=${details} />
      ${details.events && html`<${Events} events=${details.events} />`}</div>`;
}

function Facts({ details }) {
  const { attempt } = details;
  const message = attempt?.message ?? details.conditions[0]?.message;
  return html`<section class="panel" aria-label=${`Pod ${details.pod}`}>
    <header><h2>${details.pod}</h2><span><${YamlLink} kind="v1/pods" of=${details.pod} />${" "}<a href="#/">Back to the map</a></span></header>
    ${details.verdict && html`<p class="verdict">${details.verdict}</p>`}
    <dl><dt>state</dt><dd>${details.node ? html`on <strong><${NodeLink} node=${details.node} /></strong>` : html`<strong>${details.place === "outside" || (details.isEvaluation && details.place === "active") ? "pending" : details.place}</strong>`}${details.nominated ? `, nominated to ${details.nominated}` : ""}</dd>
      ${details.held.length > 0 && html`<dt>held at Permit</dt><dd>${details.held.map((each) => html`<div class="warn">by <strong>${each.plugin}</strong> until ${time(each.until)} (${left(each.until)})</div>`)}</dd>`}
      <dt>requests</dt><dd>${asked(details.requests)}</dd>
      <dt>priority</dt><dd>${details.priority}</dd>
      <dt>scheduler</dt><dd>${details.scheduler}</dd>
      ${details.owner && html`<dt>controller</dt><dd><${ControllerLink} namespace=${details.pod.split("/")[0]} owner=${details.owner} /></dd>`}
      ${details.group && html`<dt>group</dt><dd><${GroupLink} group=${details.group} /></dd>`}
      <dt>created</dt><dd>${details.since ? html`<${Ago} at=${details.since} />` : "unknown"}</dd>
      <${Several} name="labels" of=${pairs(details.labels)} />
      <${Several} name="node selector" of=${pairs(details.nodeSelector)} />
      <${Several} name="tolerations" of=${details.tolerations} /></dl>
    ${!details.node && message && html`<p class="message">${message}</p>`}
    ${details.attempt?.number === 0 && html`<p class="dim">Another scheduler places this pod. This is an evaluation in the current state of the cluster.</p>`}
  </section>`;
}

const pairs = (labels) => Object.entries(labels).map(([key, value]) => `${key}=${value}`);

function Several({ name, of }) {
  return of.length > 0 && html`<dt>${name}</dt><dd>${of.map((each) => html`<code>${each}</code> `)}</dd>`;
}

function Attempts({ details, setNumber }) {
  const current = details.attempt?.at;
  return html`<section class="panel" aria-label="Attempts"><header><h2>Attempts</h2></header>
    ${!details.attempts.length && html`<p class="dim">None in memory.</p>`}
    ${details.attempts.length > 0 && html`<div class="scroll low"><table><caption class="unseen">Attempts in memory, newest first</caption>
      <thead><tr><${Column} n>attempt<//><${Column}>time<//><${Column} n wide>duration<//><${Column}>result<//></tr></thead>
      <tbody>${details.attempts.map((each) => html`<tr class=${each.at === current ? "chosen" : ""}><td class="n"><button class="plain" aria-pressed=${each.at === current} onClick=${() => setNumber(each.number)}>${each.number || "now"}</button></td>
        <td class="w"><${Ago} at=${each.at} /></td><td class="n wide">${seconds(each.seconds)}</td><td>${each.chosen ? html`<span class="good">→ ${each.chosen}</span>` : each.message}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function History({ details }) {
  return html`<section class="panel" aria-label="Queue history"><header><h2>Queue history</h2></header>
    ${!details.history.length && html`<p class="dim">None in memory.</p>`}
    ${details.history.length > 0 && html`<div class="scroll low" tabindex="0" role="group" aria-label="Queue history as a table"><table><caption class="unseen">Moves between queues, newest first</caption>
      <thead><tr><${Column}>time<//><${Column} wide>from<//><${Column}>to<//><${Column}>reason<//></tr></thead>
      <tbody>${[...details.history].reverse().map((move) => html`<tr><td class="w"><${Ago} at=${move.at} /></td><td class="w wide">${move.from}</td><td class="w">${move.to}</td><td>${move.why}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function Events({ events: { events, problem } }) {
  return html`<section class="panel" aria-label="Events"><header><h2>Events</h2></header>
    ${problem && html`<p class="warn">Cannot read events: ${problem}</p>`}
    ${events?.length === 0 && html`<p class="dim">No recent events.</p>`}
    ${events?.length > 0 && html`<div class="scroll low" tabindex="0" role="group" aria-label="Events as a table"><table><caption class="unseen">Events about the pod, newest first</caption>
      <thead><tr><${Column}>time<//><${Column} n wide>count<//><${Column}>reason<//><${Column}>message<//><${Column} wide>from<//></tr></thead>
      <tbody>${events.map((each) => html`<tr><td class="w"><${Ago} at=${each.at} /></td><td class="n wide">${count(each.times)}</td><td class="w">${each.reason}</td><td>${each.note}</td><td class="dim wide">${each.by}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

// The result of every node.

function Verdicts({ details }) {
  const { attempt, weights } = details;
  const [words, setWords] = useState("");
  const [verdict, setVerdict] = useState("");
  const [pair, setPair] = useState([]);
  const rows = useMemo(() => rowsOf(attempt), [attempt]);
  const plugins = useMemo(() => pluginsOf(rows), [rows]);
  const most = useMemo(() => rows.reduce((top, [, node]) => Math.max(top, barLength(node)), 1), [rows]);
  const refusing = useMemo(() => refusals(rows), [rows]);
  const fits = rows.filter(([, node]) => node.feasible).length;
  const shown = rows.filter(([name, node]) => (!words || name.includes(words) || [...node.reasons ?? [], ...node.reasonCodes ?? []].some((reason) => reason.includes(words)))
    && (!verdict || (verdict === "fits" ? node.feasible : node.plugin === verdict)));
  const feasible = shown.filter(([, node]) => node.feasible);
  const groups = useMemo(() => rejectionsOf(attempt, shown), [attempt, words, verdict]);
  const turn = (name) => setPair(pair.includes(name) ? pair.filter((each) => each !== name) : [...pair, name].slice(-2));
  const nominated = new Set(attempt.preemption?.nominated ?? []);
  const choice = ([name]) => html`<td><input type="checkbox" checked=${pair.includes(name)} onChange=${() => turn(name)} aria-label=${`${name} side by side`} /></td>`;
  const named = ([name]) => html`<td>${name}${name === attempt.chosen ? html` <span class="good">chosen</span>` : ""}${nominated.has(name) ? html` <span class="good">best for preemption</span>` : ""}</td>`;
  return html`<section class="panel" aria-label="Results">
    <header><h2>${verdictTitle(attempt, fits, rows.length)}</h2>
      <span><label>find <input value=${words} onInput=${(event) => setWords(event.target.value)} placeholder="node or reason" /></label>
        <label>show <select value=${verdict} onChange=${(event) => setVerdict(event.target.value)}><option value="">all</option>
          <option value="fits">nodes that fit (${count(fits)})</option>
          ${refusing.map(([plugin, n]) => html`<option value=${plugin}>rejected by ${plugin} (${count(n)})</option>`)}</select></label></span></header>
    ${attempt.preFilter && html`<p class="warn">${attempt.preFilter.plugin} rejects the pod on every node: ${attempt.preFilter.reasons.join(", ")} <span class="dim">${attempt.preFilter.reasonCodes?.join(", ")}</span></p>
      ${attempt.preFilter.details?.map((detail) => html`<p>${detail}</p>`)}`}
    ${attempt.remedies?.length > 0 && html`<h3>What would help</h3><ul class="rejections">${attempt.remedies.map(({ changes, node }) => html`<li>The pod would fit if ${changes.join(" and ")} <span class="dim">(node <${NodeLink} node=${node} />)</span></li>`)}</ul>`}
    ${pair.length === 1 && html`<p class="dim">Choose a second node to see both side by side.</p>`}
    ${pair.length === 2 && html`<${Beside} names=${pair} attempt=${attempt} plugins=${plugins} weights=${weights} close=${() => setPair([])} />`}
    ${feasible.length > 0 && html`${plugins.length > 0 && html`<p class="keys">${plugins.map((plugin, place) => html`<span class="key"><i class=${`part part-${place % 12}`}></i>${plugin}${weights[plugin] > 1 ? ` ×${weights[plugin]}` : ""}</span>`)}</p>`}
      <${Paged} rows=${feasible} caption=${`${count(feasible.length)} of ${many(rows.length, "node")} fit; choose two nodes to see them side by side`}
        head=${html`<${Column}><span class="unseen">side by side</span><//><${Column}>node<//><${Column} fill>result<//><${Column} n>total<//>`}
        row=${(row) => html`<tr key=${row[0]} class=${row[0] === attempt.chosen ? "chosen" : ""}>${choice(row)}${named(row)}
          <td>${row[1].avoided && html`<span class="warn">avoided: ${row[1].avoided} </span>`}<${Bar} node=${row[1]} plugins=${plugins} most=${most} /></td>
          <td class="n">${row[1].total ?? ""}</td></tr>`} />`}
    ${groups.length > 0 && html`<h3>Rejections</h3>${groups.map((group) => html`<${Rejection} key=${group.key} group=${group} choice=${choice} named=${named} />`)}`}
    ${attempt.notExamined > 0 && html`<p class="dim">${many(attempt.notExamined, "more node was", "more nodes were")} not examined.</p>`}
    ${attempt.preemption && html`<${Preemption} preemption=${attempt.preemption} />`}
  </section>`;
}

// The rejected nodes with one plugin and one reason, and below them the nodes with each detail of the plugin.
function Rejection({ group, choice, named }) {
  const { plugin, reasons, codes, summary, rows, details } = group;
  const detailed = details.length > 0 && (details.length > 1 || details[0].nodes < rows.length || !summary);
  return html`<details class="rejection" open=${rows.length <= FEW_NODES}><summary><strong>${many(rows.length, "node")}: ${reasons.join(", ")}</strong>${summary ? `, ${summary}` : ""} <span class="dim">${plugin}${codes.length > 0 && ` (${codes.join(", ")})`}</span></summary>
    ${detailed && html`<ul class="rejections">${details.slice(0, MOST_DETAILS).map(({ text, nodes }) => html`<li>${many(nodes, "node")}: ${text}</li>`)}</ul>
      ${details.length > MOST_DETAILS && html`<p class="dim">and ${count(details.length - MOST_DETAILS)} more, in the list</p>`}`}
    <${Paged} rows=${rows} size=${20} caption=${`Nodes that ${plugin} rejects`}
      head=${html`<${Column}><span class="unseen">side by side</span><//><${Column}>node<//><${Column} fill>detail<//>`}
      row=${(row) => html`<tr key=${row[0]}>${choice(row)}${named(row)}<td>${row[1].details?.map((detail) => html`<div>${detail}</div>`)}</td></tr>`} /></details>`;
}

// Groups the rejected nodes of some rows by plugin and reasons, the largest group first.
function rejectionsOf(attempt, rows) {
  const summaries = new Map(attempt.rejections?.map((each) => [keyOf(each), each.summary]));
  const groups = new Map();
  for (const row of rows) {
    const [, node] = row;
    if (node.feasible) continue;
    const key = keyOf(node);
    if (!groups.has(key)) groups.set(key, { key, plugin: node.plugin, reasons: node.reasons, codes: node.reasonCodes ?? [], summary: summaries.get(key) ?? "", rows: [], details: new Map() });
    const group = groups.get(key);
    group.rows.push(row);
    for (const detail of node.details ?? []) group.details.set(detail, (group.details.get(detail) ?? 0) + 1);
  }
  return [...groups.values()].map((group) => ({ ...group, details: [...group.details].map(([text, nodes]) => ({ text, nodes })).sort((one, other) => other.nodes - one.nodes) }))
    .sort((one, other) => other.rows.length - one.rows.length);
}

const keyOf = ({ plugin, reasons }) => [plugin, ...reasons].join("\n");

function verdictTitle(attempt, fits, all) {
  if (attempt.chosen) return `${attempt.chosen}, chosen from ${many(fits, "feasible node")}`;
  return fits ? `${count(fits)} of ${many(all, "node")} fit` : `No node fits (0 of ${count(all)})`;
}

// Sorts the nodes: feasible nodes first, by total.
function rowsOf(attempt) {
  return Object.entries(attempt.nodes).sort(([name, node], [other, another]) =>
    (another.feasible - node.feasible) || (another.total ?? -Infinity) - (node.total ?? -Infinity) || (other === attempt.chosen) - (name === attempt.chosen) || compare(name, other));
}

function pluginsOf(rows) {
  const found = rows.find(([, node]) => node.scores);
  return found ? Object.keys(found[1].scores) : [];
}

function refusals(rows) {
  const counts = new Map();
  for (const [, node] of rows) if (!node.feasible) counts.set(node.plugin, (counts.get(node.plugin) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]);
}

// Scores of extenders may be negative; the bar shows the others.
const barLength = (node) => Object.values(node.scores ?? {}).reduce((sum, score) => sum + Math.max(score, 0), 0);

function Bar({ node, plugins, most }) {
  if (!node.scores) return html`<span class="dim">fits</span>`;
  const words = plugins.map((plugin) => `${plugin} ${node.scores[plugin]}`).join(", ");
  return html`<span class="bar" role="img" aria-label=${words} title=${words}>${plugins.map((plugin, place) =>
    html`<i class=${`part part-${place % 12}`} style=${{ width: `${(100 * Math.max(node.scores[plugin], 0)) / most}%` }}></i>`)}</span>`;
}

function Beside({ names, attempt, plugins, weights, close }) {
  const [one, other] = names.map((name) => attempt.nodes[name]);
  const fit = one.total !== undefined && other.total !== undefined;
  return html`<div class="panel inner" role="region" aria-label="Two nodes side by side"><header><h3>${names[0]} beside ${names[1]}</h3><button onClick=${close} aria-label="Close the comparison">✕</button></header>
    <table><caption class="unseen">Results of the two nodes</caption><thead><tr><${Column}>${fit ? "score" : html`<span class="unseen">what</span>`}<//><${Column} n>${names[0]}<//><${Column} n>${names[1]}<//>${fit && html`<${Column} n>difference<//>`}</tr></thead>
    <tbody><tr><th scope="row">result</th>${[one, other].map((node) => html`<td class="n">${node.feasible ? "fits" : `${node.plugin}: ${node.reasons.join(", ")}`}</td>`)}${fit && html`<td></td>`}</tr>
      ${(one.scores ?? other.scores) && plugins.map((plugin) => html`<tr><th scope="row">${plugin}${weights[plugin] > 1 ? html` <span class="dim">×${weights[plugin]}</span>` : ""}</th>
        ${[one, other].map((node) => html`<td class="n">${node.scores ? scored(node.scores[plugin], weights[plugin]) : "–"}</td>`)}
        ${fit && html`<td class="n">${signed((one.scores?.[plugin] ?? 0) - (other.scores?.[plugin] ?? 0))}</td>`}</tr>`)}
      <tr><th scope="row">total</th><td class="n">${one.total ?? "–"}</td><td class="n">${other.total ?? "–"}</td>${fit && html`<td class="n">${signed(one.total - other.total)}</td>`}</tr></tbody></table></div>`;
}

const scored = (score, weight) => (weight > 1 ? html`<span class="dim">${score / weight} × ${weight} = </span>${score}` : score);
const signed = (number) => (number > 0 ? `+${number}` : number);

function Preemption({ preemption }) {
  const rows = Object.entries(preemption.candidates);
  const best = new Set(preemption.nominated);
  rows.sort(([name, one], [other, another]) => best.has(other) - best.has(name) || one.pdbViolations - another.pdbViolations || one.victims.length - another.victims.length || compare(name, other));
  const kept = Object.entries(preemption.protected ?? {});
  kept.sort(([name, one], [other, another]) => compare(one.until ?? "~", another.until ?? "~") || compare(name, other));
  return html`<h3>Possible preemptions</h3>
    ${!rows.length && html`<p class="dim">${kept.length ? "None now: pods are protected." : "None: evicting pods of lower priority does not help on any node."}</p>`}
    ${rows.length > 0 && html`<${Paged} rows=${rows} size=${20} caption=${`${many(rows.length, "node")} would fit after evictions`}
      head=${html`<${Column}>node<//><${Column} n>PodDisruptionBudgets violated<//><${Column}>victims<//>`}
      row=${([name, candidate]) => html`<tr key=${name} class=${best.has(name) ? "chosen" : ""}><td>${name}${best.has(name) ? html` <span class="good">best</span>` : ""}</td>
        <td class="n">${candidate.pdbViolations}</td><td>${candidate.victims.join(", ")}</td></tr>`} />`}
    ${kept.length > 0 && html`<${Paged} rows=${kept} size=${20} caption=${`Pods on ${many(kept.length, "node")} are protected from preemption`}
      head=${html`<${Column}>node<//><${Column}>pod<//><${Column}>until<//><${Column}>by<//>`}
      row=${([name, each]) => html`<tr key=${name}><td>${name}</td><td>${each.pod}</td><td>${each.until ?? "without end"}</td><td>${each.by}</td></tr>`} />`}`;
}
