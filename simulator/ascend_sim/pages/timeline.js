// The timeline: a canvas with a lane for each pipe of a core and for each buffer in UB, and a table of the spans.
const PIPE_COLOURS = { S: "--c6", V: "--c0", MTE2: "--c2", MTE3: "--c1" };
const canvas = byId("lanes"), pen = canvas.getContext("2d"), readout = byId("span");
const AXIS = 26, HEIGHT = 22, GAP = 4; // pixels: the axis, a lane, and the space below the lanes of a core
let lanes = [], whole = [0, 1], view = [0, 1], chosen = null, colours = {};

for (const lane of DATA.lanes) lane.end = Math.max(...lane.begin.slice(-64).map((_, i, all) =>
  lane.begin[lane.begin.length - all.length + i] + lane.length[lane.begin.length - all.length + i]));
const cores = [...new Set(DATA.lanes.map((lane) => lane.core))];

// Marks the instructions of the pipes that the critical path contains.
for (const core of cores) {
  const path = DATA.lanes.find((lane) => lane.core === core && lane.kind === "critical");
  if (!path) continue;
  for (const lane of DATA.lanes.filter((each) => each.core === core && each.kind === "pipe")) {
    lane.critical = new Uint8Array(lane.begin.length);
    let at = 0;
    for (let i = 0; i < lane.begin.length; ++i) {
      const end = lane.begin[i] + lane.length[i];
      while (at < path.begin.length && path.begin[at] + path.length[at] <= lane.begin[i]) ++at;
      for (let j = at; j < path.begin.length && path.begin[j] < end; ++j)
        if (path.names[j] === lane.names[i] && path.lines[j] === lane.lines[i]) lane.critical[i] = 1;
    }
  }
}

// ---- controls ----

