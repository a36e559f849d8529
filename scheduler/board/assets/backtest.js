// The charts of a backtest's page, drawn by uPlot from the data that is in it.
(() => {
  const HEIGHT = 170;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const short = (number) => number === null ? "" : number.toLocaleString("en", { maximumSignificantDigits: 4 });

  function drawn(element, { at, series, unit, x }) {
    const style = getComputedStyle(element);
    const read = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: read("--dim"), grid: { stroke: read("--edge"), width: 1 }, ticks: { stroke: read("--edge") }, font: `11px ${style.fontFamily}` };
    return new window.uPlot({
      width: element.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      axes: [
        { ...axis, space: 80, values: (_, values) => values.map((value) => x === "percent" ? `${value}%` : `${short(value)} s`) },
        { ...axis, size: 62, space: 28, values: (_, values) => values.map((value) => `${short(value)}${unit && ` ${unit}`}`) },
      ],
      scales: { x: { time: false }, y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
      series: [{}, ...series.map(([label], place) => ({
        label,
        stroke: read(`--line-${place % 8 + 1}`),
        width: place ? 1.5 : 3,
        points: { show: false },
      }))],
    }, [at, ...series.map(([, values]) => values)], element);
  }

  for (const element of document.querySelectorAll("[data-chart]")) {
    const data = charts[element.dataset.chart];
    let chart = drawn(element, data);
    const again = () => {
      chart.destroy();
      chart = drawn(element, data);
    };
    new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT })).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }
})();
