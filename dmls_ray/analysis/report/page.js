"use strict";
// Functions that every part of the page uses. Data enter the page as text and are never parsed as HTML.

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

/** Decompress what `pack` of render.py compressed: base64 of gzip. */
async function unpack(id) {
  const binary = atob(byId(id).textContent);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** Metric -> decimals, from the payload; other numbers have four significant digits. */
const DECIMALS = {};

/** A value as text. */
function shown(value, name = "") {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (name in DECIMALS && size < 100) return value.toFixed(DECIMALS[name]);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1e6 || size < 1e-4) return value.toPrecision(4);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

/** The payload of payload.py; a run is an index in its columns. */
class Runs {
  constructor(data) {
    Object.assign(this, data.runs);
    Object.assign(DECIMALS, this.decimals);
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
  value(run, name) { return Runs.at(this.record[name], run); }

  /** The fields that vary, as `world_size=2 batch_per_rank=32`. */
  name(run) {
    const names = this.varied.filter((name) => this.factor(run, name) !== null);
    return names.map((name) => `${name}=${shown(this.factor(run, name))}`).join(" ") || "the one configuration";
  }
}
