// A card with more runs than are drawn one by one: quantiles and density of all of them, computed by
// the server, lines of those whose box is checked, and of the one that is nearest to the cursor.

const NEAREST_RUNS_KEPT = 50;

class DistributionCard extends Card {
  near = null; // { run, step, value, series }: the run next to the cursor
  wanted = null; // { step, value }: where the cursor is
  found = new Map(); // series by name, of runs that were near
  reload = makeSeldom(() => this.load()); // after new points

  async load() {
    const { zoom } = this;
    const range = zoom ? { step_min: Math.floor(zoom.low), step_max: Math.ceil(zoom.high) } : {};
    const { skipsOutliers } = settings;
    this.query = new URLSearchParams({ tag: this.tag, where: config.where ?? "", ...range });
    try {
      const answer = await askExperiment(config.sources[0], `/scalars/distribution?${this.query}&skip_outliers=${skipsOutliers}`);
      const distribution = await answer.json();
      if (this.zoom !== zoom || settings.skipsOutliers !== skipsOutliers) return;
      this.distribution = distribution;
      this.isNew = false;
      this.show();
    } catch (error) {
      this.note.textContent = `The runs could not be loaded: ${error.message}`;
    }
  }

  // Load the runs whose boxes are checked now.
  async loadRuns() {
    const missing = config.runs.filter((_, index) => !hidden.has(index) && !this.series.has(index));
    if (!missing.length || this.isNew) return;
    const run = missing.map((each) => each.run);
    try {
      const answer = await ask(0, "data", { tag: [this.tag], downsample: POINTS_PER_RUN, run });
      for (const [name, tags] of Object.entries(await answer.json())) {
        const index = runIndex.get(`0\n${name}`);
        if (index !== undefined && Object.hasOwn(tags, this.tag)) this.series.set(index, readSeries(tags[this.tag]));
      }
      this.show();
    } catch (error) {
      this.note.textContent = `The checked runs could not be loaded: ${error.message}`;
    }
  }

  add(source, points) {
    const steps = Object.values(points).flatMap((tags) => (Object.hasOwn(tags, this.tag) ? tags[this.tag].steps : []));
    if (!steps.length || this.isNew) return -Infinity;
    // Lines that are drawn, before the rest is read again.
    const known = Object.entries(points).filter(([run]) => this.series.has(runIndex.get(`${source}\n${run}`)));
    super.add(source, Object.fromEntries(known));
    this.found.clear();
    this.reload();
    return steps.reduce((one, other) => Math.max(one, other), -Infinity);
  }

  findRanges() {
    const { steps, quantiles, density } = this.distribution;
    if (!steps.length) return null;
    this.xRange = this.zoom ? [this.zoom.low, this.zoom.high] : [steps[0], steps.at(-1)];
    this.fitLogX([steps]);
    const drawn = Object.values(quantiles).map((ys) => ({ xs: steps, ys: ys.map((y) => y ?? NaN) }));
    this.isCut = density.outside > 0;
    const lines = settings.skipsOutliers ? drawn : [...this.lines, ...drawn];
    const extent = findExtent(lines, ...this.xRange, settings.isLog);
    return extent && !settings.isLog ? [Math.min(density.low, extent[0]), Math.max(density.high, extent[1])] : extent;
  }

  whyEmpty() {
    return settings.isLog ? "No quantile is positive: there is nothing on a logarithmic axis." : "No value is finite.";
  }

  tellCounts() {
    const { runs, points } = this.distribution;
    const lines = this.lines.length ? ` · ${this.lines.length.toLocaleString("en")} drawn` : "";
    this.note.textContent = `${runs.toLocaleString("en")} runs, ${points.toLocaleString("en")} points: quantiles 5, 25, 50, 75, 95 %${lines}${this.isCut ? CUT : ""}`;
    this.element.querySelector("[data-reset]").hidden = !this.zoom;
  }

  draw(plot) {
    const { ctx, bbox } = plot;
    const { steps, quantiles } = this.distribution;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = colors[0];
    this.drawDensity(plot);
    ctx.globalAlpha = 0.16;
    this.fillBand(plot, steps, quantiles["0.05"], quantiles["0.95"]);
    this.fillBand(plot, steps, quantiles["0.25"], quantiles["0.75"]);
    for (const [quantile, values] of Object.entries(quantiles)) {
      ctx.globalAlpha = quantile === "0.5" ? 1 : 0.6;
      const line = { xs: steps, index: 0 };
      this.trace(ctx, bbox, line, values.map((y) => y ?? NaN), quantile === "0.5" ? 2 : 1);
    }
    ctx.restore();
    super.draw(plot);
  }

