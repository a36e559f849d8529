// Rates and latencies of the last minutes, drawn by uPlot.
import { html, useEffect, useRef } from "./dom.js";
import { seconds, short } from "./format.js";
import { listen, store, useTopic } from "./store.js";

const HEIGHT = 130;
const CHARTS = [
  { title: "Attempts per second", unit: short, series: [
    ["placed", (sample) => sample.attempts?.scheduled ?? (sample.attempts ? 0 : null), "--line-1"],
    ["unschedulable", (sample) => sample.attempts?.unschedulable ?? (sample.attempts ? 0 : null), "--line-2"],
    ["error", (sample) => sample.attempts?.error ?? (sample.attempts ? 0 : null), "--line-3"]] },
  { title: "Time of a decision", unit: seconds, series: [
    ["half within", (sample) => sample.algorithm?.half ?? null, "--line-1"],
    ["99% within", (sample) => sample.algorithm?.most ?? null, "--line-2"]] },
  { title: "Time of a Binding", unit: seconds, series: [
    ["half within", (sample) => sample.bind?.half ?? null, "--line-1"],
    ["99% within", (sample) => sample.bind?.most ?? null, "--line-2"]] },
  { title: "Pods that wait", unit: short, series: [
    ["active", (sample) => sample.pending.active, "--line-1"],
    ["backoff", (sample) => sample.pending.backoff, "--line-2"],
    ["unschedulable", (sample) => sample.pending.unschedulable, "--line-3"],
    ["gated", (sample) => sample.pending.gated, "--line-4"]] },
];

export function Charts() {
  const { kind } = useTopic("link");
  if (kind !== "daemon") return null;
  return html`<section class="panel" aria-label="Rates"><header><h2>Rates</h2></header>
    <div class="charts">${CHARTS.map((chart) => html`<${Chart} key=${chart.title} ...${chart} />`)}</div></section>`;
}

function Chart({ title, unit, series }) {
  const place = useRef(null);
  const { samples } = useTopic("rates");
  useEffect(() => {
    const element = place.current;
    let chart = null;
    const make = () => {
      chart?.destroy();
      chart = made(element, series, unit);
    };
    make();
    const end = listen("rates", () => chart.setData(data(series)));
    const sizes = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    return () => {
      end();
      sizes.disconnect();
      scheme.removeEventListener("change", make);
      chart.destroy();
    };
  }, []);
  const last = samples[samples.length - 1];
  return html`<figure><figcaption>${title}: ${series.map(([name, read, colour]) => html`<span class="key"><i class=${`line ${colour.slice(2)}`}></i>${name} ${last && read(last) !== null ? unit(read(last)) : "–"}</span> `)}</figcaption>
    <div ref=${place} aria-hidden="true"></div></figure>`;
}

const data = (series) => [store.samples.map((sample) => sample.at), ...series.map(([, read]) => store.samples.map(read))];

function made(element, series, unit) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: read("--dim"), grid: { stroke: read("--edge"), width: 1 }, ticks: { stroke: read("--edge") }, font: `11px ${style.fontFamily}` };
  return new window.uPlot({
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    axes: [{ ...axis, space: 80 }, { ...axis, size: 62, space: 28, values: (_, values) => values.map(unit) }],
    scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    series: [{}, ...series.map(([name, , colour]) => ({ label: name, stroke: read(colour), width: 1.5, spanGaps: true, points: { show: false } }))],
  }, data(series), element);
}
