// The nodes as a table with the data of the map.
import { html, useState } from "./dom.js";
import { amount, count } from "./format.js";
import { compare } from "./layout.js";
import { sharesOf, states } from "./node.js";
import { useTopic } from "./store.js";
import { Column, Paged, Sorted } from "./table.js";

const KEYS = { name: (tile) => tile[0], pods: (tile) => tile[6] };

export function NodeTable({ resource, choose, view }) {
  const { resources } = useTopic("nodes");
  const [by, setBy] = useState({ name: "name", down: false });
  const [words, setWords] = useState("");
  const key = by.name === "zone" ? view.zoneOf : KEYS[by.name] ?? ((tile) => sharesOf(tile, resource) ?? -1);
  const rows = view.tiles().filter((tile) => !words || tile[0].includes(words) || view.zoneOf(tile).includes(words) || states(tile).join(" ").includes(words));
  rows.sort((one, other) => order(key(one), key(other)) * (by.down ? -1 : 1) || compare(one[0], other[0]));
  const place = resources.indexOf(resource);
  return html`<label>Find <input value=${words} onInput=${(event) => setWords(event.target.value)} placeholder="name, zone or cordoned" /></label>
    <${Paged} rows=${rows} caption=${`${count(rows.length)} nodes`}
      head=${html`<${Sorted} name="name" by=${by} setBy=${setBy}>node<//><${Sorted} name="zone" by=${by} setBy=${setBy}>${view.by}<//>
        <${Sorted} name="share" by=${by} setBy=${setBy} n>${resource}<//><${Sorted} name="pods" by=${by} setBy=${setBy} n>pods<//><${Column}>state<//>`}
      row=${(tile) => html`<tr key=${tile[0]}><td><button class="plain" onClick=${() => choose(tile[0])}>${tile[0]}</button></td><td>${view.zoneOf(tile)}</td>
        <td class="n">${share(tile, resource)}${place >= 0 && tile[4][place] > 0 ? ` (${amount(resource, tile[4][place] - tile[5][place])} free)` : ""}</td>
        <td class="n">${tile[6]}</td><td>${[...states(tile), tile[3] && "paused"].filter(Boolean).join(", ")}</td></tr>`} />`;
}

const order = (one, other) => (typeof one === "number" ? one - other : compare(one, other));

function share(tile, resource) {
  const found = sharesOf(tile, resource);
  return found === null ? "–" : `${Math.round(found * 100)}%`;
}
