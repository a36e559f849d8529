// The active configuration: profiles, plugins, the last reload, extenders.
import { divisible, html } from "./dom.js";
import { count, seconds } from "./format.js";
import { Ago } from "./moment.js";
import { Yaml } from "./object.js";
import { useAnswer, useTopic } from "./store.js";
import { Column } from "./table.js";

const AGAIN_MS = 10000;

export function Force() {
  const { configuration } = useTopic("configuration");
  const written = useAnswer("configuration", AGAIN_MS);
  if (!configuration) return html`<p class="dim">No data yet.</p>`;
  return html`${configuration.reload && html`<${Reload} reload=${configuration.reload} apiVersion=${configuration.apiVersion} />`}
    <${Extenders} extenders=${configuration.extenders} />
    ${configuration.profiles.map((profile) => html`<${Profile} key=${profile.name} profile=${profile} written=${written?.profiles?.find((each) => each.schedulerName === profile.name)} />`)}`;
}

function Reload({ reload, apiVersion }) {
  const { results, since, successful, restartNeeded, followed } = reload;
  return html`<section class="panel" aria-label="Configuration"><header><h2>Configuration</h2></header><dl>
    <dt>version</dt><dd>${apiVersion}</dd>
    ${since && html`<dt>active since</dt><dd>${new Date(since * 1000).toLocaleString()} (<${Ago} at=${since * 1000} />)</dd>`}
    <dt>reloads</dt><dd>${count(results.reloaded ?? 0)} applied, ${count(results.rejected ?? 0)} rejected${successful === 0 ? html`, <strong class="warn">the last one was rejected</strong>` : ""}</dd>
    ${Object.entries(followed).map(([source, up]) => html`<dt>${source}</dt><dd>${up ? "followed" : html`<strong class="warn">not followed</strong>`}</dd>`)}
    ${restartNeeded.length > 0 && html`<dt>need a restart</dt><dd class="warn">${restartNeeded.join(", ")}</dd>`}</dl></section>`;
}

function Extenders({ extenders }) {
  if (!extenders.length) return null;
  return html`<section class="panel" aria-label="Extenders"><header><h2>Extenders</h2></header><div class="scroll"><table>
    <caption class="unseen">Health of each extender</caption>
    <thead><tr><${Column}>extender<//><${Column}>verbs<//><${Column} n>calls<//><${Column} n>failed<//><${Column}>last response<//><${Column} n>duration<//><${Column}>last failure<//></tr></thead>
    <tbody>${extenders.map((each) => html`<tr><td>${each.url}${each.ignorable ? html` <span class="dim">ignorable</span>` : ""}</td><td>${each.verbs.join(", ")}</td>
      <td class="n">${count(each.asked)}</td><td class=${each.failed ? "n warn" : "n"}>${count(each.failed)}</td>
      <td>${each.answeredAt ? html`<${Ago} at=${each.answeredAt * 1000} />` : "never"}</td><td class="n">${each.answeredAt ? seconds(each.seconds) : "–"}</td>
      <td>${each.failedAt ? html`<${Ago} at=${each.failedAt * 1000} />: <span class=${each.failedAt > (each.answeredAt ?? 0) ? "warn" : "dim"}>${each.error}</span>` : "none"}</td></tr>`)}</tbody></table></div></section>`;
}

function Profile({ profile, written }) {
  const args = new Map(written?.pluginConfig?.map((each) => [each.name, each.args]));
  return html`<section class="panel" aria-label=${`Profile ${profile.name}`}><header><h2>Profile ${profile.name}</h2><a href="#/try">Try changes</a></header><div class="scroll"><table>
    <caption class="unseen">Plugins</caption>
    <thead><tr><${Column}>plugin<//><${Column} n>weight<//><${Column}>arguments<//><${Column} wide>extension points<//></tr></thead>
    <tbody>${profile.plugins.map((plugin) => html`<tr><td class="plugin">${divisible(plugin.name)}</td><td class="n">${plugin.weight ?? ""}</td><td>${args.has(plugin.name) && Object.keys(args.get(plugin.name)).length > 0 && html`<${Yaml} title="arguments" of=${plugin.name} value=${args.get(plugin.name)} />`}</td><td class="wide">${plugin.points.join(", ")}</td></tr>`)}</tbody></table></div>
    ${written && html`<${Yaml} title="The profile as YAML" value=${written} />`}</section>`;
}
