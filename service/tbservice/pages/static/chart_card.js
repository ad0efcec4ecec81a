// A card of one tag: its curves, drawn into a plot of uPlot, which has axes, cursor and selection.
// The lines are drawn here: series of a thousand runs with steps of their own have no common x.

const FAINT_RUNS_MAX = 30; // with more runs, values are not drawn behind smoothed ones
const TOLD_RUNS = 10; // runs that the cursor reads in text
const LIVE_POINTS_MAX = 4000; // points of a run, before older ones are thinned
const CUT = " · axis without outliers";
const TICK_SPACE = 68; // pixels between ticks of x, whose texts have ten letters in a narrow zoom
const SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];

function make(name, className, text = "") {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
}

class Card {
  constructor(element) {
    this.element = element;
    this.tag = config.tags[element.dataset.tag];
    this.frame = element.querySelector(".plot");
    this.note = element.querySelector(".plot-note");
    this.series = new Map(); // by position of the run
    this.zoom = null; // { low, high, series }: a range of x, and what is drawn there
    this.lines = [];
    this.isNew = true;
    this.early = null; // live points that arrive while the samples are on their way
    element.querySelector("details").addEventListener("toggle", () => this.fillTable());
    element.querySelector("[data-reset]").addEventListener("click", () => {
      this.reset();
      this.frame.focus();
    });
    const enlarge = element.querySelector("[data-enlarge]");
    enlarge.hidden = false;
    enlarge.addEventListener("click", () => {
      enlarge.setAttribute("aria-pressed", element.classList.toggle("large"));
      this.resize();
    });
  }

  // Take the samples of all sources, in their order: { run: { tag: series } }.
  take(answers) {
    this.series = new Map();
    answers.forEach((answer, source) => {
      for (const [run, tags] of Object.entries(answer)) {
        const index = runIndex.get(`${source}\n${run}`);
        if (index !== undefined && Object.hasOwn(tags, this.tag)) this.series.set(index, readSeries(tags[this.tag]));
      }
    });
    this.isNew = false;
    const early = this.early ?? [];
    this.early = null;
    for (const [source, points] of early) this.add(source, points);
    this.show();
  }

  // Add points of a live event: { run: { tag: { replaces_from, … } } }. Return the greatest step.
  add(source, points) {
    let step = -Infinity;
    this.early?.push([source, points]);
    if (this.isNew) return step;
    for (const [run, tags] of Object.entries(points)) {
      const index = runIndex.get(`${source}\n${run}`);
      if (index === undefined || !Object.hasOwn(tags, this.tag)) continue;
      const sent = tags[this.tag];
      const before = this.series.get(index) ?? { steps: [], walls: [], values: [], total: 0 };
      const merged = mergePoints(before, readSeries(sent), sent.replaces_from);
      this.series.set(index, thin(merged, LIVE_POINTS_MAX));
      step = Math.max(step, sent.steps.at(-1) ?? -Infinity);
    }
    if (step > -Infinity) this.schedule();
    return step;
  }

  schedule() {
    this.frameRequest ??= requestAnimationFrame(() => {
      this.frameRequest = null;
      this.show();
    });
  }

  // Draw what there is, with the settings of now.
  show() {
    if (this.isNew) return;
    this.makeLines();
    const extent = this.findRanges();
    this.tellCounts();
    if (!extent) {
      this.plot?.destroy();
      this.plot = null;
      this.frame.replaceChildren(make("p", "muted plot-empty", this.whyEmpty()));
      return;
    }
    this.yRange = padRange(extent, settings.isLog);
    if (this.xRange[0] === this.xRange[1]) this.xRange = this.isLogX ? padRange(this.xRange, true) : [this.xRange[0] - 1, this.xRange[1] + 1];
    const kind = `${settings.axis} ${settings.isLog} ${this.isLogX} ${isDark.matches}`;
    if (!this.plot || this.kind !== kind) this.build(kind);
    else this.plot.setData([this.xRange, this.yRange]);
    if (this.element.querySelector("details").open) this.fillTable();
  }

