// Tables with sorting, filters and pages.

const NUMBER = /^([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?:\s*[[(].*)?$/i;

/** The number that a cell begins with (`1,234 [1,200, 1,300]`), or null. */
function numberOf(text) {
  const found = NUMBER.exec(text.trim());
  return found ? Number(found[1].replaceAll(",", "")) : null;
}

/** Whether rows with these heads match what was typed: every word, `name=value`, `name>value`. */
function matcher(heads, typed) {
  const names = heads.map((head) => head.replace(/\s*\[.*$/, "").trim().replaceAll(/\s+/g, "_").toLowerCase());
  const tests = typed.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, name, sign, value] = /^([^=<>]+)(=|<|>)(.+)$/.exec(word) ?? [];
    const column = names.indexOf(name);
    if (column < 0) return (texts) => texts.some((text) => text.toLowerCase().includes(word));
    const wanted = numberOf(value);
    return (texts) => {
      const text = texts[column].toLowerCase();
      const number = numberOf(text);
      if (sign === "=") return text === value || (wanted !== null && number === wanted);
      return wanted !== null && number !== null && (sign === "<" ? number < wanted : number > wanted);
    };
  });
  return (texts) => tests.every((test) => test(texts));
}

/**
 * A table whose rows are `{texts, element}`; element() returns the row's element, and its cells before `first` are not
 * values. Empty cells, and texts in a numeric column, come last in both sort orders.
 */
class Listing {
  constructor(table, heads, rows, { count, noun, size = Infinity, pages = null, first = 0 }) {
    Object.assign(this, { table, heads, rows, count, noun, size, pages, first });
    this.body = table.tBodies[0];
    this.page = 0;
    this.kept = rows;
    this.matches = () => true;
    // A trial without a run that is ok has its outcome in place of numbers.
    const outcome = heads.indexOf("outcome");
    this.numeric = heads.map((_, column) => {
      const texts = rows.filter((row) => column === outcome || row.texts[column] !== row.texts[outcome])
        .map((row) => row.texts[column]).filter(Boolean);
      return texts.length > 0 && texts.every((text) => numberOf(text) !== null);
    });
    this.headCells = [...table.tHead.rows[0].cells].slice(first);
    this.headCells.forEach((cell, column) => {
      cell.classList.toggle("number", this.numeric[column]);
      cell.querySelector("button").addEventListener("click", () => this.sort(column));
    });
    pages?.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => {
      this.page += Number(button.dataset.step);
      this.show();
    }));
    this.show();
  }

  sort(column) {
    const head = this.headCells[column];
    const upwards = head.getAttribute("aria-sort") !== "ascending";
    this.headCells.forEach((cell) => cell.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
    const numeric = this.numeric[column];
    const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, "en", { numeric: true });
    const keyed = this.rows.map((row) => [numeric ? numberOf(row.texts[column]) : row.texts[column] || null, row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return upwards ? compare(a, b) : compare(b, a);
    });
    this.rows = keyed.map(([, row]) => row);
    this.page = 0;
    this.filter(this.matches);
  }

  filter(matches) {
    this.matches = matches;
    this.kept = this.rows.filter((row) => matches(row.texts, row));
    this.page = Math.min(this.page, Math.max(0, Math.ceil(this.kept.length / this.size) - 1));
    this.show();
  }

  show() {
    const start = this.size === Infinity ? 0 : this.page * this.size;
    const seen = this.kept.slice(start, start + this.size);
    this.body.replaceChildren(...seen.map((row) => {
      const element = row.element();
      this.numeric.forEach((numeric, column) => element.cells[column + this.first].classList.toggle("number", numeric));
      return element;
    }));
    const all = this.rows.length.toLocaleString("en-US");
    const some = this.kept.length.toLocaleString("en-US");
    const nouns = this.rows.length === 1 ? this.noun : `${this.noun}s`;
    this.count.textContent = this.kept.length === this.rows.length ? `${all} ${nouns}` : `${some} of ${all} ${nouns}`;
    if (this.pages) {
      const [before, after] = this.pages.querySelectorAll("button");
      this.pages.hidden = this.kept.length <= this.size;
      before.disabled = this.page === 0;
      after.disabled = start + this.size >= this.kept.length;
      const last = start + seen.length;
      this.pages.querySelector("span").textContent =
        `${(start + 1).toLocaleString("en-US")} to ${last.toLocaleString("en-US")} of ${some}`;
    }
  }
}

