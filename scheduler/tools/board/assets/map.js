// The cluster as a map: one tile for each node, coloured by its requested share, shaped by its state. In a small cluster
// a tile has the node's name and a bar.
import { html, useEffect, useRef, useState } from "./dom.js";
import { amount, count, many } from "./format.js";
import { laidOut, neighbour, placeOf, tileAt } from "./layout.js";
import { listen, store, useTopic } from "./store.js";
import { states, sharesOf, Usage } from "./node.js";

export const CORDONED = 1;
export const TAINTED = 2;
export const NOT_READY = 4;
const STEPS = 10;
const ARROWS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]);
const HEIGHT = 460;

function colours(element) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    steps: Array.from({ length: STEPS + 1 }, (_, step) => read(`--load-${step}`)),
    none: read("--load-none"),
    text: read("--dim"),
    name: read("--text"),
    mark: read("--mark"),
    chosen: read("--chosen"),
    font: `12px ${style.fontFamily}`,
  };
}

function colourOf(tile, resource, palette) {
  const share = sharesOf(tile, resource);
  return share === null ? palette.none : palette.steps[Math.max(0, Math.min(STEPS, Math.round(share * STEPS)))];
}

function drawTile(pen, tile, x, y, size, palette) {
  const gap = size > 7 ? 2 : 1;
  const side = size - gap;
  const flags = tile[2];
  pen.beginPath();
  if (flags & TAINTED) pen.arc(x + side / 2, y + side / 2, side / 2 - 0.5, 0, 2 * Math.PI);
  else pen.rect(x, y, side, side);
  pen.fill();
  if (flags & TAINTED) {
    pen.strokeStyle = palette.text;
    pen.lineWidth = 1;
    pen.stroke();
  }
  if (!(flags & (CORDONED | NOT_READY)) && !tile[3]) return;
  pen.strokeStyle = palette.mark;
  pen.lineWidth = size > 12 ? 2 : 1;
  pen.beginPath();
  if (flags & (CORDONED | NOT_READY)) {
    pen.moveTo(x, y + side);
    pen.lineTo(x + side, y);
  }
  if (flags & NOT_READY) {
    pen.moveTo(x, y);
    pen.lineTo(x + side, y + side);
  }
  if (tile[3]) pen.rect(x + 1, y + 1, side - 2, side - 2);
  pen.stroke();
}

const BAR = 8;
const ICON = 12;

function drawNamed(pen, tile, x, y, layout, resource, palette) {
  const width = layout.width - 10;
  const share = sharesOf(tile, resource);
  drawTile(pen, tile, x, y + 2, ICON + 2, palette);
  pen.fillStyle = palette.name;
  pen.fillText(shortened(pen, tile[0], width - ICON - 6), x + ICON + 6, y + 13);
  pen.fillStyle = palette.none;
  pen.fillRect(x, y + 19, width, BAR);
  pen.fillStyle = colourOf(tile, resource, palette);
  pen.fillRect(x, y + 19, width * Math.min(share ?? 0, 1), BAR);
}

// Returns a name without its middle, if it is longer than a width.
function shortened(pen, name, width) {
  let kept = name.length;
  let text = name;
  while (kept > 4 && pen.measureText(text).width > width) {
    kept -= 1;
    text = `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(name.length - Math.floor(kept / 2))}`;
  }
  return text;
}

