// The dialog of one run, with buttons for the other runs of the same point.

const PHASES = ["setup_s", "warmup_s", "train_s", "eval_s", "checkpoint_s", "inference_s", "between_s"];
const OUTSIDE = ["total_s", "overhead_s"];
const OUTCOME = ["outcome", "reason"];
const ORIGIN = ["order", "order_seed", "seed", "sweep", "session", "isolation", "mode", "oversubscribed", "attempts",
  "started_at"];

class RunPanel {
  constructor(runs) {
    this.runs = runs;
    this.dialog = byId("run");
    this.opener = null;
    byId("run-close").addEventListener("click", () => this.close());
    // Not modal: the next point can be clicked while it is open.
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.dialog.open) {
        event.preventDefault();
        this.close();
      }
    });
  }

  /** Show the first of these runs, and the others as buttons; `opener` gets the focus back. */
  open(places, opener) {
    if (!places?.length) return;
    this.opener = opener;
    this.showOthers(places);
    this.show(places[0]);
    if (!this.dialog.open) this.dialog.show();
    byId("run-title").focus({ preventScroll: true });
  }

  close() {
    this.dialog.close();
    this.opener?.focus({ preventScroll: true });
  }

  showOthers(places) {
    const others = byId("run-others");
    others.hidden = places.length < 2;
    const oneTrial = places.every((run) => this.runs.list[run].trial === this.runs.list[places[0]].trial);
    others.replaceChildren(...places.map((run) => {
      const outcome = this.runs.value(run, "outcome");
      const label = (oneTrial ? "" : `${this.runs.name(run)}, `) + `repeat ${this.runs.list[run].repeat}`;
      const kind = outcome === "ok" || outcome === "stopped" ? null : "bad";
      const button = make("button", { type: "button", class: kind, "data-run": run },
        outcome === "ok" ? label : `${label}: ${outcome}`);
      button.addEventListener("click", () => this.show(run));
      return button;
    }));
  }

  show(run) {
    const { runs } = this;
    byId("run-title").textContent = runs.name(run);
    for (const button of byId("run-others").children) {
      button.setAttribute("aria-current", String(Number(button.dataset.run) === run));
    }
    byId("run-body").replaceChildren(...[
      this.verdict(run), this.traceback(run), this.configuration(run), this.picture(run), this.phases(run), this.measured(run),
      this.epochs(run), this.ranks(run), this.files(run), this.origin(run),
    ].flat().filter((part) => part !== null));
    this.dialog.scrollTop = 0;
  }

  verdict(run) {
    const outcome = this.runs.value(run, "outcome");
    const reason = this.runs.value(run, "reason");
    const { earlier, repeat, run_id } = this.runs.list[run];
    const attempts = earlier.map((attempt) =>
      make("p", { class: "hint" }, `Earlier attempt: ${Object.values(attempt).map(shown).join(", ")}`));
    return [
      make("p", { class: "verdict" }, make("span", { class: `outcome ${outcome}` }, outcome),
        ` · repeat ${repeat} · `, make("code", {}, run_id)),
      reason ? make("p", { class: "reason" }, reason) : null,
      ...attempts,
    ];
  }

  configuration(run) {
    const names = Object.keys(this.runs.list[run].config);
    const varied = names.filter((name) => this.runs.varied.includes(name));
    const others = names.filter((name) => !varied.includes(name));
    const facts = (some) => some.map((name) => [name, this.runs.factor(run, name)]);
    const rest = list(facts(others));
    return [
      make("h3", {}, "Configuration"),
      varied.length ? make("div", { class: "varied" }, list(facts(varied))) : null,
      varied.length && rest ? fold(`${others.length} more fields`, rest) : rest,
    ];
  }

  picture(run) {
    const { picture, run_id } = this.runs.list[run];
    if (picture === null) return null;
    const left = make("p", { class: "hint" }, `Left out of the report; see runs.jsonl, run_id ${run_id}.`);
    const alt = "The picture that the training function of this run returned";
    return [make("h3", {}, "Picture"),
      picture < 0 ? left : make("img", { src: `data:image/jpeg;base64,${this.runs.pictures[picture]}`, alt })];
  }

  phases(run) {
    const phases = [...PHASES, ...OUTSIDE].map((name) => [name, this.runs.value(run, name)]);
    const known = phases.filter(([, value]) => value !== null);
    if (!known.length) return null;
    const most = Math.max(...known.map(([, value]) => value), 1e-9);
    const bars = known.flatMap(([name, value]) => {
      const bar = make("i");
      bar.style.width = `${Math.max(0, (100 * value) / most)}%`;
      return [make("span", {}, name), make("div", { class: "track", "aria-hidden": "true" }, bar), make("span", {}, shown(value))];
    });
    return [make("h3", {}, "Seconds"), make("div", { class: "bars" }, ...bars)];
  }

  measured(run) {
    const elsewhere = new Set([...PHASES, ...OUTSIDE, ...OUTCOME, ...ORIGIN]);
    const measured = list(Object.keys(this.runs.list[run].record).filter((name) => !elsewhere.has(name))
      .map((name) => [name, this.runs.value(run, name)]));
    return measured ? [make("h3", {}, "Measured"), measured] : null;
  }

  epochs(run) {
    const { epochs, left_out } = this.runs.list[run];
    if (!epochs.length) return null;
    return [
      make("h3", {}, "Epochs"), valuesTable(epochs),
      left_out ? make("p", { class: "hint" }, `${shown(left_out)} epochs between these are in epochs.csv.`) : null,
    ];
  }

  ranks(run) {
    const { ranks, rank_epochs } = this.runs.list[run];
    if (!ranks.length) return null;
    // A column a rank: there are many more measures than ranks.
    const names = namesIn(ranks).filter((name) => name !== "rank");
    const rows = names.map((name) => [name, ...ranks.map((values) => values[name] ?? null)]);
    const heads = ["", ...ranks.map(({ rank }) => `rank ${rank}`)];
    const parts = [make("h3", {}, ranks.length > 1 ? "Ranks" : "Rank"), plainTable(heads, rows)];
    rank_epochs.forEach((epochs, place) => {
      if (epochs.length) parts.push(fold(`Epochs of rank ${ranks[place].rank}, over its own samples`, valuesTable(epochs)));
    });
    return parts;
  }

  traceback(run) {
    const { traceback } = this.runs.list[run];
    return traceback ? [make("h3", {}, "Traceback"), make("pre", { tabindex: "0" }, traceback)] : null;
  }

  files(run) {
    const { files } = this.runs.list[run];
    if (!files.length) return null;
    const rows = files.map((file) => [make("a", { href: file.href }, file.name), file.bytes]);
    const logs = files.filter((file) => file.end);
    const ends = logs.map((file) => fold(`End of ${file.name}`, make("pre", { tabindex: "0" }, file.end)));
    return [make("h3", {}, "Files"), plainTable(["file", "bytes"], rows), ...ends];
  }

  origin(run) {
    const place = make("a", { href: "#machine" }, "Machine and versions");
    return [make("h3", {}, "Origin"), list(ORIGIN.map((name) => [name, this.runs.value(run, name)])),
      make("p", { class: "hint" }, place, `; the full record is in runs.jsonl, run_id ${this.runs.list[run].run_id}.`)];
  }
}

/** A list of names and values without missing ones; null if all are missing. */
function list(facts) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (!known.length) return null;
  return make("dl", {}, ...known.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, shown(value)))));
}

function fold(title, ...content) {
  return make("details", {}, make("summary", {}, title), ...content);
}

/** A table with a row for each of these objects. */
function valuesTable(objects) {
  const names = namesIn(objects);
  return plainTable(names, objects.map((values) => names.map((name) => values[name] ?? null)));
}
