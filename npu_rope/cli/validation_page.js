// The filters, charts and table of the page of npu-rope validate.
const number = (x) => (x === "inf" ? Infinity : x);
const ROWS = DATA.results.map(([i, executor, verdict, error, ratio, equal, near, message, positions]) => {
  const [suite, name, op, dtype, shape] = DATA.cases[i];
  return { suite, name, op, dtype, shape, executor, verdict, message,
    backend: DATA.executors[executor], error: number(error), ratio: number(ratio), equal: number(equal), near: number(near),
    positions: positions.map(([first, most, share]) => ({ first, error: number(most), ratio: number(share) })),
    isWrong: DATA.verdicts[verdict] === "FAIL" };
});
const unique = (key) => [...new Set(ROWS.map((row) => row[key]))];

const filters = byId("filters");
const suite = addChoice(filters, "Suite", unique("suite"), update);
const backend = addChoice(filters, "Back end", DATA.executors, update);
const dtype = addChoice(filters, "Type", unique("dtype"), update);
const verdict = addChoice(filters, "Result", DATA.verdicts, update);
const words = addSearch(filters, "Text in the name or message", update);
const clear = make("button", { type: "button" }, "Clear");
clear.addEventListener("click", () => {
  for (const filter of [suite, backend, dtype, verdict, words]) filter.value = "";
  update();
});
filters.append(clear);
const measure = make("select", {}, make("option", { value: "ratio" }, "error / bound"),
  make("option", { value: "error" }, "error"));
const hasPositions = byId("positions") !== null; // some case of rope was judged
if (hasPositions) byId("measure").append(make("label", {}, "Value", measure));
measure.addEventListener("change", update);

const showRows = dataTable(byId("case-table"), "Cases that match the filters", [
  { title: "case", of: (row) => row.name },
  { title: "suite", of: (row) => row.suite },
  { title: "back end", of: (row) => row.backend },
  { title: "result", of: (row) => row.verdict, show: resultCell },
  { title: "error / bound", of: (row) => row.ratio, isNumber: true,
    show: (row) => ratioText(row.ratio) },
  { title: "error", of: (row) => row.error, isNumber: true },
  { title: "equal bits", of: (row) => row.equal, isNumber: true, show: (row) => percent(row.equal) },
  { title: "near cpu", of: (row) => row.near, isNumber: true, show: (row) => percent(row.near) },
  { title: "type", of: (row) => row.dtype },
  { title: "shape", of: (row) => row.shape },
]);
const drawRatios = chart(byId("ratios"), "Error divided by bound of each case, by back end. The table of cases has the "
  + "same values.");
const drawPositions = hasPositions && chart(byId("positions"), "Largest error at each position, by back end.");

// A ratio that three digits round to 1 gets more digits, up to six, so that the text shows its distance from 1.
function ratioText(x) {
  const text = figure(x);
  return text !== "1" || x === 1 ? text : x.toFixed(Math.min(6, 1 + Math.ceil(-Math.log10(Math.abs(1 - x)))));
}

function percent(share) {
  return share === null ? "–" : `${(100 * share).toFixed(share === 1 ? 0 : 3)} %`;
}

function resultCell(row) {
  const mark = make("span", { class: `mark ${["good", "bad", "warn"][row.verdict]}` }, DATA.verdicts[row.verdict]);
  if (!row.message) return mark;
  return make("span", {}, mark, make("br"), make("small", {}, row.message));
}

function isChosen(row) {
  const text = words.value.toLowerCase();
  return (!suite.value || row.suite === suite.value) && (!backend.value || row.backend === backend.value)
    && (!dtype.value || row.dtype === dtype.value)
    && (!verdict.value || DATA.verdicts[row.verdict] === verdict.value)
    && (!text || row.name.toLowerCase().includes(text) || row.message.toLowerCase().includes(text));
}

// Returns the axis for these values. It is logarithmic if `isLog`, or if the values exceed 10.
function axisOf(label, values, isLog) {
  const finite = values.filter((value) => Number.isFinite(value) && value > 0);
  const high = finite.reduce((a, b) => Math.max(a, b), 0) || 1;
  if (!isLog && high <= 10) return { label, low: 0, high: Math.max(1.1, high * 1.05), isLog: false };
  const low = finite.reduce((a, b) => Math.min(a, b), high);
  return { label, low: 10 ** Math.floor(Math.log10(low)), high: 10 ** Math.ceil(Math.log10(high) + 1e-9), isLog: true };
}

function ratioSpec(rows) {
  const order = new Map();
  const measured = rows.filter((row) => row.ratio !== null);
  for (const row of measured) if (!order.has(`${row.suite} ${row.name}`)) order.set(`${row.suite} ${row.name}`, order.size + 1);
  const series = DATA.executors.map((name, i) => ({ name, colour: colourOf(i),
    points: measured.filter((row) => row.executor === i).map((row) => [order.get(`${row.suite} ${row.name}`), row.ratio,
      `${row.backend}: ${ratioText(row.ratio)} in ${row.suite}: ${row.name}`]) }));
  return { series: series.filter((each) => each.points.length), limit: 1,
    x: { label: "case", low: 0, high: Math.max(order.size, 1) + 1 },
    y: axisOf("error / bound", measured.map((row) => row.ratio), false) };
}

function positionSpec(rows) {
  const key = measure.value, values = [];
  const series = DATA.executors.map((name, i) => {
    const most = new Map();
    for (const row of rows) {
      if (row.executor !== i) continue;
      for (const at of row.positions) {
        const known = most.get(at.first);
        if (!known || at[key] > known.value) most.set(at.first, { value: at[key], name: row.name });
      }
    }
    const firsts = [...most.keys()].sort((a, b) => a - b);
    return { name, colour: colourOf(i), isLine: true, points: firsts.map((first) => {
      const { value, name: worst } = most.get(first);
      values.push(value);
      const range = first < 2 ? `position ${first}` : `positions ${first} to ${2 * first - 1}`;
      // Position 0 is drawn half a step before position 1.
      return [first || 0.5, value, `${name}: ${key === "ratio" ? ratioText(value) : figure(value)} at ${range} in ${worst}`];
    }) };
  });
  const high = Math.max(2, ...series.flatMap((each) => each.points.map(([x]) => x)));
  const ticks = [0.5];
  for (let power = 1; power <= high; power *= 4) ticks.push(power);
  const spec = { series: series.filter((each) => each.points.length),
    x: { label: "position (the first of each group)", low: 0.5, high, isLog: true, ticks,
      format: (x) => (x === 0.5 ? "0" : x >= 2 ** 20 ? `${x / 2 ** 20}Mi` : x >= 1024 ? `${x / 1024}Ki` : String(x)) },
    y: axisOf(key === "ratio" ? "error / bound" : "error", values, key === "error") };
  if (key === "ratio") spec.limit = 1;
  return spec;
}

function update() {
  const rows = ROWS.filter(isChosen);
  const cases = new Set(rows.map((row) => `${row.suite} ${row.name}`)).size;
  byId("count").textContent = `${rows.length.toLocaleString("en")} results of ${cases.toLocaleString("en")} cases match.`;
  showRows(rows);
  drawRatios(ratioSpec(rows));
  if (hasPositions) drawPositions(positionSpec(rows));
}

update();
