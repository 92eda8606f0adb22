"use strict";
// Draws the plots of a page with uPlot, in the colours of style.css; again when those or the width change.
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = (value) => {
    const size = Math.abs(value);
    return size >= 100 || size === 0 ? value.toLocaleString("en", { maximumFractionDigits: 0 })
      : value.toLocaleString("en", { maximumSignificantDigits: 3 });
  };
  const bytes = (value) => {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let place = 0;
    for (; Math.abs(value) >= 1000 && place < units.length - 1; place++) value /= 1000;
    return `${digits(value)} ${units[place]}`;
  };
  const shown = (unit) => (value) => {
    if (value == null) return "–";
    if (unit === "bytes") return bytes(value);
    if (unit === "bytes/s") return `${bytes(value)}/s`;
    if (unit === "%") return `${digits(value)}%`;
    return unit ? `${digits(value)} ${unit}` : digits(value);
  };
  const exact = (incr) => (value) => {
    const decimals = Math.max(0, Math.ceil(-Math.log10(incr) - 1e-9)); // as many as tell two ticks apart
    return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  };
  const step = (value) => Math.round(value).toLocaleString("en");
  const PALETTE = ["--c0", "--c4", "--c6", "--c3", "--c1", "--c5", "--plain", "--memory"];

  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 1e5, 2e5, 5e5, 1e6, 1e7];

  function stacked(series) {
    const sums = series[0].values.map(() => 0);
    return series.map((each) => each.values.map((value, i) => (sums[i] += value ?? 0)));
  }

  function seriesOf(plot) {
    const isStack = plot.look === "stack";
    const text = shown(plot.unit);
    const found = plot.series.map((each, i) => {
      const colour = each.role === "plain" ? css(PALETTE[i % PALETTE.length]) : css(`--${each.role}`);
      return {
        label: each.name,
        stroke: colour,
        width: isStack ? 0.5 : 1.75,
        fill: isStack ? colour : undefined,
        paths: plot.look !== "lines" ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: !isStack && plot.xs.length < 3 },
        value: (u, _, si, at) => text(at == null ? null : each.values[at]),
      };
    });
    return isStack ? found.reverse() : found; // the highest sum is drawn first, the others upon it
  }

  function valuesOf(plot) {
    if (plot.look !== "stack") return [plot.xs, ...plot.series.map((each) => each.values)];
    const end = plot.xs[plot.xs.length - 1] + 1; // where the last step ends
    return [[...plot.xs, end], ...stacked(plot.series).reverse().map((values) => [...values, values[values.length - 1]])];
  }

  function axes(plot) {
    const common = { stroke: css("--faint"), font: "12px system-ui, sans-serif", ticks: { stroke: css("--line"), size: 4 } };
    const grid = { stroke: css("--line"), width: 1 };
    const x = plot.xUnit === "step" ? step : shown(plot.xUnit);
    const wide = (u, values) => Math.max(...(values ?? [""]).map((value) => value.length)) * 7 + 14;
    return [
      { ...common, grid: { show: false }, incrs: plot.xUnit === "step" ? STEPS : undefined, space: 80, size: 32, values: (u, ticks) => ticks.map(x) },
      { ...common, grid, space: 40, size: wide, values: (u, ticks, axis, space, incr) => ticks.map(plot.unit ? shown(plot.unit) : exact(incr)) },
    ];
  }

  function rangeOf(plot, low, high) {
    const room = (high - low) * 0.1 || 1;
    if (plot.unit === "") return [low - room, high + room]; // plain numbers, such as a loss, have no natural zero
    return [0, plot.limit ?? (high > 0 ? high * 1.05 : 1)];
  }

  function optionsOf(plot, width) {
    const x = plot.xUnit === "step" ? (value) => `step ${step(value)}` : shown(plot.xUnit);
    return {
      width,
      height: width < 500 ? 240 : 300,
      padding: [10, 24, 0, 0],
      scales: {
        x: { time: false },
        y: { range: (u, low, high) => rangeOf(plot, low, high) },
      },
      legend: { live: true },
      hooks: { setCursor: [(u) => u.root.classList.toggle("at-no-point", u.cursor.idx == null)] },
      cursor: { drag: { x: true, y: false }, points: { show: plot.look !== "stack" } },
      series: [{ label: plot.xUnit === "step" ? "at" : "time", value: (u, value) => (value == null ? "–" : x(value)) }, ...seriesOf(plot)],
      axes: axes(plot),
    };
  }

  function zoomed(chart, factor) {
    const xs = chart.data[0];
    const [first, last] = [xs[0], xs[xs.length - 1]];
    const { min, max } = chart.scales.x;
    const half = Math.max(((max - min) * factor) / 2, (last - first) / xs.length);
    const middle = Math.min(Math.max((min + max) / 2, first + half), Math.max(last - half, first + half));
    chart.setScale("x", { min: Math.max(first, middle - half), max: Math.min(last, middle + half) });
  }

  function moved(chart, part) {
    const xs = chart.data[0];
    const { min, max } = chart.scales.x;
    const by = Math.min(Math.max((max - min) * part, xs[0] - min), xs[xs.length - 1] - max);
    chart.setScale("x", { min: min + by, max: max + by });
  }

  function buttons(place, chart) {
    const bar = document.createElement("div");
    bar.className = "zoom";
    const all = () => chart().setScale("x", { min: chart().data[0][0], max: chart().data[0][chart().data[0].length - 1] });
    const made = [["+", "zoom in", () => zoomed(chart(), 0.5)], ["−", "zoom out", () => zoomed(chart(), 2)],
      ["←", "earlier", () => moved(chart(), -0.5)], ["→", "later", () => moved(chart(), 0.5)], ["all", "show all", all]];
    for (const [text, label, act] of made) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      bar.append(button);
    }
    bar.append("or drag across the plot");
    place.before(bar);
  }

  const redraws = [];
  for (const place of document.querySelectorAll(".plot")) {
    const plot = JSON.parse(place.nextElementSibling.textContent);
    let chart = null;
    const draw = (width) => {
      const kept = chart && { min: chart.scales.x.min, max: chart.scales.x.max };
      chart?.destroy();
      chart = new uPlot(optionsOf(plot, width ?? place.clientWidth), valuesOf(plot), place);
      if (kept && kept.min != null) chart.setScale("x", kept);
    };
    draw();
    if (plot.xs.length > 20) buttons(place, () => chart);
    redraws.push(draw);
  }
  const all = (width) => redraws.forEach((draw) => draw(width));
  let width = innerWidth;
  addEventListener("resize", () => innerWidth !== width && ((width = innerWidth), all()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all());
  addEventListener("beforeprint", () => all(660)); // as wide as a page of A4 has room
  addEventListener("afterprint", () => all());
})();
