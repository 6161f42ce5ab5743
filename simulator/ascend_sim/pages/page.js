"use strict";
// What the scripts of all pages share: elements, the button for light and dark, tables that sort, charts.
const DATA = JSON.parse(document.getElementById("data").textContent);

function make(name, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(name);
  const node = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const byId = (id) => document.getElementById(id);
const colourOf = (i) => `var(--c${i % 8})`;

// Formats a number with three significant digits.
function figure(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return "infinite";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return x.toExponential(2);
  return size >= 100 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(3)));
}

// Returns the pieces of a name, with places where a line may break: behind a comma, slash or opening bracket, and behind
// an underscore of the word before a slash or bracket, but not in the name of a parameter or module.
function breakable(name) {
  return name.split(/(?<=[,/(])|(?<=_)(?=[^=,.]*[/(])/).flatMap((piece, i) => (i ? [make("wbr"), piece] : [piece]));
}

// ---- light and dark ----

function themeButton() {
  const themes = ["system", "light", "dark"];
  const button = byId("theme");
  let now = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    now = (now + 1) % themes.length;
    if (now) document.documentElement.dataset.theme = themes[now];
    else delete document.documentElement.dataset.theme;
    button.textContent = `Theme: ${themes[now]}`;
    document.dispatchEvent(new Event("theme"));
  });
}

// ---- filters ----

// Adds a list of choices, whose first entry chooses all. Returns the select.
function addChoice(host, label, names, onChange) {
  const select = make("select", {}, make("option", { value: "" }, "all"));
  for (const name of names) select.append(make("option", { value: name }, name));
  host.append(make("label", {}, label, select));
  select.addEventListener("change", onChange);
  return select;
}

function addSearch(host, label, onChange) {
  const input = make("input", { type: "search", spellcheck: "false" });
  host.append(make("label", { class: "wide" }, label, input));
  input.addEventListener("input", onChange);
  return input;
}

// ---- tables ----

const PART = 100; // the number of rows that a table shows at first

// Returns a function that shows rows in a table below `host`. A column has a title, the function `of` that returns a
// row's value, by which a click on the title sorts, and perhaps `show`, which returns the cell's text or node.
function dataTable(host, caption, columns) {
  let rows = [], shown = PART, sorted = -1, descends = false;
  const body = make("tbody"), head = make("tr"), more = make("div", { class: "filters" });
  const table = make("table", {}, make("caption", {}, caption), make("thead", {}, head), body);
  const scroll = { class: "scroll tall", role: "region", tabindex: "0", "aria-label": caption };
  host.append(make("div", scroll, make("div", { class: "continues" }), table), more);
  columns.forEach((column, i) => {
    const button = make("button", { type: "button" }, column.title);
    const cell = make("th", { scope: "col", class: `sortable${column.isNumber ? " n" : ""}` }, button);
    column.cell = cell;
    head.append(cell);
    button.addEventListener("click", () => {
      descends = sorted === i ? !descends : Boolean(column.isNumber);
      sorted = i;
      columns.forEach((other, j) => (j === i
        ? other.cell.setAttribute("aria-sort", descends ? "descending" : "ascending")
        : other.cell.removeAttribute("aria-sort")));
      draw();
    });
  });
  function inOrder() {
    if (sorted < 0) return rows;
    const of = columns[sorted].of, sign = descends ? -1 : 1;
    const isMissing = (x) => x === null || x === undefined || Number.isNaN(x);
    return [...rows].sort((a, b) => {
      const x = of(a), y = of(b);
      if (isMissing(x) || isMissing(y)) return isMissing(x) - isMissing(y); // at the end in both directions
      return x < y ? -sign : x > y ? sign : 0;
    });
  }
  function draw() {
    body.replaceChildren(...inOrder().slice(0, shown).map((row) => {
      const cells = columns.map((column, i) => {
        const content = column.show ? column.show(row) : column.isNumber ? figure(column.of(row)) : column.of(row);
        const attributes = column.isNumber ? { class: "n" } : {};
        if (i) return make("td", attributes, content);
        const pieces = typeof content === "string" ? breakable(content) : [content];
        return make("th", { scope: "row", class: "long" }, ...pieces);
      });
      const line = make("tr", row.isWrong ? { class: "wrong" } : row.isOurs ? { class: "ours" } : {}, ...cells);
      return line;
    }));
    more.replaceChildren();
    if (rows.length <= shown) return;
    more.append(make("p", { class: "soft" }, `${shown} of ${rows.length} rows are shown.`));
    for (const [text, count] of [[`Show ${PART} more`, shown + PART], ["Show all", rows.length]]) {
      const button = make("button", { type: "button" }, text);
      button.addEventListener("click", () => { shown = count; draw(); });
      more.append(button);
    }
  }
  return (newRows) => { rows = newRows; shown = PART; draw(); };
}

// ---- charts ----

function linearTicks(low, high) {
  const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const unit = power * [1, 2, 5, 10].find((n) => n * power >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / unit); i * unit <= high + unit * 1e-9; ++i) ticks.push(Number((i * unit).toPrecision(6)));
  return ticks;
}