/** A table of plain values, without controls. */
function plainTable(heads, rows) {
  const numeric = heads.map((_, column) => rows.every((row) => row[column] === null || typeof row[column] !== "string"));
  const kind = (column) => (numeric[column] ? "number" : null);
  const head = make("tr", {}, ...heads.map((text, column) => make("th", { scope: "col", class: kind(column) }, text)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value, column) =>
    make("td", { class: kind(column) }, value instanceof Node ? value : shown(value)))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "scroll", tabindex: "0" }, table);
}

/** The trials, whose rows are in the page already. */
function listTrials(runs, open) {
  const table = byId("trials");
  const heads = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((element) => {
    const texts = [...element.cells].slice(1).map((cell) => cell.textContent);
    return { texts, element: () => element };
  });
  const listing = new Listing(table, heads, rows, { count: byId("trial-count"), noun: "trial", first: 1 });
  byId("trial-filter").addEventListener("input", (event) => listing.filter(matcher(heads, event.target.value)));
  table.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-trial]");
    if (row && !String(getSelection())) open(runs.byTrial.get(row.dataset.trial), row.querySelector("button"));
  });
}

/** All runs, fifty a page. */
function listRuns(runs, open) {
  const measures = ["images_per_s", "total_s", "test_accuracy"].filter((name) => runs.has(name));
  const reasons = runs.has("reason") ? ["reason"] : [];
  // A user-defined field may have the name of a built-in column; it gets a prefix.
  const builtIn = ["run", "repeat", "outcome", ...measures, "reason"];
  const varied = runs.varied.map((name) => (builtIn.includes(name) ? `config_${name}` : name));
  const heads = ["run", "repeat", "outcome", ...varied, ...measures, ...reasons];
  const rows = runs.list.map(({ run_id, repeat }, run) => {
    const values = [run_id, repeat, runs.value(run, "outcome"), ...runs.varied.map((name) => runs.factor(run, name)),
      ...[...measures, ...reasons].map((name) => runs.value(run, name))];
    const texts = values.map((value) => shown(value));
    let made = null;
    return { texts, run, element: () => (made ??= runRow(texts, heads, run)) };
  });
  const table = byId("run-list");
  table.tHead.append(make("tr", {}, ...heads.map((head) =>
    make("th", { scope: "col", "aria-sort": "none" }, make("button", { type: "button", class: "sort" }, head)))));
  const listing = new Listing(table, heads, rows, {
    count: byId("run-count"), noun: "run", size: 50, pages: byId("run-pages"),
  });
  const typed = byId("run-filter");
  const outcome = byId("run-outcome");
  const outcomes = new Set(rows.map((row) => runs.value(row.run, "outcome")));
  outcome.append(...[...outcomes].map((name) => make("option", { value: name }, name)));
  const filter = () => {
    const matches = matcher(heads, typed.value);
    listing.filter((texts, row) =>
      (!outcome.value || runs.value(row.run, "outcome") === outcome.value) && matches(texts));
  };
  typed.addEventListener("input", filter);
  outcome.addEventListener("change", filter);
  table.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) open([Number(row.dataset.run)], row.querySelector("button"));
  });
}

function runRow(texts, heads, run) {
  const cells = texts.map((text, column) => {
    if (column === 0) {
      return make("td", {}, make("button", { type: "button", class: "open id", "aria-haspopup": "dialog" }, text));
    }
    const kind = heads[column] === "outcome" ? `outcome ${text}` : heads[column] === "reason" ? "wide" : null;
    return make("td", { class: kind }, text.length > 160 ? `${text.slice(0, 160)}…` : text);
  });
  return make("tr", { "data-run": run }, ...cells);
}