const controls = byId("controls");
const core = addChoice(controls, "Core", cores.map(String), () => { chooseLanes(); draw(); });
core.value = String(cores.includes(DATA.slowest) ? DATA.slowest : cores[0]);
const parts = addChoice(controls, "Lanes", ["pipes", "buffers in UB"], () => { chooseLanes(); draw(); });
const words = addSearch(controls, "Highlight instructions with this text", draw);
for (const [text, action] of [["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["Whole", showWhole],
  ["Next on critical path", nextCritical]]) {
  const button = make("button", { type: "button" }, text);
  button.addEventListener("click", action);
  controls.append(button);
}

function chooseLanes() {
  const kinds = { pipes: (kind) => kind !== "ub", "buffers in UB": (kind) => kind === "ub" }[parts.value] || (() => true);
  lanes = DATA.lanes.filter((lane) => (!core.value || String(lane.core) === core.value) && kinds(lane.kind)
    && lane.kind !== "read" && lane.kind !== "write");
  let y = AXIS;
  lanes.forEach((lane, i) => {
    if (i && lanes[i - 1].core !== lane.core) y += GAP * 2;
    else if (i && lanes[i - 1].kind !== "ub" && lane.kind === "ub") y += GAP * 2;
    lane.y = y;
    y += HEIGHT;
    lane.under = DATA.lanes.find((other) => other.core === lane.core
      && other.kind === { MTE2: "read", MTE3: "write" }[lane.name]);
  });
  canvas.style.height = `${y + GAP}px`;
  whole = [0, Math.max(1, ...DATA.lanes.map((lane) => lane.end))];
  if (chosen && !lanes.includes(chosen.lane)) chosen = null;
}

function labelOf(lane) {
  const text = lane.kind === "ub" ? `UB ${(lane.address / 1024).toFixed(1)} KiB` : lane.name;
  return core.value ? text : `${lane.core}: ${text}`;
}

// ---- drawing ----

const left = () => (canvas.clientWidth < 600 ? 92 : 120);
const xOf = (tick) => left() + ((tick - view[0]) / (view[1] - view[0])) * (canvas.clientWidth - left() - 8);
const tickOf = (x) => view[0] + ((x - left()) / (canvas.clientWidth - left() - 8)) * (view[1] - view[0]);
const microseconds = (tick) => tick / DATA.ticks;

// The index of the first span that ends after the tick. Spans of a lane may overlap, but only a little.
function firstAfter(lane, tick) {
  let low = 0, high = lane.begin.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.begin[middle] + lane.length[middle] <= tick) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

function resolveColours() {
  const probe = make("span");
  document.body.append(probe);
  for (const name of ["--text", "--soft", "--line", "--card", "--bad", "--link", "--head",
    ...Array.from({ length: 8 }, (_, i) => `--c${i}`)]) {
    probe.style.color = `var(${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

function colourOfLane(lane) {
  if (lane.kind === "critical") return colours["--bad"];
  return colours[lane.kind === "ub" ? "--c5" : PIPE_COLOURS[lane.name] || "--c3"];
}

// An outline, or a line below a span that has no room for one.
function drawCriticalMark(lane, x, y, width, height) {
  pen.strokeStyle = pen.fillStyle = colours["--bad"];
  pen.lineWidth = 2;
  if (width > 8) pen.strokeRect(x + 1, y + 1, width - 3, height - 2);
  else pen.fillRect(x, y + height - 4, width, 4);
  pen.fillStyle = colourOfLane(lane);
}

// Draws the spans of a lane. A span that ends in a pixel that is drawn already is left out, so that the time depends
// on the pixels and hardly on the number of spans.
function drawSpans(lane, spans, { alpha, y, height, details }) {
  const text = words.value.toLowerCase(), right = canvas.clientWidth - 8;
  const matches = text && DATA.names.map((name) => name.toLowerCase().includes(text));
  let drawn = -1;
  pen.fillStyle = colourOfLane(lane);
  for (let i = firstAfter(spans, view[0]); i < spans.begin.length && spans.begin[i] < view[1]; ++i) {
    const from = Math.max(xOf(spans.begin[i]), left()), to = Math.min(xOf(spans.begin[i] + spans.length[i]), right);
    const isMatch = matches && details && matches[spans.names[i]];
    if (to <= drawn && !isMatch) continue;
    const width = Math.max(to - from, 1);
    pen.globalAlpha = matches && !isMatch ? alpha * 0.25 : lane.kind === "ub" && i % 2 ? alpha * 0.6 : alpha;
    pen.fillRect(from, y, width > 4 ? width - 1 : width, height);
    drawn = Math.max(drawn, Math.ceil(from + width));
    pen.globalAlpha = 1;
    if (details && lane.critical?.[i]) drawCriticalMark(lane, from, y, width, height);
    if (details && width > 44) {
      pen.save();
      pen.beginPath();
      pen.rect(from, y, width - 4, height);
      pen.clip();
      pen.fillStyle = colours["--card"];
      if (lane.kind === "ub" && i % 2) pen.fillStyle = colours["--text"];
      pen.fillText(DATA.names[spans.names[i]], from + 5, y + height / 2 + 4);
      pen.restore();
      pen.fillStyle = colourOfLane(lane);
    }
  }
  pen.globalAlpha = 1;
}

function drawAxis(width, height) {
  pen.fillStyle = colours["--soft"];
  pen.textAlign = "center";
  const ticks = linearTicks(microseconds(view[0]), microseconds(view[1]));
  ticks.forEach((tick) => {
    const x = xOf(tick * DATA.ticks);
    if (x < left() - 1 || x > width) return;
    pen.fillStyle = colours["--line"];
    pen.fillRect(Math.round(x), 18, 1, height);
    pen.fillStyle = colours["--soft"];
    pen.textAlign = x > width - 40 ? "right" : "center";
    if (width > 600 || tick === ticks[0] || ticks.indexOf(tick) % 2 === 0) pen.fillText(`${tick} µs`, x, 13);
  });
  pen.textAlign = "left";
}

function draw() {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  pen.scale(scale, scale);
  pen.font = "12px system-ui, sans-serif";
  drawAxis(width, height);
  for (const lane of lanes) {
    pen.fillStyle = chosen?.lane === lane ? colours["--link"] : colours["--text"];
    pen.fillText(labelOf(lane), 8, lane.y + 15, left() - 12);
    pen.fillStyle = colours["--line"];
    pen.fillRect(0, lane.y + HEIGHT - 1, width, 1);
    if (lane.under) drawSpans(lane, lane.under, { alpha: 0.3, y: lane.y + 1, height: HEIGHT - 3 });
    drawSpans(lane, lane, { alpha: 1, y: lane.y + 1, height: HEIGHT - 3, details: true });
  }
  if (chosen) {
    const { lane, i } = chosen, from = Math.max(xOf(lane.begin[i]), left());
    const to = Math.min(xOf(lane.begin[i] + lane.length[i]), width - 8);
    pen.strokeStyle = colours["--text"];
    pen.lineWidth = 2;
    if (to > left()) pen.strokeRect(from - 1, lane.y, Math.max(to - from, 2) + 1, HEIGHT - 1);
  }
  showTableSoon();
}

// ---- the chosen span ----

function describe({ lane, i }) {
  const cycles = (lane.length[i] / DATA.ticks) * 1e3 * DATA.clock, line = DATA.lines[lane.lines[i]];
  const words = [`Core ${lane.core}, ${lane.name}: ${DATA.names[lane.names[i]]}`, line,
    `from ${microseconds(lane.begin[i]).toFixed(4)} µs, ${microseconds(lane.length[i]).toFixed(4)} µs = ${
      Math.round(cycles).toLocaleString("en")} cycles`];
  if (lane.bytes[i]) words.push(`${lane.bytes[i].toLocaleString("en")} bytes`);
  const count = lane.count[i], noun = lane.kind === "ub" ? "use" : "repeat";
  if (count) words.push(`${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`);
  if (lane.critical?.[i]) words.push("on the critical path");
  return words.filter(Boolean).join("; ");
}

function choose(lane, i, moves) {
  chosen = { lane, i: Math.min(Math.max(i, 0), lane.begin.length - 1) };
  readout.textContent = describe(chosen);
  const begin = lane.begin[chosen.i], length = view[1] - view[0];
  if (moves && (begin < view[0] || begin + lane.length[chosen.i] > view[1]))
    setView(begin - length / 4, begin + (length * 3) / 4);
  draw();
}

function spanAt(x, y) {
  const lane = lanes.find((each) => y >= each.y && y < each.y + HEIGHT);
  if (!lane || x < left()) return null;
  const tick = tickOf(x), reach = tickOf(x + 3) - tick;
  let best = null;
  for (let i = firstAfter(lane, tick - reach); i < lane.begin.length && lane.begin[i] <= tick + reach; ++i)
    if (lane.begin[i] + lane.length[i] >= tick - reach) best = best === null || lane.begin[i] <= tick ? i : best;
  return best === null ? null : { lane, i: best };
}

function nextCritical() {
  const lane = lanes.find((each) => each.kind === "critical") || DATA.lanes.find((each) => each.kind === "critical");
  if (!lane) {
    readout.textContent = "The slowest core is not in this trace: write one with more cores (--cores 0).";
    return;
  }
  if (core.value && core.value !== String(lane.core)) core.value = String(lane.core);
  parts.value = "";
  chooseLanes();
  const length = lane.length.reduce((a, b) => Math.max(a, b), 0);
  const width = Math.min(view[1] - view[0], length * 4 || 1), now = chosen?.lane === lane ? chosen.i + 1 : 0;
  const begin = lane.begin[Math.min(now, lane.begin.length - 1)];
  setView(begin - width / 4, begin + (width * 3) / 4);
  choose(lane, now, false);
}

// ---- zoom ----

function setView(from, to) {
  const length = Math.min(Math.max(to - from, 20), whole[1] - whole[0]);
  const begin = Math.min(Math.max(from, whole[0]), whole[1] - length);
  view = [begin, begin + length];
}

function showWhole() {
  view = [...whole];
  draw();
}

function zoom(factor, tick) {
  let centre = tick ?? (view[0] + view[1]) / 2;
  if (tick === undefined && chosen) {
    const middle = chosen.lane.begin[chosen.i] + chosen.lane.length[chosen.i] / 2;
    if (middle > view[0] && middle < view[1]) centre = middle;
  }
  setView(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  draw();
}

function move(share) {
  const length = view[1] - view[0];
  setView(view[0] + share * length, view[1] + share * length);
  draw();
}

const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
canvas.addEventListener("wheel", (event) => {
  if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / 1000);
  else zoom(event.deltaY > 0 ? 1.25 : 0.8, tickOf(place(event)[0]));
}, { passive: false });
let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.focus();
  canvas.setPointerCapture(event.pointerId);
  drag = { x: place(event)[0], view: [...view] };
});
canvas.addEventListener("pointerup", () => { drag = null; });
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = place(event);
  if (drag) {
    const shift = ((drag.x - x) / (canvas.clientWidth - left() - 8)) * (drag.view[1] - drag.view[0]);
    setView(drag.view[0] + shift, drag.view[1] + shift);
    draw();
    return;
  }
  const found = spanAt(x, y);
  if (found && (found.lane !== chosen?.lane || found.i !== chosen?.i)) choose(found.lane, found.i, false);
});
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const lane = chosen?.lane || lanes[0], i = chosen?.i ?? -1;
  const nearest = (other) => (other ? choose(other, firstAfter(other, lane.begin[Math.max(i, 0)]), true) : undefined);
  const actions = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.2),
    ArrowRight: () => move(0.2), ArrowUp: () => nearest(lanes[Math.max(lanes.indexOf(lane) - 1, 0)]),
    ArrowDown: () => nearest(lanes[Math.min(lanes.indexOf(lane) + (chosen ? 1 : 0), lanes.length - 1)]),
    ",": () => choose(lane, i - 1, true), ".": () => choose(lane, i + 1, true), Home: showWhole };
  if (!(event.key in actions) || !lane) return;
  event.preventDefault();
  actions[event.key]();
});

// ---- the table of spans ----

const showSpans = dataTable(byId("span-table"), "Spans in the timeline's view, by their begin", [
  { title: "instruction", of: (row) => DATA.names[row.lane.names[row.i]] },
  { title: "core", of: (row) => row.lane.core, isNumber: true },
  { title: "lane", of: (row) => row.lane.name },
  { title: "begin, µs", of: (row) => row.lane.begin[row.i], isNumber: true,
    show: (row) => microseconds(row.lane.begin[row.i]).toFixed(4) },
  { title: "length, µs", of: (row) => row.lane.length[row.i], isNumber: true,
    show: (row) => microseconds(row.lane.length[row.i]).toFixed(4) },
  { title: "bytes", of: (row) => row.lane.bytes[row.i], isNumber: true,
    show: (row) => row.lane.bytes[row.i].toLocaleString("en") },
  { title: "repeats or uses", of: (row) => row.lane.count[row.i], isNumber: true,
    show: (row) => row.lane.count[row.i].toLocaleString("en") },
  { title: "critical", of: (row) => (row.lane.critical?.[row.i] ? "yes" : "") },
  { title: "line", of: (row) => DATA.lines[row.lane.lines[row.i]] },
]);
let timer = 0;
function showTableSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const rows = [];
    for (const lane of lanes)
      for (let i = firstAfter(lane, view[0]); i < lane.begin.length && lane.begin[i] < view[1]; ++i)
        if (lane.begin[i] + lane.length[i] > view[0]) rows.push({ lane, i });
    rows.sort((a, b) => a.lane.begin[a.i] - b.lane.begin[b.i]);
    showSpans(rows);
  }, 250);
}

resolveColours();
document.addEventListener("theme", () => { resolveColours(); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { resolveColours(); draw(); });
chooseLanes();
view = [...whole];
new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
draw();
