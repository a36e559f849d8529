// The charts of a standalone page, drawn from the data in the page.
{
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const short = (number) => number === null ? "" : number.toLocaleString("en", { maximumSignificantDigits: 4 });

  for (const element of document.querySelectorAll("[data-chart]")) {
    const { at, series, unit, x } = charts[element.dataset.chart];
    window.plot(element, {
      height: 170,
      x: (value) => x === "percent" ? `${value}%` : x === "seconds" ? `${short(value)} s` : short(value),
      unit: (value) => `${short(value)}${unit && ` ${unit}`}`,
      lines: series.map(([label], place) => ({ label, colour: `--line-${place % 8 + 1}`, width: place ? 1.5 : 3 })),
      data: () => [at, ...series.map(([, values]) => values)],
    });
  }
}