  makeLines() {
    const shown = this.zoom?.series ?? this.series;
    const entries = [...shown].filter(([index, { steps }]) => !hidden.has(index) && steps.length);
    this.lines = entries
      .sort(([one], [other]) => other - one) // the first run is drawn last, over the others
      .map(([index, series]) => ({
        index,
        series,
        xs: makeXs(this.zoom && settings.axis === "relative" ? fromStart(series, this.series.get(index)) : series, settings.axis),
        ys: smooth(series.values, settings.smoothing),
      }));
  }

  // Set the range of x, and return that of y; null for nothing to draw.
  findRanges() {
    const drawn = this.listDrawn();
    const edges = this.lines.flatMap(({ xs }) => [xs[0], xs[xs.length - 1]]);
    this.xRange = this.zoom ? [this.zoom.low, this.zoom.high] : [Math.min(...edges), Math.max(...edges)];
    this.fitLogX();
    const all = drawn.length ? findExtent(drawn, ...this.xRange, settings.isLog) : null;
    const extent = all && settings.skipsOutliers ? findTypicalExtent(drawn, ...this.xRange, settings.isLog) : all;
    this.isCut = Boolean(all) && (all[0] < extent[0] || all[1] > extent[1]);
    return extent;
  }

  // On a logarithmic x, begin with the first positive one; on none, or on one of dates, it is linear.
  fitLogX(columns = this.lines.map(({ xs }) => xs)) {
    const [low, high] = this.xRange;
    this.isLogX = settings.isLogX && settings.axis !== "wall" && high > 0;
    if (!this.isLogX || low > 0) return;
    const positive = columns.map((xs) => xs[lowerBound(xs, Number.MIN_VALUE)]).filter((x) => x > 0);
    this.xRange = [positive.length ? Math.min(...positive) : 1, high];
  }

  // What has to be within the axes: { xs, ys }.
  listDrawn() {
    return this.lines;
  }

  whyEmpty() {
    if (!this.series.size) return "The shown runs have no points of this tag.";
    if (!this.lines.length) return "All of its runs are hidden.";
    return settings.isLog ? "No value is positive: there is nothing on a logarithmic axis." : "No value is finite.";
  }

  tellCounts() {
    const kept = this.lines.reduce((sum, { xs }) => sum + xs.length, 0);
    const total = this.lines.reduce((sum, { index }) => sum + this.series.get(index).total, 0);
    const runs = this.lines.length === 1 ? "1 run" : `${this.lines.length.toLocaleString("en")} runs`;
    const cut = kept < total ? ` · ${kept.toLocaleString("en")} of ${total.toLocaleString("en")} points` : "";
    this.note.textContent = runs + cut + (this.isCut ? CUT : "");
    this.element.querySelector("[data-reset]").hidden = !this.zoom;
  }

