// A card of groups of runs: a line and a band for each, computed by the server with the page.
// Nothing is smoothed: the statistics are exact at each step.

const asColumn = (values) => values.map((value) => value ?? NaN);

class GroupsCard extends Card {
  // Take the curves: [{ group, runs, total, steps, counts, center, lower, upper }], null for no value.
  takeGroups(curves) {
    for (const { group, center, lower, upper, ...curve } of curves) {
      this.series.set(group, { ...curve, values: asColumn(center), lower: asColumn(lower), upper: asColumn(upper), walls: [] });
    }
    this.isNew = !curves.length; // what the page says instead stays
    this.show();
  }

  makeLines() {
    this.lines = [...this.series]
      .filter(([index]) => !hidden.has(index))
      .sort(([one], [other]) => other - one)
      .map(([index, series]) => ({ index, series, xs: series.steps, ys: series.values }));
  }

  listDrawn() {
    return this.lines.flatMap(({ xs, ys, series: { lower, upper } }) => [ys, lower, upper].map((column) => ({ xs, ys: column })));
  }

  whyEmpty() {
    return this.lines.length ? super.whyEmpty() : "All of its groups are hidden.";
  }

  tellCounts() {
    const sum = (count) => this.lines.reduce((total, { series }) => total + count(series), 0);
    const [runs, kept, total] = [sum((each) => each.runs), sum(({ steps }) => steps.length), sum((each) => each.total)];
    const cut = kept < total ? ` · ${kept.toLocaleString("en")} of ${total.toLocaleString("en")} steps` : "";
    this.note.textContent = `${this.lines.length} ${this.lines.length === 1 ? "group" : "groups"} of ${runs.toLocaleString("en")} ${runs === 1 ? "run" : "runs"}${cut}${this.isCut ? CUT : ""}`;
    this.element.querySelector("[data-reset]").hidden = !this.zoom;
  }

  draw(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineJoin = "bevel";
    ctx.globalAlpha = 0.16;
    for (const { index, xs, series } of this.lines) {
      ctx.fillStyle = colors[index];
      this.fillBand(plot, xs, series.lower, series.upper);
    }
    ctx.globalAlpha = 1;
    for (const line of this.lines) this.trace(ctx, bbox, line, line.ys, 1.8);
    ctx.restore();
  }

  // Only groups with values at the step: one ends with its last run, and none is continued.
  read(plot) {
    const x = plot.posToVal(plot.cursor.left, "x");
    const found = super.read(plot);
    const steps = found.map(({ line, at }) => line.xs[at]);
    const step = steps.sort((one, other) => Math.abs(one - x) - Math.abs(other - x))[0];
    return found.filter(({ line: { xs } }) => xs[0] <= step && step <= xs.at(-1));
  }

  // As in the table of groups: 0.62 ± 0.02 (4), of four runs that count at the step.
  showValue({ series: { values, lower, upper, counts } }, at) {
    const center = showNumber(values[at]);
    if (!counts[at]) return "no run counts";
    if (!Number.isFinite(upper[at])) return `${center} (${counts[at]})`;
    if (config.groups.is_deviation) return `${center} ± ${showNumber(upper[at] - values[at])} (${counts[at]})`;
    return `${center}, ${showNumber(lower[at])} to ${showNumber(upper[at])} (${counts[at]})`;
  }

  zoomTo(low, high) {
    if (!(high > low)) return;
    this.zoom = { low, high };
    this.show();
  }

  fillTable() {} // the page has it
}
