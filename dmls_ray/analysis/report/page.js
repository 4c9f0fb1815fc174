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

/** A value as text; a number has four significant digits. */
function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1e6 || size < 1e-4) return value.toPrecision(4);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

/** The payload of payload.py; a run is an index in its list. */
class Runs {
  constructor(data) {
    this.list = data.runs;
    this.pictures = data.pictures;
    this.varied = data.varied;
    this.places = new Map(this.list.map(({ run_id }, place) => [run_id, place]));
    this.byTrial = new Map();
    this.list.forEach(({ trial }, place) => {
      if (!this.byTrial.has(trial)) this.byTrial.set(trial, []);
      this.byTrial.get(trial).push(place);
    });
  }

  factor(run, name) { return this.list[run].config[name] ?? null; }
  value(run, name) { return this.list[run].record[name] ?? null; }

  /** Whether a run has a value of this name. */
  has(name) { return this.list.some(({ record }) => name in record); }

  /** The fields that vary, as `world_size=2 batch_per_rank=32`. */
  name(run) {
    const names = this.varied.filter((name) => this.factor(run, name) !== null);
    return names.map((name) => `${name}=${shown(this.factor(run, name))}`).join(" ") || "the one configuration";
  }
}

/** The names of which any of these objects has a value. */
function namesIn(objects) {
  return [...new Set(objects.flatMap((values) => Object.keys(values)))];
}
