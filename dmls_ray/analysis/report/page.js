"use strict";
// What every part of the page uses. Text goes into the page as text: nothing here reads HTML out of data.

/** An element with its attributes and children; strings among these become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const byId = (id) => document.getElementById(id);

/** The text that `packed` made small: base64 of gzip. */
async function unpack(id) {
  const binary = atob(byId(id).textContent);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** A value as people write it; the name of what it measures says how many digits help. */
function shown(value, name = "") {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  const fixed = /_s$/.test(name) && name !== "images_per_s" ? 3 : /accuracy|loss|_gap$/.test(name) ? 4 : null;
  if (fixed !== null && size < 100) return value.toFixed(fixed);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1e6 || size < 1e-4) return value.toPrecision(4);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

/** What `details` packed: a run is its place in the lists. */
class Runs {
  constructor(data) {
    Object.assign(this, data.runs);
    this.varied = data.varied;
    this.count = this.run_id.length;
    this.places = new Map(this.run_id.map((id, place) => [id, place]));
    this.byTrial = new Map();
    this.trial.forEach((trial, place) => {
      if (!this.byTrial.has(trial)) this.byTrial.set(trial, []);
      this.byTrial.get(trial).push(place);
    });
  }

  static at(column, run) {
    if (column === undefined) return null;
    return "each" in column ? column.each[run] : column.all;
  }

  factor(run, name) { return Runs.at(this.config[name], run); }
  told(run, name) { return Runs.at(this.record[name], run); }

  /** The fields that vary, as `world_size=2 batch_per_rank=32`. */
  name(run) {
    const told = this.varied.filter((name) => this.factor(run, name) !== null);
    return told.map((name) => `${name}=${shown(this.factor(run, name))}`).join(" ") || "the one configuration";
  }
}