  build(kind) {
    const style = readColors();
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: color("muted"), font: `11px ${getComputedStyle(document.body).fontFamily}`, grid: { stroke: color("line"), width: 1 }, ticks: { show: false } };
    this.plot?.destroy();
    this.kind = kind;
    const options = {
      ...this.size(),
      legend: { show: false },
      padding: [10, 20, 0, 0],
      scales: {
        x: { time: settings.axis === "wall", distr: this.isLogX ? 3 : 1, range: () => this.xRange },
        y: { distr: settings.isLog ? 3 : 1, range: () => this.yRange },
      },
      axes: [
        { ...axis, size: 28, ...(settings.axis === "relative" && { space: TICK_SPACE, ...(!this.isLogX && { incrs: SECONDS }), values: (_, ticks) => showTicks(ticks, showSeconds, 3) }),
          ...(settings.axis === "step" && { space: TICK_SPACE, values: (_, ticks) => showTicks(ticks, showStep, 4) }) },
        { ...axis, size: (_, texts) => 56 + 7 * Math.max(0, ...(texts ?? []).map(({ length }) => length - 8)), values: (_, ticks) => showTicks(ticks, showNumber, 4) },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => this.reset() } },
      hooks: {
        draw: [(plot) => this.draw(plot)],
        setCursor: [(plot) => this.tell(plot)],
        setSelect: [(plot) => this.select(plot)],
      },
    };
    this.frame.replaceChildren();
    this.plot = new uPlot(options, [this.xRange, this.yRange], this.frame);
    this.tip = make("div", "plot-tip");
    this.tip.hidden = true;
    this.mark = make("canvas", "plot-mark");
    this.plot.over.append(this.mark, this.tip);
    const { frame } = this;
    frame.tabIndex = 0;
    frame.setAttribute("role", "application");
    frame.setAttribute("aria-roledescription", "chart");
    frame.setAttribute("aria-label", `Curves of ${this.tag.slice(0, 200)}`);
    frame.setAttribute("aria-describedby", "chart-keys");
    frame.onkeydown = (event) => this.press(event);
    frame.onblur = () => this.unmark();
  }

  size() {
    const width = Math.max(200, this.frame.clientWidth);
    return { width, height: this.element.classList.contains("large") ? 460 : 240 };
  }

  resize() {
    if (this.plot && this.plot.width + this.plot.height !== Object.values(this.size()).reduce((sum, each) => sum + each)) this.plot.setSize(this.size());
  }

  draw(plot) {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const isFaint = settings.smoothing > 0 && this.lines.length <= FAINT_RUNS_MAX;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.lineJoin = "bevel";
    if (isFaint) {
      ctx.globalAlpha = 0.22;
      for (const line of this.lines) this.trace(ctx, plot.bbox, line, line.series.values, 1);
    }
    ctx.globalAlpha = this.lines.length > FAINT_RUNS_MAX ? 0.7 : 1;
    for (const line of this.lines) this.trace(ctx, plot.bbox, line, line.ys, this.lines.length > FAINT_RUNS_MAX ? 1 : 1.6);
    ctx.restore();
  }

  // Draw one line into a box; values that an axis does not have are gaps, single points are dots.
  trace(ctx, box, line, ys, width) {
    const { xs } = line;
    const [xScale, scale] = [this.isLogX, settings.isLog].map((isLog) => (isLog ? Math.log10 : (number) => number));
    const [xMin, xMax] = this.xRange;
    const [xLow, xHigh] = this.xRange.map(xScale);
    const [yLow, yHigh] = this.yRange.map(scale);
    const xFactor = box.width / (xHigh - xLow);
    const yFactor = box.height / (yHigh - yLow);
    const bottom = box.top + box.height;
    const first = this.isLogX ? lowerBound(xs, xMin) : Math.max(0, lowerBound(xs, xMin) - 1);
    let isDrawing = false;
    ctx.strokeStyle = ctx.fillStyle = line.color ?? colors[line.index];
    ctx.lineWidth = width * devicePixelRatio;
    ctx.beginPath();
    for (let index = first; index < xs.length; index++) {
      const y = bottom - (scale(ys[index]) - yLow) * yFactor;
      if (!Number.isFinite(y)) {
        isDrawing = false;
        continue;
      }
      const x = box.left + (xScale(xs[index]) - xLow) * xFactor;
      if (isDrawing) ctx.lineTo(x, y);
      else ctx.moveTo(x, y);
      if (!isDrawing && !Number.isFinite(scale(ys[index + 1] ?? NaN))) ctx.rect(x - 1, y - 1, 2, 2);
      isDrawing = true;
      if (xs[index] > xMax) break;
    }
    ctx.stroke();
  }

  // Fill between two columns, with gaps where either has no value; on a logarithmic axis, a lower
  // bound that is not positive is at the end of the axis.
  fillBand({ ctx, valToPos }, xs, lower, upper) {
    const place = (value, scale) => valToPos(value, scale, true);
    const isThere = (at) => (!this.isLogX || xs[at] > 0) && Number.isFinite(lower[at]) && Number.isFinite(upper[at]) && (!settings.isLog || upper[at] > 0);
    const y = (value) => place(settings.isLog && value <= 0 ? this.yRange[0] : value, "y");
    for (let start = 0; start < xs.length; start++) {
      if (!isThere(start)) continue;
      let end = start;
      while (end < xs.length && isThere(end)) end++;
      ctx.beginPath();
      for (let at = start; at < end; at++) ctx.lineTo(place(xs[at], "x"), y(upper[at]));
      for (let at = end - 1; at >= start; at--) ctx.lineTo(place(xs[at], "x"), y(lower[at]));
      ctx.fill();
      start = end;
    }
  }

  // The points nearest to the cursor, those nearest to its y first.
  read(plot) {
    const { left, top } = plot.cursor;
    const x = plot.posToVal(left, "x");
    const found = [];
    for (const line of this.lines) {
      const at = nearest(line.xs, x);
      const distance = Math.abs(plot.valToPos(line.ys[at], "y") - top);
      found.push({ line, at, distance: Number.isNaN(distance) ? Infinity : distance });
    }
    return found.sort((one, other) => one.distance - other.distance);
  }

  tell(plot) {
    if (!this.tip) return;
    const { left, top } = plot.cursor;
    const found = left >= 0 ? this.read(plot) : [];
    this.tip.hidden = !found.length;
    this.highlight(plot, found);
    const at = found[0]?.line.series?.walls[found[0].at];
    document.dispatchEvent(new CustomEvent("chart-cursor", { detail: at ?? null }));
    if (!found.length) return;
    this.fillCursor(found);
    const told = found.slice(0, TOLD_RUNS);
    const rows = told.map(({ line, at }) => {
      const row = make("div", "plot-row");
      const swatch = make("span", "swatch");
      swatch.style.background = colors[line.index];
      const name = make("bdi", "", config.runs[line.index].label.slice(0, 200) || "(no name)");
      row.append(swatch, name, make("b", "", this.showValue(line, at)));
      return row;
    });
    const more = found.length > told.length ? [make("div", "muted", `${(found.length - told.length).toLocaleString("en")} others are further away: see Values`)] : [];
    this.tip.replaceChildren(make("div", "muted", showX(told[0].line.xs[told[0].at], settings.axis)), ...rows, ...more);
    this.placeTip(plot);
  }

  showValue(line, at) {
    return showNumber(line.ys[at]);
  }

  placeTip(plot) {
    const { left, top } = plot.cursor;
    const isRight = left > plot.over.clientWidth / 2;
    this.tip.style.left = isRight ? "" : `${left + 14}px`;
    this.tip.style.right = isRight ? `${plot.over.clientWidth - left + 14}px` : "";
    this.tip.style.top = `${Math.max(0, Math.min(top - 20, plot.over.clientHeight - this.tip.offsetHeight))}px`;
  }

  // The line next to the cursor, alone on a canvas above: the others need not be drawn again.
  highlight(plot, found) {
    const { clientWidth: width, clientHeight: height } = plot.over;
    const { mark } = this;
    const ctx = mark.getContext("2d");
    const size = [Math.round(width * devicePixelRatio), Math.round(height * devicePixelRatio)];
    if (mark.width !== size[0] || mark.height !== size[1]) [mark.width, mark.height] = size;
    else ctx.clearRect(0, 0, ...size);
    if (!found.length) return;
    const box = { left: 0, top: 0, width: mark.width, height: mark.height };
    this.trace(ctx, box, found[0].line, found[0].line.ys, 2.5);
    for (const { line, at } of found.slice(0, TOLD_RUNS)) {
      const x = plot.valToPos(line.xs[at], "x") * devicePixelRatio;
      const y = plot.valToPos(line.ys[at], "y") * devicePixelRatio;
      ctx.beginPath();
      ctx.arc(x, y, 3 * devicePixelRatio, 0, 7);
      ctx.fillStyle = line.color ?? colors[line.index];
      ctx.fill();
    }
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 3) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.zoomTo(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  // Show a range of x; then load the points of its steps, which the sample of all has too few of.
  async zoomTo(low, high) {
    if (!(high > low)) return;
    this.zoom = { low, high, series: this.series };
    this.show();
    const { zoom } = this;
    try {
      await this.loadRange(zoom);
      if (this.zoom === zoom) this.show();
    } catch (error) {
      if (this.zoom === zoom) this.note.textContent = `More points could not be loaded: ${error.message}`;
    }
  }

  // The range of steps that some series have in a range of x; null for none.
  findSteps(zoom, isChosen = () => true) {
    const steps = [];
    for (const [index, series] of this.series) {
      if (!isChosen(index) || !series.steps.length) continue;
      const xs = makeXs(series, settings.axis);
      const first = Math.max(0, lowerBound(xs, zoom.low) - 1);
      const last = Math.min(xs.length - 1, lowerBound(xs, zoom.high));
      if (first <= last) steps.push(series.steps[first], series.steps[last]);
    }
    return steps.length ? { step_min: Math.min(...steps), step_max: Math.max(...steps) } : null;
  }

  async loadRange(zoom) {
    await Promise.all(config.sources.map((_, source) => this.loadSource(source, zoom)));
  }

  async loadSource(source, zoom) {
    const range = this.findSteps(zoom, (index) => config.runs[index].source === source);
    if (!range) return;
    const answer = await ask(source, "data", { tag: [this.tag], downsample: POINTS_PER_RUN, ...range, ...listRuns(source) });
    const refined = new Map(); // over what is drawn: each source has runs of its own
    for (const [run, tags] of Object.entries(await answer.json())) {
      const index = runIndex.get(`${source}\n${run}`);
      const whole = this.series.get(index);
      if (whole && Object.hasOwn(tags, this.tag)) refined.set(index, refine(whole, readSeries(tags[this.tag])));
    }
    zoom.series = new Map([...zoom.series, ...refined]);
  }

  reset() {
    this.zoom = null;
    this.show();
  }

  // Put the cursor at a step of a run, where it is drawn: else at the same step of another one.
  markStep(run, step) {
    const line = this.lines.find(({ index }) => config.runs[index].run === run) ?? this.lines[0];
    if (!this.plot || !line?.series) return;
    const at = nearest(line.series.steps, step);
    const [left, top] = [this.plot.valToPos(line.xs[at], "x"), this.plot.valToPos(line.ys[at], "y")];
    this.plot.setCursor({ left: Math.max(0, Math.min(left, this.plot.over.clientWidth)), top });
  }

  unmark() {
    this.plot?.setCursor({ left: -10, top: -10 });
  }

  press(event) {
    const plot = this.plot;
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const width = plot.over.clientWidth;
    const at = plot.cursor.left >= 0 ? plot.cursor.left : width / 2;
    const moves = { ArrowLeft: at - width / 50, ArrowRight: at + width / 50, Home: 0, End: width };
    const [low, high] = this.xRange;
    if (event.key in moves) {
      const left = Math.max(0, Math.min(width, moves[event.key]));
      plot.setCursor({ left, top: plot.over.clientHeight / 2 });
      live.textContent = this.tip.innerText.replace(/\s*\n\s*/g, ", ");
    } else if (event.key === "+" || event.key === "=") {
      const middle = plot.posToVal(at, "x");
      this.zoomTo(Math.max(low, middle - (high - low) / 4), Math.min(high, middle + (high - low) / 4));
    } else if ((event.key === "Escape" || event.key === "-" || event.key === "0") && this.zoom) this.reset();
    else return;
    event.preventDefault();
  }

  // The values at the cursor of all that is drawn, if the table is open.
  fillCursor(found) {
    if (!this.cursorCells || !this.element.querySelector("details").open) return;
    for (const { line, at } of found) {
      const cell = this.cursorCells.get(line.index);
      if (cell) cell.textContent = this.showValue(line, at);
    }
  }

  // The table below a card: what is drawn, run by run.
  fillTable() {
    if (!this.element.querySelector("details").open || this.isNew) return;
    this.cursorCells = new Map();
    const rows = [...this.lines].reverse().map(({ index, series }) => {
      const finite = series.values.filter(Number.isFinite);
      const row = make("tr", "");
      const name = make("th", "");
      name.scope = "row";
      name.append(make("bdi", "", config.runs[index].label.slice(0, 300) || "(no name)"));
      const last = series.steps.length - 1;
      const numbers = [series.values[last], finite.reduce((low, value) => Math.min(low, value), Infinity), finite.reduce((high, value) => Math.max(high, value), -Infinity)];
      this.cursorCells.set(index, make("td", "number", ""));
      row.append(name, make("td", "number", series.steps[last].toLocaleString("en")), ...numbers.map((number) => make("td", "number", finite.length || Number.isNaN(number) ? showNumber(number) : "")), this.cursorCells.get(index));
      return row;
    });
    this.element.querySelector("tbody").replaceChildren(...rows);
    if (this.plot?.cursor.left >= 0) this.fillCursor(this.read(this.plot));
  }
}

function padRange([low, high], isLog) {
  if (isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const pad = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.05;
  return [low - pad, high + pad];
}

// A part of a series with the time of the whole one's first point before it.
function fromStart(part, whole) {
  return part.walls[0] === whole.walls[0] ? part : { ...part, walls: [whole.walls[0], ...part.walls.slice(1)] };
}
