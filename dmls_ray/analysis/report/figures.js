// Figures: drawn when they come into view, in the colours of the screen or of paper, at the full width.

const NARROW = 300;
const LEAST = 160;
const ROW = 270;
const ONE_ROW = 320;
const LABELS = 88;
const BETWEEN = 84;
const PAPER_WIDTH = 720;
const MOST_VALUES = 500;
const dark = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)");

class Figure {
  constructor(element, chart, themes, open) {
    Object.assign(this, { element, chart, themes, open, drawn: false });
  }

  /** Draw, or draw again; on paper in light colours and at its width. */
  draw(onPaper = false) {
    const width = onPaper ? PAPER_WIDTH : this.element.clientWidth;
    // Too small for axes, as in a window that is opening; the figure is drawn again when the window has its size.
    if (width < LEAST) return;
    const theme = this.themes[dark.matches && !onPaper ? "dark" : "light"];
    const data = this.chart.data.map((trace) => painted(trace, theme));
    const layout = this.arranged(paintedLayout(this.chart.layout, theme), width);
    const config = {
      displaylogo: false, responsive: false, displayModeBar: onPaper ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      toImageButtonOptions: { format: "svg", filename: this.chart.name },
    };
    this.width = width;
    Plotly.react(this.element, data, layout, config);
    // So that paper, whose width is not known here, can make it larger or smaller.
    this.element.style.setProperty("--ratio", layout.width / layout.height);
    this.element.querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`));
    if (!this.drawn) this.element.on("plotly_click", (event) => this.clicked(event));
    this.drawn = true;
  }

  /** Panels in as many rows as it takes for each to be wide enough. */
  arranged(layout, width) {
    const panels = Object.keys(layout).filter((name) => /^xaxis\d*$/.test(name)).map((name) => name.slice(5));
    const rows = Math.ceil(panels.length / Math.max(1, Math.floor(width / NARROW)));
    layout.width = width;
    layout.uirevision = "kept";
    // A finger that drags over a figure scrolls the page.
    layout.dragmode = coarse.matches ? false : "zoom";
    if (width < 520) layout.margin = { ...layout.margin, l: 52 };
    if (panels.length > 1) {
      const columns = Math.ceil(panels.length / rows);
      const row = rows > 1 ? ROW : ONE_ROW;
      const inner = width - layout.margin.l - layout.margin.r;
      const gap = columns > 1 ? LABELS / inner : 0;
      const wide = (1 - gap * (columns - 1)) / columns;
      // Names that do not fit next to each other are rotated and take more height.
      const names = panels.map((suffix) => layout[`xaxis${suffix}`].categoryarray ?? []);
      const aslant = names.filter((some) => 8 * some.join("  ").length > wide * inner).flat();
      const between = BETWEEN + 4 * Math.max(0, ...aslant.map((name) => name.length));
      const inside = rows * row + (rows - 1) * between;
      panels.forEach((suffix, place) => {
        const left = (place % columns) * (wide + gap);
        const top = 1 - (Math.floor(place / columns) * (row + between)) / inside;
        layout[`xaxis${suffix}`].domain = [left, Math.min(1, left + wide)];
        layout[`yaxis${suffix}`].domain = [Math.max(0, top - row / inside), top];
      });
      layout.height = inside + layout.margin.t + layout.margin.b;
    }
    // Approximate height of the legend below the axes.
    const named = this.chart.data.filter((trace) => trace.showlegend);
    if (layout.showlegend) {
      const longest = Math.max(...named.map((trace) => trace.name.length));
      const columns = Math.max(1, Math.floor((width - 70) / (52 + 7.2 * longest)));
      const legend = 14 + 20 * Math.ceil(named.length / columns);
      layout.height += legend;
      layout.margin = { ...layout.margin, b: layout.margin.b + legend };
    }
    return layout;
  }

  clicked(event) {
    const [point] = event.points;
    const { runs, all_runs: all } = point.data.meta;
    this.open(all ?? runs?.[point.pointNumber] ?? [], this.element);
  }
}

function painted(trace, theme) {
  const { colour: place } = trace.meta;
  const colour = place === null ? theme.muted : theme.series[place];
  const again = { ...trace };
  if (trace.marker) again.marker = { ...trace.marker, color: colour, ...(trace.marker.line && { line: { ...trace.marker.line, color: colour } }) };
  if (trace.line) again.line = { ...trace.line, color: colour };
  // Half of a bar's interval lies within the bar.
  const over = colour === theme.ink ? theme.muted : theme.ink;
  if (trace.error_y) again.error_y = { ...trace.error_y, color: trace.type === "bar" ? over : colour };
  if (trace.fill) {
    const [red, green, blue] = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
    again.fillcolor = `rgba(${red},${green},${blue},0.2)`;
  }
  return again;
}

function paintedLayout(layout, theme) {
  const again = structuredClone(layout);
  again.font.color = theme.ink;
  again.hoverlabel = { bgcolor: theme.paper, bordercolor: theme.muted, font: { color: theme.ink, size: 13 }, align: "left" };
  again.modebar = { bgcolor: "rgba(0,0,0,0)", color: theme.muted, activecolor: theme.ink };
  for (const [name, axis] of Object.entries(again)) {
    if (/^[xy]axis/.test(name)) Object.assign(axis, { gridcolor: theme.grid, linecolor: theme.muted, tickcolor: theme.muted });
  }
  return again;
}

/** Draw the figures of the page; `open` shows the runs with these run_ids. */
function drawFigures(data, open) {
  const figures = [...document.querySelectorAll(".plot")].map((element) =>
    new Figure(element, data.charts[Number(element.dataset.chart)], data.themes, open));
  const byElement = new Map(figures.map((figure) => [figure.element, figure]));

  const inView = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((item) => item.isIntersecting)) {
      inView.unobserve(entry.target);
      if (!byElement.get(entry.target).drawn) byElement.get(entry.target).draw();
    }
  }, { rootMargin: "300px" });
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const figure = byElement.get(target);
      if (figure.drawn && !printing && Math.abs(target.clientWidth - figure.width) > 2) figure.draw();
    }
  });
  figures.forEach(({ element }) => {
    inView.observe(element);
    resized.observe(element);
  });

  let printing = false;
  dark.addEventListener("change", () => figures.filter((figure) => figure.drawn).forEach((figure) => figure.draw()));
  addEventListener("beforeprint", () => {
    printing = true;
    figures.forEach((figure) => figure.draw(true));
  });
  addEventListener("afterprint", () => {
    printing = false;
    figures.forEach((figure) => figure.draw());
  });
}

/** The values of a figure as a table, made when it is opened. */
function foldedValues(details, chart, open) {
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;

    const titles = (axis) => asText(chart.layout[axis.replace(/^([xy])/, "$1axis")]?.title?.text ?? "");
    const rows = [];
    for (const trace of chart.data.filter((item) => item.hoverinfo !== "skip")) {
      trace.x.forEach((x, place) => {
        if (trace.y[place] === null) return;
        const onEdge = !titles(trace.yaxis);
        const names = trace.meta.all_runs ?? trace.meta.runs?.[place] ?? [];
        let button = "";
        if (names.length) {
          button = make("button", { type: "button", class: "open", "aria-haspopup": "dialog" }, names.length > 1 ? `${names.length} runs` : "its run");
          button.addEventListener("click", () => open(names, button));
        }
        const y = trace.y[place];
        const bars = trace.error_y;
        const known = bars && (bars.array[place] || bars.arrayminus[place]);
        rows.push([asText(trace.name), titles(trace.xaxis), typeof x === "string" ? asText(x) : shown(x),
          onEdge ? "" : titles(trace.yaxis), onEdge ? "no value" : shown(y),
          known ? `[${shown(y - bars.arrayminus[place])}, ${shown(y + bars.array[place])}]` : "", button]);
      });
    }
    const left = rows.length - MOST_VALUES;
    details.append(plainTable(["series", "x", "", "y", "", "interval", "runs"], rows.slice(0, MOST_VALUES)));
    if (left > 0) details.append(make("p", { class: "hint" }, `${shown(left)} more are in runs.csv and epochs.csv.`));
  });
}

/** Text of a label that was escaped for plotly. */
function asText(label) {
  return label.replaceAll("<br>", " ").replaceAll(/&(lt|gt|amp|#123|#36);/g, (_, name) => ({ lt: "<", gt: ">", amp: "&", "#123": "{", "#36": "$" })[name]);
}
