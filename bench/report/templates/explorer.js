"use strict";
// Plots one quantity of the rows against another, one line per series, with uPlot. The address keeps what a reader chose.
(async () => {
  const root = document.querySelector(".explorer");
  if (!root) return;
  const { quantities, dimensions, notes, ...data } = await unpack(root.querySelector("script").textContent);
  const part = (name) => root.querySelector(`.${name}`);
  const [controls, plot, legend] = ["controls", "plot", "legend"].map(part);
  const EACH = "each";
  const ANY = "any";
  const SIZES = ["seq_len", "batch_size", "params", "width"]; // quantities that were not measured
  const MAX_LINES = 40;
  const MAX_TICKS = 60; // lengths beyond get round ticks
  const DASHES = [[], [9, 4], [9, 3, 2, 3], [2, 3], [14, 4], [5, 2, 1, 2]];
  const rows = notes.map((_, row) => row);
  const hidden = new Set();
  let chart = null;
  let lines = [];
  let points = []; // points of all visible lines, sorted by x
  let place = -1; // index of the point under the cursor; -1 without one

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Lengths and batch sizes in full, everything else to three digits.
  function short(value, digits = 3) {
    if (Number.isInteger(value) && Math.abs(value) < 1e4) return String(value);
    const units = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
    const [unit, size] = units.find(([, found]) => Math.abs(value) >= found) || ["", 1];
    return `${Number((value / size).toPrecision(digits))} ${unit}`.trim();
  }

  // Neighbouring ticks need enough digits to differ.
  function distinct(values) {
    const texts = [3, 4, 5, 6].map((digits) => values.map((value) => short(value, digits)));
    return texts.find((found) => new Set(found).size === values.length) || texts.at(-1);
  }

  function add(parent, tag, properties) {
    const made = Object.assign(document.createElement(tag), properties);
    parent.append(made);
    return made;
  }

  // ---- controls: they hold the whole state

  function onChange(element, event, changed) {
    element.addEventListener(event, () => {
      changed();
      history.replaceState(null, "", `#${address()}`);
    });
  }

  function addSelect(text, options, changed) {
    const select = add(add(controls, "label", { textContent: `${text} ` }), "select");
    for (const [value, name] of options) select.add(new Option(name, value));
    onChange(select, "change", changed);
    return select;
  }

  function addButton(text, changed = draw) {
    const button = add(controls, "button", { type: "button", textContent: text });
    onChange(button, "click", () => {
      press(button, !isOn(button));
      changed();
    });
    return button;
  }

  const isOn = (button) => button?.ariaPressed === "true";
  const press = (button, on) => (button.ariaPressed = String(on));
  const indexOf = (name) => quantities.findIndex((quantity) => quantity.name === name);
  const quantityOptions = quantities.map(({ label }, i) => [i, label]);
  const y = addSelect("y", quantityOptions, chooseY);
  const x = addSelect("x", quantityOptions, chooseX);
  for (const dimension of dimensions) {
    const options = [[EACH, "one line each"], [ANY, "all"], ...dimension.texts.map((text, i) => [i, text])];
    dimension.select = addSelect(dimension.label, options, () => {
      if (!chosen().length) useMostFrequent(dimension);
      if (chosen().length) return draw();
      for (const other of dimensions) if (other !== dimension) other.select.value = usual(other);
      return showFirstQuantity();
    });
  }
  const [runs, hosts] = ["run", "host"].map((found) => dimensions.find(({ name }) => name === found));
  const divisor = addSelect("divide by", [], draw);
  const logX = addButton("logarithmic x");
  const logY = addButton("logarithmic y");
  const quantityOf = (select) => quantities[Number(select.value)];

  function chooseY() {
    press(logY, quantityOf(y).log);
    drawSome();
  }

  function chooseX() {
    press(logX, quantityOf(x).log);
    // the points of one line must differ in the dimension of the x axis
    const joinedName = { seq_len: "seq_len", batch_size: "batching" }[quantityOf(x).name] || "size";
    const reset = dimensions.filter((dimension) => ![joinedName, "run", "host"].includes(dimension.name) && dimension.select.value === ANY);
    for (const { name, select } of dimensions) if (name === joinedName) select.value = ANY;
    for (const { select } of reset) select.value = "0";
    if (reset.length) useMostFrequent(runs);
    drawSome();
  }

  // Draw what is chosen; if no row has it, the most frequent choice, of the same run if possible.
  function drawSome() {
    if (!chosen().length) useMostFrequent(runs);
    if (!chosen().length) useMostFrequent();
    draw();
  }

  // The first quantity that the chosen rows have, against the first size in which they differ.
  function showFirstQuantity() {
    const measured = quantities.map(({ name }) => name).filter((name) => !SIZES.includes(name));
    const choose = (select, names, fits) => (select.value = indexOf(names.find((name) => ((select.value = indexOf(name)), fits())) || names[0]));
    x.value = indexOf(SIZES[0]);
    choose(y, measured, () => chosen().length > 0);
    choose(x, SIZES, () => new Set(chosen().map((row) => quantityOf(x).values[row])).size > 1);
    press(logY, quantityOf(y).log);
    if (chosen().length) chooseX();
    else draw();
  }

  const isFilter = ({ select }) => select.value !== EACH && select.value !== ANY;
  const passes = (dimension, row) => !isFilter(dimension) || dimension.codes[row] === Number(dimension.select.value);
  const hasValues = (row) => quantityOf(x).values[row] !== null && quantityOf(y).values[row] !== null;
  const isTimed = () => [x, y].some((select) => quantityOf(select).timed);
  const selected = () => rows.filter((row) => hasValues(row) && dimensions.every((dimension) => passes(dimension, row)));

  // Times of several hosts are not comparable: of those selected, the host with the most rows.
  function chosen() {
    const found = selected();
    if (!hosts || !isTimed()) return found;
    const host = mostFrequent(found.map((row) => hosts.codes[row]));
    return found.filter((row) => hosts.codes[row] === host);
  }

  function mostFrequent(values) {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    return [...counts].reduce((a, b) => (b[1] > a[1] ? b : a), [undefined, 0])[0];
  }

  // Set the filters to the most frequent combination of values, except the filter `kept`.
  function useMostFrequent(kept) {
    const filters = dimensions.filter((dimension) => isFilter(dimension) && dimension !== kept);
    const found = rows.filter((row) => hasValues(row) && (!kept || passes(kept, row)));
    const best = mostFrequent(found.map((row) => filters.map(({ codes }) => codes[row]).join()));
    if (best) best.split(",").forEach((code, i) => (filters[i].select.value = code));
  }

  // ---- the address

  const usual = ({ name }) => (name === "label" ? EACH : ANY);

  function address() {
    const unusual = dimensions.filter((dimension) => dimension.select.value !== usual(dimension));
    return new URLSearchParams([
      ...["y", "x"].map((axis, i) => [axis, quantityOf([y, x][i]).name]),
      ["log", (isOn(logX) ? "x" : "") + (isOn(logY) ? "y" : "")],
      ...unusual.map((dimension) => [dimension.name, isFilter(dimension) ? dimension.texts[dimension.select.value] : dimension.select.value]),
      ...(divisor.value ? [["divide", divisor.value]] : []),
      ...[...hidden].map((name) => ["hide", name]),
    ]);
  }

  // Restore what the address says; return whether it says anything.
  function restore() {
    const state = new URLSearchParams(location.hash.slice(1));
    if (!["y", ...dimensions.map(({ name }) => name)].some((name) => state.has(name))) return false;
    for (const dimension of dimensions) {
      const told = state.get(dimension.name);
      const place = dimension.texts.indexOf(told);
      dimension.select.value = [EACH, ANY].includes(told) ? told : place < 0 ? usual(dimension) : place;
    }
    hidden.clear();
    for (const name of state.getAll("hide")) hidden.add(name);
    if (indexOf(state.get("y")) < 0) {
      showFirstQuantity();
      return true;
    }
    y.value = indexOf(state.get("y"));
    x.value = Math.max(indexOf(state.get("x")), 0);
    const log = state.get("log");
    for (const [button, axis, select] of [[logX, "x", x], [logY, "y", y]]) press(button, log === null ? quantityOf(select).log : log.includes(axis));
    draw(); // lists the lines that may be divided by
    divisor.value = state.get("divide") || "";
    draw();
    return true;
  }

  // ---- lines

  // Of what tells series apart, that which concerns the quantities shown.
  const apart = () => data.parts.filter(({ only }) => !only || [x, y].some((select) => only.includes(quantityOf(select).name)));

  // A line joins rows of one series: the chosen lines, and whatever else varies besides the x axis.
  function series() {
    const split = dimensions.filter(({ select }) => select.value === EACH);
    const found = chosen();
    const sizesApart = ["seq_len", "batch_size"].includes(quantityOf(x).name);
    const varies = apart().filter(({ sizes, codes }) => (sizesApart || !sizes) && new Set(found.map((row) => codes[row])).size > 1);
    const groups = new Map();
    for (const row of found) {
      const model = split.map(({ texts, codes }) => texts[codes[row]]).join(", ");
      const key = [model, ...varies.map(({ codes }) => codes[row])].join("\n");
      if (!groups.has(key)) groups.set(key, { model, first: row, points: [] });
      const { points: known } = groups.get(key);
      const point = pointOf(row);
      if (!runs || !known.some((other) => other.x === point.x && other.y === point.y)) known.push(point); // runs may count the same cell
    }
    return styled(named([...groups.values()], varies), split);
  }

  // Lines of one name add what tells them apart.
  function named(groups, varies) {
    return groups.map((group) => {
      const twins = groups.filter(({ model }) => model === group.model);
      const told = varies.filter(({ codes }) => new Set(twins.map(({ first }) => codes[first])).size > 1);
      const names = new Set([group.model, ...told.map(({ texts, codes }) => texts[codes[group.first]])].filter(Boolean));
      return { ...group, name: [...names].join(", ") || "all rows" };
    });
  }

  // One colour per model where it has one; lines of one colour differ in dash.
  function styled(groups, split) {
    const byModel = split.length === 1 && split[0].name === "label";
    const palette = [...new Set(Object.values(data.colors)), ...data.palette];
    const used = new Map();
    return groups.map((group, i) => {
      const color = (byModel && data.colors[group.model]) || palette[i % palette.length];
      const turn = used.get(color) || 0; // of the lines before that have this colour
      used.set(color, turn + 1);
      return { ...group, color, dash: DASHES[turn % DASHES.length] };
    });
  }

  function pointOf(row) {
    const { values, low, high } = quantityOf(y);
    const isBounded = low && low[row] !== null && high[row] !== null;
    return { row, x: quantityOf(x).values[row], y: values[row], low: isBounded ? low[row] : null, high: isBounded ? high[row] : null };
  }

  // Lines that other code has measured are not divided.
  const isLike = (line, other) => apart().every(({ only, codes }) => !only || codes[line.first] === codes[other.first]);

  function divide(line, baseline) {
    if (!isLike(line, baseline)) return { ...line, points: [] };
    const below = new Map(baseline.points.map((point) => [point.x, point.y]));
    const common = line.points.filter((point) => below.get(point.x));
    return { ...line, points: common.map((point) => ({ ...point, y: point.y / below.get(point.x), low: null, high: null })) };
  }

  function draw() {
    const all = series();
    const before = divisor.value;
    divisor.replaceChildren(new Option("nothing", ""), ...all.map(({ name }) => new Option(name, name)));
    const baseline = all.find(({ name }) => name === before);
    divisor.value = baseline ? before : "";
    const isDrawn = (point) => (!isOn(logX) || point.x > 0) && (!isOn(logY) || point.y > 0);
    const kept = all.slice(0, MAX_LINES).map((line) => (baseline ? divide(line, baseline) : line));
    lines = kept.map((line) => ({ ...line, points: line.points.filter(isDrawn) }));
    part("message").textContent = [
      ...(lines.some((line) => line.points.length) ? [] : ["No row matches this selection."]),
      ...oneHost(),
      ...(all.length > MAX_LINES ? [`Shows the first ${MAX_LINES} of ${all.length} lines.`] : []),
      ...(baseline ? [`Ratios of medians at equal x, without intervals; Pair by pair${runs ? " in a report" : ""} has paired ratios with intervals.`] : []),
      ...(baseline ? withoutX(kept, baseline) : []),
      ...onlyLength(),
    ].join(" ");
    drawLegend();
    drawLines();
  }

  function withoutX(kept, baseline) {
    const lost = kept.filter((line) => !line.points.length);
    const [like, unlike] = [true, false].map((alike) => lost.filter((line) => isLike(line, baseline) === alike).map(({ name }) => name));
    return [
      ...(like.length ? [`Not shown, for lack of a point at an x of ${baseline.name}: ${like.join("; ")}.`] : []),
      ...(unlike.length ? [`Not shown, because other code measured them than ${baseline.name}: ${unlike.join("; ")}.`] : []),
    ];
  }

  function oneHost() {
    const found = hosts && isTimed() ? selected().map((row) => hosts.codes[row]) : [];
    const num = new Set(found).size;
    return num > 1 ? [`Times of ${num} hosts cannot be compared; shows ${hosts.texts[mostFrequent(found)]} only. Choose another host above.`] : [];
  }

  function onlyLength() {
    const filter = dimensions.find((dimension) => dimension.name === "seq_len" && isFilter(dimension));
    return filter && quantityOf(x).name !== "seq_len" ? [`Rows with n = ${filter.texts[filter.select.value]} only; choose n above.`] : [];
  }

  function drawLegend() {
    legend.replaceChildren();
    for (const line of lines) {
      const item = add(legend, "li");
      const label = add(item, "label");
      const box = add(label, "input", { type: "checkbox", checked: !hidden.has(line.name) });
      label.append(swatch(line));
      add(label, "span", { textContent: line.name });
      line.value = add(item, "span", { className: "value" });
      onChange(box, "change", () => {
        hidden[box.checked ? "delete" : "add"](line.name);
        drawLines();
      });
    }
  }

  // The line as it is drawn: its dash, and a point.
  function swatch({ color, dash }) {
    const draw = (parent, tag, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      parent?.append(made);
      return made;
    };
    const svg = draw(null, "svg", { class: "swatch", width: 44, height: 10, "aria-hidden": "true" });
    draw(svg, "line", { x1: 0, x2: 44, y1: 5, y2: 5, stroke: color, "stroke-width": 2, "stroke-dasharray": dash.join(" ") || "none" });
    draw(svg, "circle", { cx: 22, cy: 5, r: 3.5, fill: color });
    return svg;
  }

  // ---- drawing: uPlot shares one list of x values between all lines, so each point has its own index in it

  function drawLines() {
    const shown = lines.filter(({ name }) => !hidden.has(name));
    points = shown.flatMap((line) => line.points.map((point) => ({ ...point, line }))).sort((a, b) => a.x - b.x);
    chart?.destroy();
    chart = null;
    if (points.length) {
      const pen = ({ color, dash }) => ({ stroke: color, width: 2, dash, spanGaps: true, points: { show: true, size: 7, fill: color } });
      const invisible = { stroke: "transparent", points: { show: false } }; // extends the y axis to the intervals
      const options = {
        ...size(),
        legend: { show: false },
        cursor: { y: false, points: { show: false } },
        scales: { x: scale(isOn(logX)), y: scale(isOn(logY)) },
        axes: [axis(quantityOf(x).label, isOn(logX), true), axis(quantityOf(y).label + (divisor.value && ` / ${divisor.value}`), isOn(logY), false)],
        series: [{}, ...shown.map(pen), invisible, invisible],
        hooks: { draw: [drawIntervals], setCursor: [({ cursor }) => read(cursor.idx ?? -1)] },
      };
      const values = shown.map((line) => points.map((point) => (point.line === line ? point.y : null)));
      const bounds = ["low", "high"].map((bound) => points.map((point) => point[bound]));
      chart = new uPlot(options, [points.map((point) => point.x), ...values, ...bounds], plot);
    }
    read(-1);
  }

  const size = () => ({ width: plot.clientWidth, height: Math.min(420, Math.max(320, 0.6 * plot.clientWidth)) });
  const scale = (log) => ({ time: false, distr: log ? 3 : 1, range: (_, low, high) => (low === null ? [1, 10] : padded(low, high, log)) });

  function padded(low, high, log) {
    if (log) return [low / (high / low || 1) ** 0.06 / (low === high ? 1.5 : 1), high * (high / low) ** 0.06 * (low === high ? 1.5 : 1)];
    const margin = low === high ? Math.abs(low) / 10 || 1 : 0.06 * (high - low);
    return [low >= 0 && low < high / 2 ? 0 : low - margin, high + margin];
  }

  function axis(label, log, isX) {
    const counts = new Map();
    for (const point of points) counts.set(point.x, (counts.get(point.x) || 0) + 1);
    // where names would touch, as of 256 and 257, the length with more points has a tick, then the longer one
    const lengths = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || b - a);
    const isMeasured = isX && ["seq_len", "batch_size"].includes(quantityOf(x).name) && lengths.length <= MAX_TICKS;
    return {
      label,
      stroke: style("--ink"),
      grid: { stroke: style("--line"), width: 1 },
      ticks: { stroke: style("--line"), width: 1 },
      size: isX ? 40 : 62,
      labelSize: 22,
      splits: ({ bbox }, _, low, high) => {
        const pixels = bbox[isX ? "width" : "height"] / devicePixelRatio;
        const position = (value) => (pixels * (log ? Math.log(value / low) : value - low)) / (log ? Math.log(high / low) : high - low);
        const kept = [];
        for (const tick of (isMeasured ? lengths : ticks(low, high, log)).filter((value) => value >= low && value <= high)) {
          if (kept.every((other) => Math.abs(position(tick) - position(other)) >= (isX ? 44 : 20))) kept.push(tick);
        }
        return kept.sort((a, b) => a - b);
      },
      values: (_, found) => distinct(found),
      filter: (_, found) => found, // uPlot would omit ticks of a logarithmic axis
    };
  }

  function ticks(low, high, log) {
    if (log && high / low > 5) {
      const first = Math.floor(Math.log10(low));
      const powers = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, i) => 10 ** (first + i));
      return powers.length > 4 ? powers : powers.flatMap((power) => [power, 2 * power, 5 * power]);
    }
    const power = 10 ** Math.floor(Math.log10((high - low) / 5));
    const step = [1, 2, 2.5, 5, 10].map((multiple) => multiple * power).find((found) => found >= (high - low) / 5);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  }

  function drawIntervals({ ctx, bbox, scales, valToPos }) {
    const cap = 4 * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineWidth = 1.2 * devicePixelRatio;
    for (const { x: value, low, high, line } of points.filter((point) => point.low !== null)) {
      const across = valToPos(value, "x", true);
      const [from, to] = [low, high].map((bound) => valToPos(Math.max(bound, scales.y.min), "y", true));
      ctx.strokeStyle = line.color;
      ctx.beginPath();
      for (const [left, top, right, bottom] of [[0, from, 0, to], [-cap, from, cap, from], [-cap, to, cap, to]]) {
        ctx.moveTo(across + left, top);
        ctx.lineTo(across + right, bottom);
      }
      ctx.stroke();
    }
    ctx.restore();
  }

  // ---- values at the cursor, moved by pointer or arrow keys

  function read(index) {
    place = index;
    const at = points[index]?.x;
    part("at").textContent = index < 0 ? "" : `${quantityOf(x).label}: ${short(at)}`;
    for (const line of lines) {
      const found = points.filter((point) => point.line === line && point.x === at);
      line.value.textContent = found.map(valueText).join("; ");
    }
  }

  function valueText({ row, y: value, low, high }) {
    const unit = divisor.value ? "" : quantityOf(y).unit;
    const bounds = low === null ? "" : ` [${short(low)}, ${short(high)}]`;
    return `${`${short(value)} ${unit}`.trim()}${bounds}${notes[row] && `, ${notes[row]}`}`;
  }

  plot.addEventListener("keydown", (event) => {
    const isRight = event.key === "ArrowRight";
    if (!chart || !(isRight || event.key === "ArrowLeft")) return;
    event.preventDefault();
    const at = points[place]?.x;
    const beyond = (point) => place < 0 || (isRight ? point.x > at : point.x < at);
    const next = isRight ? points.findIndex(beyond) : points.findLastIndex(beyond);
    if (next < 0) return;
    chart.setCursor({ left: chart.valToPos(points[next].x, "x"), top: 1 }, false);
    read(next);
  });

  root.hidden = false;
  for (const dimension of dimensions) dimension.select.value = usual(dimension);
  for (const [select, name] of [[x, data.x], [y, data.y]]) select.value = indexOf(name);
  press(logY, quantityOf(y).log);
  if (runs) runs.select.value = Math.max(runs.texts.indexOf(data.run), 0);
  if (!restore()) chooseX();
  window.addEventListener("hashchange", restore);
  new ResizeObserver(() => chart?.setSize(size())).observe(plot);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