function draw(canvas, layout, width, resource, chosen) {
  const palette = colours(canvas);
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = layout.height * scale;
  canvas.style.height = `${layout.height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = palette.font;
  for (const zone of layout.zones) {
    pen.fillStyle = palette.text;
    pen.fillText(`${zone.name || layout.none}: ${many(zone.nodes.length, "node")}`, 0, zone.y - 6, width);
    zone.nodes.forEach((tile, place) => {
      const x = (place % zone.columns) * layout.width;
      const y = zone.y + Math.floor(place / zone.columns) * layout.size;
      pen.fillStyle = colourOf(tile, resource, palette);
      if (layout.isNamed) drawNamed(pen, tile, x, y, layout, resource, palette);
      else drawTile(pen, tile, x, y, layout.size, palette);
    });
  }
  const at = chosen ? placeOf(layout, chosen) : null;
  if (at) {
    pen.strokeStyle = palette.chosen;
    pen.lineWidth = 2.5;
    pen.strokeRect(at.x - 1, at.y - 1, layout.isNamed ? layout.width - 6 : layout.size, layout.isNamed ? layout.size - 6 : layout.size);
  }
}

export function ClusterMap({ resource, chosen, choose, view }) {
  const canvas = useRef(null);
  const state = useRef({ layout: { width: 1, size: 1, zones: [], height: 0 }, resource, chosen });
  const [hover, setHover] = useState(null); // {tile, x, y}
  const [said, setSaid] = useState("");
  state.current.resource = resource;
  state.current.chosen = chosen;
  state.current.view = view;

  useEffect(() => {
    const element = canvas.current;
    const again = () => {
      const width = element.parentElement.clientWidth;
      const now = state.current;
      now.layout = { ...laidOut(now.view.tiles(), width, HEIGHT, now.view.zoneOf), none: now.view.none };
      draw(element, now.layout, width, now.resource, now.chosen);
    };
    state.current.again = again;
    const sizes = new ResizeObserver(again);
    sizes.observe(element.parentElement);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    const end = listen("nodes", again);
    return () => {
      end();
      sizes.disconnect();
      scheme.removeEventListener("change", again);
    };
  }, []);
  useEffect(() => state.current.again(), [resource, chosen, view]);

  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const moved = (event) => {
    const { x, y } = at(event);
    const tile = tileAt(state.current.layout, x, y);
    setHover(tile && { name: tile[0], x, y });
  };
  const clicked = (event) => {
    const { x, y } = at(event);
    const tile = tileAt(state.current.layout, x, y);
    if (tile) choose(tile[0]);
  };
  const pressed = (event) => {
    if (event.key === "Escape") return choose(null);
    if (!ARROWS.has(event.key)) return;
    event.preventDefault();
    const name = neighbour(state.current.layout, state.current.chosen, event.key);
    if (!name) return;
    choose(name);
    const tile = store.nodes.get(name);
    const share = sharesOf(tile, resource);
    setSaid(`${name}: ${share === null ? "no" : Math.round(share * 100) + "% of"} ${resource}, ${states(tile).join(", ") || "ready"}`);
  };
  const over = hover && store.nodes.get(hover.name);
  return html`<div class="map">
    <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="map of the nodes"
      aria-label="Nodes by zone, coloured by requested share. Arrow keys select a node; the table shows the same data."
      onMouseMove=${moved} onMouseLeave=${() => setHover(null)} onClick=${clicked} onKeyDown=${pressed}></canvas>
    ${over && html`<div class="tip" style=${{ left: `${Math.max(0, Math.min(hover.x + 14, (canvas.current?.clientWidth ?? 0) - 350))}px`, top: `${hover.y + 14}px` }}>
      <${Brief} tile=${over} /></div>`}
    <p class="unseen" aria-live="polite">${said}</p>
  </div>`;
}

function Brief({ tile }) {
  useTopic("nodes");
  const [name, zone, , rests, , , pods] = tile;
  return html`<strong>${name}</strong><span>${zone}</span>
    <${Usage} resources=${store.resources.slice(0, 5)} tile=${tile} />
    <span>${many(pods, "pod")}</span>
    ${states(tile).map((state) => html`<span class="warn">${state}</span>`)}
    ${rests && html`<span class="warn">paused: ${rests}</span>`}`;
}

export function Legend() {
  return html`<div class="legend" aria-hidden="true">
    <span>0%</span><span class="ramp">${Array.from({ length: STEPS + 1 }, (_, step) => html`<i class=${`load-${step}`}></i>`)}</span><span>100% requested</span>
    <span><i class="tile"></i> schedulable</span><span><i class="tile round"></i> tainted</span>
    <span><i class="tile struck"></i> cordoned</span><span><i class="tile crossed"></i> not ready</span>
    <span><i class="tile framed"></i> paused</span>
  </div>`;
}

export function Numbers({ view }) {
  useTopic("nodes");
  let pods = 0;
  let closed = 0;
  const tiles = view.tiles();
  for (const tile of tiles) {
    pods += tile[6];
    if (tile[2] & (CORDONED | NOT_READY)) closed += 1;
  }
  return html`<p class="numbers">${many(tiles.length, "node")}${closed ? `, ${count(closed)} of them unschedulable` : ""}; ${many(pods, "pod")} on them</p>`;
}

// What is requested of what there is, by resource.
export function Totals({ view }) {
  const { resources } = useTopic("nodes");
  const tiles = view.tiles();
  const sum = (column, place) => tiles.reduce((total, tile) => total + tile[column][place], 0);
  const rows = resources.map((resource, place) => [resource, sum(4, place), sum(5, place)]).filter(([, all]) => all > 0);
  return html`<ul class="totals" aria-label="Requested of what there is">${rows.map(([resource, all, requested]) => html`<li><span>${resource}</span>
    <meter min="0" max=${all} value=${requested} aria-label=${`${resource} requested`}></meter> <strong>${Math.round((100 * requested) / all)}%</strong>
    <span class="dim">${amount(resource, requested)} of ${amount(resource, all)} requested</span></li>`)}</ul>`;
}
