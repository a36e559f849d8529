// The page: its view depends on the part of the address after the #.
import { html, render, useEffect, useMemo, useRef, useState } from "./dom.js";
import { Charts } from "./charts.js";
import { Decisions } from "./decisions.js";
import { Force } from "./configuration.js";
import { pathOf } from "./format.js";
import { ClusterMap, Legend, Numbers, Totals } from "./map.js";
import { Node } from "./node.js";
import { NodeTable } from "./nodes.js";
import { ObjectPage } from "./object.js";
import { setParams, useParam, usePlace } from "./place.js";
import { Pod } from "./pod.js";
import { Quotas } from "./quotas.js";
import { ask, connect, store, useAnswer, useTopic } from "./store.js";
import { TryProfile } from "./try.js";
import { Waiting } from "./waiting.js";
import { Controller, Group, Preemptions } from "./workloads.js";

const LINKS = { live: "live", connecting: "no answer; reconnecting", refused: "signed out" };
const KINDS = { daemon: "", cluster: "a cluster with another scheduler", file: "a cluster in a file" };
const PATIENCE_MS = 200;

const VIEWS = [["/", "Cluster"], ["/quotas", "Quotas"], ["/preemptions", "Preemptions"], ["/configuration", "Configuration"], ["/try", "Try a profile"]];
const PAGES = [
  [/^\/pods\/([^/]+)\/([^/]+)$/, (namespace, name) => html`<${Pod} pod=${`${namespace}/${name}`} />`],
  [/^\/groups\/([^/]+)$/, (group) => html`<${Group} key=${group} group=${group} />`],
  [/^\/controllers\/([^/]+)\/([^/]+)\/([^/]+)$/, (namespace, kind, name) => html`<${Controller} namespace=${namespace} owner=${`${kind}/${name}`} />`],
  [/^\/objects\/([^/]+)\/([^/]+)$/, (kind, name) => html`<${ObjectPage} kind=${kind} name=${name} />`],
  [/^\/quotas$/, () => html`<${Quotas} />`],
  [/^\/preemptions$/, () => html`<${Preemptions} />`],
  [/^\/configuration$/, () => html`<${Force} />`],
  [/^\/try$/, () => html`<${TryProfile} />`],
];
const LABELS_MS = 5000;

function Board() {
  const place = usePlace().path;
  const main = useRef(null);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) main.current.focus({ preventScroll: true }); // so that a screen reader reads the new view
    isFirst.current = false;
    scrollTo(0, 0);
  }, [place]);
  const page = PAGES.find(([pattern]) => pattern.test(place));
  const view = page ? page[1](...place.match(page[0]).slice(1).map(decodeURIComponent)) : html`<${Overview} />`;
  return html`<${Top} place=${place} skip=${() => main.current.focus()} /><main ref=${main} tabindex="-1">${view}</main>`;
}

function Top({ place, skip }) {
  const { link, kind, version, samples } = useTopic("link", "rates");
  const last = samples[samples.length - 1];
  return html`<header class="top"><a class="skip" href="#/" onClick=${(event) => { event.preventDefault(); skip(); }}>Skip to content</a>
    <h1>custom-scheduler</h1>
    <nav aria-label="Views">${VIEWS.map(([path, name]) => html`<a href=${`#${path}`} aria-current=${place === path ? "page" : undefined}>${name}</a>`)}</nav>
    <${Find} />
    <span class="state"><span class="dim">${KINDS[kind] ?? ""} ${version}</span>
      ${last && kind === "daemon" && html`<span>${last.leading ? "leader" : "standby"}</span>`}
      <span role="status" class=${`link ${link}`}>${LINKS[link]}</span>${link === "refused" && html`<a href="/board">sign in</a>`}</span></header>`;
}

