// Line charts by uPlot, in the size and colours of their element. A plain script, so that a standalone page can contain it.
window.plot = (element, { height, x, unit, lines, data }) => {
  let chart = null;
  const make = () => {
    chart?.destroy();
    const style = getComputedStyle(element);
    const read = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: read("--dim"), grid: { stroke: read("--edge"), width: 1 }, ticks: { stroke: read("--edge") }, font: `11px ${style.fontFamily}` };
    const values = (words) => (_, numbers) => numbers.map(words);
    chart = new window.uPlot({
      width: element.clientWidth,
      height,
      legend: { show: false },
      cursor: { show: false },
      axes: [{ ...axis, space: 80, ...(x && { values: values(x) }) }, { ...axis, size: 62, space: 28, values: values(unit) }],
      scales: { x: { time: !x }, y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
      series: [{}, ...lines.map(({ colour, ...line }) => ({ width: 1.5, ...line, stroke: read(colour), points: { show: false } }))],
    }, data(), element);
  };
  make();
  const sizes = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
  sizes.observe(element);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", make);
  return {
    renew: () => chart.setData(data()),
    end: () => {
      sizes.disconnect();
      scheme.removeEventListener("change", make);
      chart.destroy();
    },
  };
};
