// The page: its view depends on the part of the address after the #.
import { html, render, useEffect, useRef, useState } from "./dom.js";
import { Charts } from "./charts.js";
import { Decisions } from "./decisions.js";
import { Force } from "./configuration.js";
import { pathOf } from "./format.js";
import { ClusterMap, Legend, Numbers } from "./map.js";
import { Node } from "./node.js";
import { NodeTable } from "./nodes.js";
import { Pod } from "./pod.js";
import { ask, connect, useTopic } from "./store.js";
import { Waiting } from "./waiting.js";

const LINKS = { live: "live", connecting: "no answer; reconnecting", refused: "signed out" };
const KINDS = { daemon: "", cluster: "a cluster with another scheduler", file: "a cluster in a file" };
const PATIENCE_MS = 200;

const here = () => location.hash.slice(1) || "/";

function usePlace() {
  const [place, setPlace] = useState(here());
  useEffect(() => {
    const moved = () => setPlace(here());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return place;
}

function Board() {
  const place = usePlace();
  const main = useRef(null);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) main.current.focus({ preventScroll: true }); // so that a screen reader reads the new view
    isFirst.current = false;
    scrollTo(0, 0);
  }, [place]);
  const pod = place.match(/^\/pods\/([^/]+)\/([^/]+)$/);
  const view = pod ? html`<${Pod} pod=${`${decodeURIComponent(pod[1])}/${decodeURIComponent(pod[2])}`} />` : place === "/configuration" ? html`<${Force} />` : html`<${Overview} />`;
  return html`<${Top} place=${place} skip=${() => main.current.focus()} /><main ref=${main} tabindex="-1">${view}</main>`;
}

function Top({ place, skip }) {
  const { link, kind, version, samples } = useTopic("link", "rates");
  const last = samples[samples.length - 1];
  return html`<header class="top"><a class="skip" href="#/" onClick=${(event) => { event.preventDefault(); skip(); }}>Skip to content</a>
    <h1>custom-scheduler</h1>
    <nav aria-label="Views"><a href="#/" aria-current=${place === "/" ? "page" : undefined}>Cluster</a><a href="#/configuration" aria-current=${place === "/configuration" ? "page" : undefined}>Configuration</a></nav>
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

function Overview() {
  const { resources } = useTopic("nodes");
  const [resource, setResource] = useState(localStorage.getItem("resource") ?? "cpu");
  const [asTable, setAsTable] = useState(false);
  const [chosen, choose] = useState(null);
  const shown = resource === "any" || resources.includes(resource) ? resource : resources[0] ?? "cpu";
  const pick = (event) => {
    localStorage.setItem("resource", event.target.value);
    setResource(event.target.value);
  };
  return html`<div class=${chosen ? "split" : ""}>
      <section class="panel" aria-label="Nodes"><header><h2>Nodes</h2><${Numbers} />
        <span><label>coloured by <select value=${shown} onChange=${pick}>${resources.map((each) => html`<option value=${each}>${each}</option>`)}<option value="any">the scarcest resource</option></select></label>
        <button aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>${asTable ? "As a map" : "As a table"}</button></span></header>
        ${asTable ? html`<${NodeTable} resource=${shown} choose=${choose} />` : html`<${ClusterMap} resource=${shown} chosen=${chosen} choose=${choose} /><${Legend} />`}</section>
      ${chosen && html`<${Node} key=${chosen} name=${chosen} close=${() => choose(null)} />`}
    </div>
    <${Waiting} /><${Decisions} choose=${choose} /><${Charts} />`;
}

connect();
render(html`<${Board} />`, document.getElementById("board"));
