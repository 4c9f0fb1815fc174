// Figures: drawn when they come into view, at the full width; their colours are those of the style sheet.

const NARROW = 300;
const LEAST = 160;
const LABELS = 96;
const ROW = 250;
const PAPER_WIDTH = 720;
const MOST_VALUES = 500;

class Figure {
  constructor(element, chart, open) {
    Object.assign(this, { element, chart, open, width: 0 });
  }

  /** Draw, or draw again; on paper at its width. */
  async draw(onPaper = false) {
    const width = onPaper ? PAPER_WIDTH : this.element.clientWidth;
    // Too small for axes, as in a window that is opening; the figure is drawn again when the window has its size.
    if (width < LEAST) return;
    this.width = width;
    const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip: false };
    const { view } = await vegaEmbed(this.element, this.arranged(width), options);
    view.addEventListener("mousemove", (event, item) => showTip(event, item?.datum, this.chart));
    view.addEventListener("mouseout", hideTip);
    view.addEventListener("click", (event, item) => this.open(item?.datum?.runs ?? [], this.element));
  }

  /** The specification with panels in as many rows as it takes for each to be wide enough. */
  arranged(width) {
    const spec = structuredClone(this.chart.spec);
    const count = spec.concat.length;
    const most = Math.max(1, Math.floor(width / NARROW));
    spec.columns = Math.ceil(count / Math.ceil(count / most));
    const panel = width / spec.columns - LABELS;
    for (const view of spec.concat) {
      Object.assign(view, { width: panel, height: ROW });
      const names = view.encoding?.x.scale?.domain ?? [];
      if (view.encoding?.x.type === "ordinal") view.encoding.x.axis.labelAngle = 7 * names.length * (1 + Math.max(...names.map((name) => name.length))) > panel ? -30 : 0;
    }
    const longest = Math.max(0, ...spec.usermeta.names.map((name) => name.length));
    spec.config.legend.columns = Math.max(1, Math.floor(width / (45 + 7 * longest)));
    spec.config.legend.labelLimit = width - 40;
    return spec;
  }
}

const tip = make("div", { class: "tip", role: "tooltip", hidden: true });
document.body.append(tip);

function hideTip() {
  tip.hidden = true;
}

/** What is known of the point below the pointer. */
function showTip(event, row, chart) {
  tip.hidden = !row?.series;
  if (tip.hidden) return;
  const [x, y] = chart.spec.usermeta.axes[row.panel];
  const lines = [make("b", {}, row.series), `${x}: ${shown(row.x)}`];
  if (row.y !== null) lines.push(`${y}: ${shown(row.y)} ${interval(row)}`);
  lines.push(row.text);
  if (row.runs.length) lines.push(make("i", {}, `click: ${runsOf(row)}`));
  tip.replaceChildren(...lines.filter(Boolean).map((line) => make("div", {}, line)));
  tip.style.left = `${Math.max(0, Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.pageY + 14}px`;
}

function interval(row) {
  return row.low === null || row.high === null ? "" : `[${shown(row.low)}, ${shown(row.high)}]`;
}

function runsOf(row) {
  return row.runs.length > 1 ? `${row.runs.length} runs` : "its run";
}

/** Draw the figures of the page; `open` shows the runs with these run_ids. */
function drawFigures(data, open) {
  const figures = [...document.querySelectorAll(".plot")].map((element) =>
    new Figure(element, data.charts[Number(element.dataset.chart)], open));
  const byElement = new Map(figures.map((figure) => [figure.element, figure]));
  let printing = false;

  const inView = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((item) => item.isIntersecting)) {
      inView.unobserve(target);
      if (!byElement.get(target).width) byElement.get(target).draw();
    }
  }, { rootMargin: "300px" });
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const figure = byElement.get(target);
      if (figure.width && !printing && Math.abs(target.clientWidth - figure.width) > 2) figure.draw();
    }
  });
  figures.forEach(({ element }) => {
    inView.observe(element);
    resized.observe(element);
  });

  // Drawing needs no timer and no request, so it ends before the page is printed.
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

    const points = Object.values(chart.spec.datasets).flat().filter((row) => row.y !== null || row.runs.length);
    const rows = points.slice(0, MOST_VALUES).map((row) => {
      const [x, y] = chart.spec.usermeta.axes[row.panel];
      let button = "";
      if (row.runs.length) {
        button = make("button", { type: "button", class: "open", "aria-haspopup": "dialog" }, runsOf(row));
        button.addEventListener("click", () => open(row.runs, button));
      }
      const value = row.y === null ? "no value" : shown(row.y);
      return [row.series, x, shown(row.x), y, value, interval(row), button];
    });
    details.append(plainTable(["series", "x", "", "y", "", "interval", "runs"], rows));
    const left = points.length - rows.length;
    if (left > 0) details.append(make("p", { class: "hint" }, `${shown(left)} more are in runs.csv and epochs.csv.`));
  });
}