function Find() {
  const [words, setWords] = useState("");
  const [found, setFound] = useState([]);
  useEffect(() => {
    if (!words) return setFound([]);
    let isHere = true;
    const timer = setTimeout(async () => {
      const answer = await ask(`pods?find=${encodeURIComponent(words)}`);
      if (isHere && Array.isArray(answer)) setFound(answer);
    }, PATIENCE_MS);
    return () => {
      isHere = false;
      clearTimeout(timer);
    };
  }, [words]);
  const go = (pod) => {
    location.hash = `#/${pathOf(pod)}`;
    setWords("");
  };
  return html`<form class="find" role="search" onSubmit=${(event) => { event.preventDefault(); if (found.length) go(found.includes(words) ? words : found[0]); }}>
    <label><span class="unseen">Find a pod</span><input type="search" placeholder="find a pod" value=${words} list="found" autocomplete="off"
      onInput=${(event) => (found.includes(event.target.value) ? go(event.target.value) : setWords(event.target.value))} /></label>
    <datalist id="found">${found.map((pod) => html`<option value=${pod}></option>`)}</datalist></form>`;
}

// Returns which nodes are shown, and their groups: by zone, or by the label that the address names.
function useView() {
  const [label] = useParam("nodes");
  const [by] = useParam("by");
  const isPlain = !label && !by;
  const found = useAnswer(isPlain ? null : `labels?${new URLSearchParams({ label, by })}`, LABELS_MS);
  return useMemo(() => {
    const nodes = found?.nodes;
    const wanted = (tile) => isPlain || (nodes ? Object.hasOwn(nodes, tile[0]) : !label);
    return {
      by: by || "zone",
      none: by ? `without ${by}` : "no zone",
      keys: found?.keys,
      tiles: () => (isPlain ? [...store.nodes.values()] : [...store.nodes.values()].filter(wanted)),
      zoneOf: (tile) => (by ? nodes?.[tile[0]] ?? "" : tile[1]),
    };
  }, [found, label, by]);
}

function NodeFilters({ view }) {
  const [label, setLabel] = useParam("nodes");
  const [by, setBy] = useParam("by");
  const [isOpen, setOpen] = useState(Boolean(label || by));
  const found = useAnswer(isOpen ? "labels" : null);
  const keys = found?.keys ?? view.keys ?? [];
  const set = (event) => {
    event.preventDefault();
    setLabel(event.target.elements.label.value);
  };
  if (!isOpen) return html`<button onClick=${() => setOpen(true)}>Filter nodes</button>`;
  return html`<form class="filters" onSubmit=${set} aria-label="Filter nodes"><label>label <input name="label" key=${label} defaultValue=${label} placeholder="pool=batch" list="labels" /></label><button>Filter</button>
    <datalist id="labels">${keys.map((key) => html`<option value=${`${key}=`}></option>`)}</datalist>
    <label>group by <select value=${by} onChange=${(event) => setBy(event.target.value)}><option value="">zone</option>${[...new Set([...keys, by])].filter(Boolean).map((key) => html`<option value=${key}>${key}</option>`)}</select></label>
    <button type="button" onClick=${() => { setParams({ nodes: "", by: "" }); setOpen(false); }}>Show all</button></form>`;
}

function Overview() {
  const { resources } = useTopic("nodes");
  const [resource, setResource] = useState(localStorage.getItem("resource") ?? "cpu");
  const [asTable, setAsTable] = useState(false);
  const [chosen, choose] = useParam("node");
  const view = useView();
  const shown = resource === "any" || resources.includes(resource) ? resource : resources[0] ?? "cpu";
  const pick = (event) => {
    localStorage.setItem("resource", event.target.value);
    setResource(event.target.value);
  };
  return html`<div class=${chosen ? "split" : ""}>
      <section class="panel" aria-label="Nodes"><header><h2>Nodes</h2><${Numbers} view=${view} />
        <span><label>coloured by <select value=${shown} onChange=${pick}>${resources.map((each) => html`<option value=${each}>${each}</option>`)}<option value="any">the scarcest resource</option></select></label>
        <button aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>${asTable ? "As a map" : "As a table"}</button></span></header>
        <${Totals} view=${view} /><${NodeFilters} view=${view} />
        ${asTable ? html`<${NodeTable} resource=${shown} choose=${choose} view=${view} />` : html`<${ClusterMap} resource=${shown} chosen=${chosen} choose=${choose} view=${view} /><${Legend} />`}</section>
      ${chosen && html`<${Node} key=${chosen} name=${chosen} close=${() => choose("")} />`}
    </div>
    <${Waiting} /><${Decisions} choose=${choose} /><${Charts} />`;
}

connect();
render(html`<${Board} />`, document.getElementById("board"));