function logTicks(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first) / 6)), ticks = [];
  for (let i = first; i <= last; i += stride) ticks.push(10 ** i);
  return ticks;
}

// Returns a scale from values to pixels: its range, ticks, and whether it is logarithmic.
function scaleOf(low, high, isLog, from, to) {
  const t = isLog ? Math.log10 : (x) => x, a = t(low), b = t(high) === a ? a + 1 : t(high);
  const pixel = (x) => from + ((Math.min(Math.max(t(Math.max(x, isLog ? low : -Infinity)), a), b) - a) / (b - a))
    * (to - from);
  return { pixel, ticks: isLog ? logTicks(low, high) : linearTicks(low, high) };
}

// Returns a function that draws a chart. It takes { series: [{ name, colour, points: [[x, y, text]], isLine }], x, y }
// with the axes { label, low, high, isLog, format, ticks }, and perhaps `limit`, a value of y with a line. The chart
// names the point at the pointer; when it has the focus, the arrow keys choose the point.
function chart(host, label) {
  const readout = make("p", { class: "readout soft", role: "status" });
  const picture = make("svg", { role: "img", tabindex: "0", "aria-label": label });
  const legend = make("ul", { class: "legend" });
  host.append(legend, picture, readout);
  const hint = "Point at the chart, or focus it and use the arrow keys.";
  let spec = null, all = [], chosen = -1;
  const height = 300, left = 62, top = 14, bottom = height - 46;
  function draw() {
    if (!spec) return;
    const width = Math.max(280, host.clientWidth), right = width - 14;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const x = scaleOf(spec.x.low, spec.x.high, spec.x.isLog, left, right);
    const y = scaleOf(spec.y.low, spec.y.high, spec.y.isLog, bottom, top);
    const parts = [];
    const text = (content, px, py, anchor, more = {}) =>
      parts.push(make("text", { x: px, y: py, "text-anchor": anchor, ...more }, content));
    for (const tick of spec.y.ticks || y.ticks) {
      const at = y.pixel(tick);
      parts.push(make("line", { class: "axis", x1: left, x2: right, y1: at, y2: at }));
      text(figure(tick), left - 6, at + 4, "end");
    }
    const xTicks = spec.x.ticks || x.ticks;
    const every = Math.ceil((xTicks.length * (spec.x.tickWidth || 56)) / (right - left));
    xTicks.forEach((tick, i) => {
      if (i % every) return;
      parts.push(make("line", { class: "axis", x1: x.pixel(tick), x2: x.pixel(tick), y1: bottom, y2: bottom + 4 }));
      const at = x.pixel(tick), anchor = at > right - 24 ? "end" : "middle";
      text(spec.x.format ? spec.x.format(tick) : figure(tick), at, bottom + 17, anchor);
    });
    if (spec.limit !== undefined) {
      const at = y.pixel(spec.limit);
      parts.push(make("line", { class: "limit", x1: left, x2: right, y1: at, y2: at }));
      text(spec.limitText || "bound", right, at - 5, "end", { class: "limit-text" });
    }
    all = [];
    for (const series of spec.series) {
      const points = series.points.map(([px, py, words]) => [x.pixel(px), y.pixel(py), words]);
      all.push(...points);
      const at = points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`);
      const style = `stroke:${series.colour}`;
      if (series.isLine && at.length) parts.push(make("path", { class: "curve", style, d: `M${at.join("L")}` }));
      if (at.length) parts.push(make("path", { class: "points", style, d: at.map((place) => `M${place}h0`).join("") }));
    }
    all.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    text(spec.x.label, (left + right) / 2, height - 8, "middle");
    const middle = (top + bottom) / 2;
    text(spec.y.label, 14, middle, "middle", { transform: `rotate(-90 14 ${middle})` });
    picture.replaceChildren(...parts);
    chosen = -1;
    readout.textContent = all.length ? hint : "No values.";
  }
  function choose(i) {
    picture.querySelector(".here")?.remove();
    chosen = Math.min(Math.max(i, 0), all.length - 1);
    if (chosen < 0) return;
    const [px, py, words] = all[chosen];
    picture.append(make("circle", { class: "here", cx: px, cy: py, r: 6 }));
    readout.textContent = words;
  }
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), ratio = picture.viewBox.baseVal.width / box.width;
    const px = (event.clientX - box.left) * ratio, py = (event.clientY - box.top) * ratio;
    let best = -1, least = 40 ** 2;
    all.forEach(([ax, ay], i) => {
      const distance = (ax - px) ** 2 + (ay - py) ** 2;
      if (distance < least) [best, least] = [i, distance];
    });
    if (best >= 0 && best !== chosen) choose(best);
  });
  picture.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    choose(chosen + steps[event.key]);
  });
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width) requestAnimationFrame(draw);
    width = host.clientWidth;
  }).observe(host);
  return (newSpec) => {
    spec = newSpec;
    legend.replaceChildren(...spec.series.map((series) =>
      make("li", {}, make("i", { style: `background:${series.colour}` }), series.name)));
    draw();
  };
}

themeButton();
