// An object as YAML.
import { html } from "./dom.js";
import { useAnswer } from "./store.js";
import { yaml } from "./yaml.js";

export const objectPath = (kind, key) => `#/objects/${encodeURIComponent(kind)}/${encodeURIComponent(key)}`;

export const YamlLink = ({ kind, of }) => html`<a href=${objectPath(kind, of)}>YAML</a>`;

export function ObjectPage({ kind, name }) {
  const answer = useAnswer(`object?kind=${encodeURIComponent(kind)}&key=${encodeURIComponent(name)}`);
  return html`<section class="panel" aria-label="Object"><header><h2>${answer?.kind ?? kind} ${name}</h2></header>
    ${!answer && html`<p class="dim">Loading…</p>`}
    ${answer?.problem && html`<p class="warn">${answer.problem}</p>`}
    ${answer?.object && html`<pre class="yaml" tabindex="0" role="group" aria-label="YAML">${yaml(shown(answer))}</pre>`}</section>`;
}

// Leaves out managedFields, as kubectl does.
function shown({ apiVersion, kind, object }) {
  const { managedFields, ...metadata } = object.metadata;
  return { apiVersion, kind, ...object, metadata };
}

// A value as YAML, in an element that opens; `of` is read by screen readers only.
export function Yaml({ title, of = "", value }) {
  return html`<details><summary>${title}${of && html`<span class="unseen"> of ${of}</span>`}</summary><pre class="yaml" tabindex="0" role="group" aria-label=${of ? `${title} of ${of}` : title}>${yaml(value)}</pre></details>`;
}