  // The last value of each quantile, then the runs that are drawn.
  fillTable() {
    super.fillTable();
    const { steps, quantiles } = this.distribution ?? {};
    if (!steps?.length || !this.element.querySelector("details").open) return;
    const rows = Object.entries(quantiles).map(([quantile, values]) => {
      const row = make("tr", "");
      const name = make("th", "", `${Number(quantile) * 100} % of the runs`);
      name.scope = "row";
      row.append(name, make("td", "number", steps.at(-1).toLocaleString("en")), make("td", "number", showNumber(values.at(-1) ?? NaN)), make("td", ""), make("td", ""), make("td", ""));
      return row;
    });
    this.element.querySelector("tbody").prepend(...rows);
  }

  drawDensity(plot) {
    const { edges, low, high, counts } = this.distribution.density;
    const { ctx } = plot;
    const most = counts.flat().reduce((one, other) => Math.max(one, other), 1);
    const y = (row) => plot.valToPos(low + ((high - low) * row) / counts[0].length, "y", true);
    counts.forEach((rows, column) => {
      const left = plot.valToPos(Math.max(edges[column], this.xRange[0]), "x", true);
      const right = plot.valToPos(edges[column + 1], "x", true);
      rows.forEach((count, row) => {
        const top = y(row + 1);
        const bottom = y(row);
        if (!count || !Number.isFinite(top) || !Number.isFinite(bottom)) return;
        ctx.globalAlpha = 0.05 + 0.45 * Math.sqrt(count / most);
        ctx.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
      });
    });
  }

  tell(plot) {
    if (!this.tip) return;
    const { left, top } = plot.cursor;
    this.wanted = left >= 0 ? { step: Math.round(plot.posToVal(left, "x")), value: plot.posToVal(top, "y") } : null;
    if (!this.wanted) this.near = null;
    this.showTip(plot);
    if (this.wanted) this.findNearest();
  }

  // Ask for the run at the cursor: one request at a time, the last place once more.
  async findNearest() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      while (this.wanted) {
        const { wanted } = this;
        const query = new URLSearchParams([...this.query, ...Object.entries(wanted)]);
        const near = await (await askExperiment(config.sources[0], `/scalars/nearest?${query}`)).json();
        near.series = await this.readNear(near.run);
        if (this.wanted) this.near = near;
        this.showTip(this.plot);
        if (this.wanted === wanted) return;
      }
    } catch (error) {
      this.note.textContent = `The run at the cursor was not found: ${error.message}`;
    } finally {
      this.isAsking = false;
    }
  }

  async readNear(run) {
    if (!this.found.has(run)) {
      const answer = await ask(0, "data", { tag: [this.tag], downsample: POINTS_PER_RUN, run: [run] });
      const sent = (await answer.json())[run]?.[this.tag];
      if (this.found.size >= NEAREST_RUNS_KEPT) this.found.clear();
      this.found.set(run, readSeries(sent ?? { steps: [], wall_times: [], values: [] }));
    }
    return this.found.get(run);
  }

  showTip(plot) {
    if (!plot || !this.tip) return;
    this.tip.hidden = !this.wanted;
    const { near } = this;
    const color = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
    const line = near?.series.steps.length
      ? { xs: near.series.steps, ys: smooth(near.series.values, settings.smoothing), color }
      : null;
    this.highlight(plot, line && this.wanted ? [{ line, at: nearest(line.xs, this.wanted.step) }] : []);
    if (!this.wanted) return;
    const { steps, count, quantiles } = this.distribution;
    const at = nearest(steps, this.wanted.step);
    const row = (name, text) => {
      const element = make("div", "plot-row");
      element.append(make("bdi", "", name), make("b", "", text));
      return element;
    };
    const q = (name) => showNumber(quantiles[name][at] ?? NaN);
    this.tip.replaceChildren(
      make("div", "muted", `${showX(steps[at], "step")} · ${count[at].toLocaleString("en")} runs`),
      row("Median", q("0.5")),
      row("25 to 75 %", `${q("0.25")} to ${q("0.75")}`),
      row("5 to 95 %", `${q("0.05")} to ${q("0.95")}`),
      ...(near ? [row(`Nearest: ${near.run.slice(0, 200) || "(no name)"}`, showNumber(near.value))] : []),
    );
    this.placeTip(plot);
  }

  async zoomTo(low, high) {
    if (!(high > low)) return;
    this.zoom = { low, high, series: this.series };
    await this.load();
  }

  reset() {
    this.zoom = null;
    this.load();
  }
}
