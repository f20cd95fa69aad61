
"use strict";
const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function svg(tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

/** Keep the children of a node in step with items. Rows with the same key stay in the page. */
function sync(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = old.get(key);
    if (node === undefined) {
      node = create(item);
      node.dataset.key = key;
    }
    old.delete(key);
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
    update(node, item);
  }
  for (const node of old.values()) node.remove();
}

const compactNumber = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10000 ? wholeNumber.format(value) : compactNumber.format(value);
}

function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}

function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function niceMaximum(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((step) => step * power).find((step) => step >= value);
}

/** Split points where a value is missing, or where nothing was observed for a while. */
function runs(points, index) {
  const gaps = points.slice(1).map((point, number) => point[0] - points[number][0]).sort((one, other) => one - other);
  const longest = 4 * (gaps[Math.floor(gaps.length / 2)] ?? 1) + 1;
  const result = [];
  let run = [];
  for (const point of points) {
    const missing = point[index] === null || point[index] === undefined;
    if (run.length && (missing || point[0] - run[run.length - 1][0] > longest)) { result.push(run); run = []; }
    if (!missing) run.push(point);
  }
  if (run.length) result.push(run);
  return result;
}

function drawSeries(picture, points, index, x, y, bottom, second, filled) {
  for (const run of runs(points, index)) {
    const path = run.map((point, number) => `${number ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[index]).toFixed(1)}`).join("");
    if (filled) picture.append(svg("path", { class: "area", d: `${path}L${x(run[run.length - 1][0])} ${bottom}L${x(run[0][0])} ${bottom}Z` }));
    picture.append(svg("path", { class: second ? "line second" : "line", d: path }));
  }
}

/** A chart of one or two series over time, with bands for rebalances and a cursor. */
class Chart {
  constructor(parent, series, format) {
    this.series = series;
    this.format = format;
    this.root = el("div", { class: "chart" });
    this.tip = el("div", { class: "tip" });
    this.tip.hidden = true;
    this.pointer = null;
    parent.append(this.root);
    this.root.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - this.root.getBoundingClientRect().left;
      this.draw();
    });
    this.root.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
  }

  show(points, bands) {
    this.points = points;
    this.bands = bands;
    this.draw();
  }

  draw() {
    const { points, bands } = this;
    const width = Math.max(120, this.root.clientWidth), height = 118;
    const left = 38, right = width - 5, top = 8, bottom = height - 18;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    if (!points || points.length < 2) {
      picture.append(svg("text", { class: "label", x: left, y: height / 2 }, "collecting"));
      this.root.replaceChildren(picture, this.tip);
      return;
    }
    const first = points[0][0], last = Math.max(points[points.length - 1][0], first + 30);
    const values = points.flatMap((point) => this.series.map((index) => point[index] ?? 0));
    const most = niceMaximum(Math.max(...values));
    const x = (time) => left + ((time - first) / (last - first)) * (right - left);
    const y = (value) => bottom - (value / most) * (bottom - top);
    for (const part of [0, 0.5, 1]) {
      const line = y(most * part);
      picture.append(svg("line", { class: "grid", x1: left, x2: right, y1: line, y2: line }));
      picture.append(svg("text", { class: "label", x: left - 6, y: line + 3.5, "text-anchor": "end" }, this.format(most * part)));
    }
    for (const band of bands) {
      const from = Math.max(left, x(band.time)), to = Math.min(right, x(band.time + (band.seconds ?? last - band.time)));
      if (to >= left && from <= right) picture.append(svg("rect", { class: "band", x: from, y: top, width: Math.max(2, to - from), height: bottom - top }));
    }
    this.series.forEach((index, number) => drawSeries(picture, points, index, x, y, bottom, number > 0, this.series.length === 1));
    picture.append(svg("text", { class: "label", x: left, y: height - 3 }, clock(first)));
    picture.append(svg("text", { class: "label", x: right, y: height - 3, "text-anchor": "end" }, clock(last)));
    this.tip.hidden = this.pointer === null;
    if (this.pointer !== null) this.drawCursor(picture, x, y, { left, right, top, bottom, width });
    this.root.replaceChildren(picture, this.tip);
  }

  drawCursor(picture, x, y, box) {
    const distance = (point) => Math.abs(x(point[0]) - this.pointer);
    const near = this.points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    const center = x(near[0]);
    picture.append(svg("line", { class: "cursor", x1: center, x2: center, y1: box.top, y2: box.bottom }));
    this.series.forEach((index, number) => {
      if (near[index] !== null) picture.append(svg("circle", { class: number ? "dot second" : "dot", cx: center, cy: y(near[index]), r: 4 }));
    });
    const values = this.series.map((index) => this.format(near[index])).join(" / ");
    this.tip.textContent = `${clock(near[0])}  ${values}`;
    this.tip.style.left = `${Math.min(center + 10, box.width - 130)}px`;
  }
}

/** A small line without axes. */
function sparkline(points, index) {
  const width = 150, height = 28;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (!points || points.length < 2) return picture;
  const first = points[0][0], last = points[points.length - 1][0];
  const most = Math.max(1, ...points.map((point) => point[index] ?? 0));
  const x = (time) => 1 + ((time - first) / Math.max(last - first, 1)) * (width - 2);
  const y = (value) => height - 3 - (value / most) * (height - 6);
  drawSeries(picture, points, index, x, y, height, false, true);
  return picture;
}
