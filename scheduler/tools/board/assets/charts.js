// Rates and latencies of the last minutes.
import { html, useEffect, useRef } from "./dom.js";
import { seconds, short } from "./format.js";
import { listen, store, useTopic } from "./store.js";

const CHARTS = [
  { title: "Attempts per second", unit: short, series: [
    ["placed", (sample) => sample.attempts?.scheduled ?? (sample.attempts ? 0 : null), "--line-1"],
    ["unschedulable", (sample) => sample.attempts?.unschedulable ?? (sample.attempts ? 0 : null), "--line-2"],
    ["error", (sample) => sample.attempts?.error ?? (sample.attempts ? 0 : null), "--line-3"]] },
  { title: "Time of a decision", unit: seconds, series: [
    ["p50", (sample) => sample.algorithm?.half ?? null, "--line-1"],
    ["p99", (sample) => sample.algorithm?.most ?? null, "--line-2"]] },
  { title: "Time of a Binding", unit: seconds, series: [
    ["p50", (sample) => sample.bind?.half ?? null, "--line-1"],
    ["p99", (sample) => sample.bind?.most ?? null, "--line-2"]] },
  { title: "Pending pods", unit: short, series: [
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
    const lines = series.map(([label, , colour]) => ({ label, colour, spanGaps: true }));
    const plot = window.plot(place.current, { height: 130, unit, lines, data: () => data(series) });
    const end = listen("rates", plot.renew);
    return () => {
      end();
      plot.end();
    };
  }, []);
  const last = samples[samples.length - 1];
  return html`<figure><figcaption>${title}: ${series.map(([name, read, colour]) => html`<span class="key"><i class=${`line ${colour.slice(2)}`}></i>${name} ${last && read(last) !== null ? unit(read(last)) : "–"}</span> `)}</figcaption>
    <div ref=${place} aria-hidden="true"></div></figure>`;
}

const data = (series) => [store.samples.map((sample) => sample.at), ...series.map(([, read]) => store.samples.map(read))];
