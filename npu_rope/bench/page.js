// The filters, chart and table of the page of npu-rope bench.
const ROWS = DATA.figures;
const KINDS = { ours: "npu_rope", peer: "peers", floor: "memory floor", call: "empty call" };
const COLOURS = { ours: colourOf(0), peer: colourOf(1), floor: colourOf(6), call: colourOf(4) };
for (const row of ROWS) {
  row.isOurs = row.kind === "ours";
  row.isWrong = row.status === "wrong" || row.status === "failed";
}
const mostOfRow = new Map();
for (const row of ROWS)
  if (row.median_us) mostOfRow.set(row.row, Math.max(mostOfRow.get(row.row) || 0, (row.median_us + row.spread * row.min_us)));
const unique = (key) => [...new Set(ROWS.map((row) => String(row[key])))];

const filters = byId("filters");
const choices = [["Rows", "group"], ["Type", "dtype"], ["Mode", "mode"], ["Threads", "threads"], ["Status", "status"]]
  .map(([label, key]) => [key, addChoice(filters, label, unique(key), update)]);
const kind = addChoice(filters, "Kind", Object.values(KINDS), update);
const words = addSearch(filters, "Text in the row or the implementation", update);
const clear = make("button", { type: "button" }, "Clear");
clear.addEventListener("click", () => {
  for (const filter of [...choices.map((choice) => choice[1]), kind, words]) filter.value = "";
  update();
});
filters.append(clear);

const showRows = dataTable(byId("figure-table"), "Figures that match the filters", [
  { title: "implementation", of: (row) => row.contestant, show: nameCell },
  { title: "row", of: (row) => row.row },
  { title: "median, µs", of: (row) => row.median_us, isNumber: true, show: barCell },
  { title: "spread", of: (row) => row.spread, isNumber: true,
    show: (row) => (row.spread === undefined ? "–" : `${Math.round(100 * row.spread)} %`) },
  { title: "x floor", of: (row) => row.ratio, isNumber: true,
    show: (row) => (row.ratio === undefined ? "–" : row.ratio.toFixed(2) + (row.disturbed ? "*" : "")) },
  { title: "ratio to ours", of: (row) => row.to_ours, isNumber: true,
    show: (row) => (row.to_ours === undefined ? "–" : row.to_ours.toFixed(2)) },
]);
const drawRatios = chart(byId("ratios"), "Time divided by the memory floor's for each row, by kind of implementation. "
  + "The table of figures has the same values.");

function nameCell(row) {
  if (row.status === "ok") return row.contestant;
  return make("span", {}, row.contestant, make("br"),
    make("span", { class: `mark ${row.isWrong ? "bad" : "warn"}` }, row.status), " ", make("small", {}, row.note));
}

// The median as a number and as a bar; the line is as long as the interquartile range.
function barCell(row) {
  if (row.median_us === undefined) return "–";
  const width = 120, scale = width / mostOfRow.get(row.row), end = row.median_us * scale;
  const half = (row.spread * row.min_us * scale) / 2;
  const bar = make("svg", { viewBox: `0 0 ${width} 12`, class: "bar-cell", "aria-hidden": "true" },
    make("rect", { x: 0, y: 2, width: Math.max(end, 1), height: 8, style: `fill:${COLOURS[row.kind]}` }),
    make("path", { d: `M${end - half} 6H${Math.min(end + half, width)}`, class: "whisker" }));
  return make("span", {}, figure(row.median_us), make("br"), bar);
}

function isChosen(row) {
  const text = words.value.toLowerCase();
  return choices.every(([key, choice]) => !choice.value || String(row[key]) === choice.value)
    && (!kind.value || KINDS[row.kind] === kind.value)
    && (!text || row.row.toLowerCase().includes(text) || row.contestant.toLowerCase().includes(text));
}

function update() {
  const rows = ROWS.filter(isChosen), order = new Map();
  for (const row of rows) if (!order.has(row.row)) order.set(row.row, order.size + 1);
  byId("count").textContent = `${rows.length.toLocaleString("en")} figures of ${order.size.toLocaleString("en")} rows match.`;
  showRows(rows);
  const measured = rows.filter((row) => row.ratio > 0), ratios = measured.map((row) => row.ratio);
  const high = Math.max(2, ...ratios), low = Math.min(1, ...ratios), isLog = high / low > 10;
  const series = Object.entries(KINDS).map(([key, name]) => ({ name, colour: COLOURS[key],
    points: measured.filter((row) => row.kind === key).map((row) => [order.get(row.row), row.ratio,
      `${row.contestant}: ${row.ratio.toFixed(2)} x the floor, ${figure(row.median_us)} µs, in ${row.row}`]) }));
  drawRatios({ series: series.filter((each) => each.points.length), limit: 1, limitText: "memory floor",
    x: { label: "row", low: 0, high: order.size + 1 },
    y: { label: "time / floor", low: isLog ? 10 ** Math.floor(Math.log10(low)) : 0,
      high: isLog ? 10 ** Math.ceil(Math.log10(high)) : high * 1.05, isLog } });
}

update();
