// A card of groups of runs: a line and a band for each, computed by the server with the page, and
// again when the runs have new points. What is drawn is smoothed, what the cursor reads is exact.

const asColumn = (values) => values.map((value) => value ?? NaN);

// Ask for the curves of some tags as they are now: { names, cards }, in the order of the tags.
async function askGroups(tags, range = {}) {
  const query = new URLSearchParams(location.search);
  for (const tag of tags) query.append("metric", tag);
  for (const [name, value] of Object.entries(range)) query.set(name, value);
  const key = document.getElementById("jump")?.dataset.key; // none in a frame
  const headers = key ? { "X-Tbhub-Page": key } : {};
  const answer = await fetch(`${location.pathname}/groups?${query}`, { headers, redirect: "error" });
  if (!answer.ok) throw new Error(`the server answered with status ${answer.status}`);
  return answer.json();
}

// All cards again.
const reloadGroups = makeSeldom(async () => {
  const { names, cards: curves } = await askGroups(config.tags);
  const isOther = names.length !== config.runs.length || names.some((name, index) => name !== config.runs[index].run);
  if (isOther) page.querySelector("[data-new-runs]").hidden = false;
  else cards.forEach((card, index) => card.takeGroups(curves[index]));
});

// Series by group, of [{ group, runs, total, steps, walls, counts, center, lower, upper }].
function readGroups(curves) {
  return new Map(curves.map(({ group, center, lower, upper, walls, ...curve }) => [
    group,
    { ...curve, walls: asColumn(walls), values: asColumn(center), lower: asColumn(lower), upper: asColumn(upper) },
  ]));
}

class GroupsCard extends Card {
  takeGroups(curves) {
    this.series = readGroups(curves);
    this.isNew = !curves.length; // what the page says instead stays
    if (this.zoom) this.loadRange(this.zoom).then(() => this.show());
    else this.show();
  }

  // New points of the runs: their groups are asked for. Return the greatest step.
  add(source, points) {
    const steps = Object.values(points).flatMap((tags) => (Object.hasOwn(tags, this.tag) ? tags[this.tag].steps : []));
    if (steps.length) reloadGroups();
    return steps.reduce((one, other) => Math.max(one, other), -Infinity);
  }

  makeLines() {
    const weight = settings.smoothing;
    this.lines = [...(this.zoom?.series ?? this.series)]
      .filter(([index]) => !hidden.has(index))
      .sort(([one], [other]) => other - one)
      .map(([index, series]) => ({
        index,
        series,
        xs: makeXs(series, settings.axis),
        ys: smooth(series.values, weight),
        lower: smooth(series.lower, weight),
        upper: smooth(series.upper, weight),
      }));
  }

  listDrawn() {
    return this.lines.flatMap(({ xs, ys, lower, upper }) => [ys, lower, upper].map((column) => ({ xs, ys: column })));
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
    for (const { index, xs, lower, upper } of this.lines) {
      ctx.fillStyle = colors[index];
      this.fillBand(plot, xs, lower, upper);
    }
    ctx.globalAlpha = 0.3;
    if (settings.smoothing) for (const line of this.lines) this.trace(ctx, bbox, line, line.series.values, 1);
    ctx.globalAlpha = 1;
    for (const line of this.lines) this.trace(ctx, bbox, line, line.ys, 1.8);
    ctx.restore();
  }

  // Only groups with values there: one ends with its last run, and none is continued.
  read(plot) {
    const x = plot.posToVal(plot.cursor.left, "x");
    const found = super.read(plot);
    const near = found.map(({ line, at }) => line.xs[at]).sort((one, other) => Math.abs(one - x) - Math.abs(other - x))[0];
    return found.filter(({ line: { xs } }) => xs[0] <= near && near <= xs.at(-1));
  }

  // As in the table of groups: 0.62 ± 0.02 (4), of four runs that count at the step.
  showValue({ series: { values, lower, upper, counts } }, at) {
    const center = showNumber(values[at]);
    if (!counts[at]) return "no run counts";
    if (!Number.isFinite(upper[at])) return `${center} (${counts[at]})`;
    if (config.groups.is_deviation) return `${center} ± ${showNumber(upper[at] - values[at])} (${counts[at]})`;
    return `${center}, ${showNumber(lower[at])} to ${showNumber(upper[at])} (${counts[at]})`;
  }

  async loadRange(zoom) {
    const range = this.findSteps(zoom);
    if (!range) return;
    const { names, cards: [curves] } = await askGroups([this.tag], range);
    const series = readGroups(curves);
    for (const [index, part] of series) {
      if (names[index] !== config.runs[index]?.run) return; // there are other groups: all cards will say so
      part.start = this.series.get(index)?.walls[0];
    }
    zoom.series = series;
  }

  fillTable() {} // the page has it
}
