// The numbers that chart cards draw: points of one run as columns, smoothed, merged and found.
// Nothing here touches the page; `charts.js` draws it.

// A series is { steps, walls, values, total }: columns in step order, and how many points are stored.

const asNumber = (value) => (typeof value === "number" ? value : Number(value));

// Read one series of an answer of `/scalars/data`: "NaN" and "Infinity" become numbers.
function readSeries(sent) {
  const { steps, wall_times: walls, values } = sent;
  return { steps, walls, values: values.map(asNumber), total: sent.total ?? steps.length };
}

// Smooth as TensorBoard does: an exponential moving average without the pull of its start at 0.
// Values that are not finite stay as they are, and so does a series of equal values.
function smooth(values, weight) {
  if (!weight || values.every((value) => value === values[0])) return values;
  let last = 0;
  let debias = 1;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    last = last * weight + (1 - weight) * value;
    debias *= weight;
    return last / (1 - debias);
  });
}

// Put points into a series by their steps: those of `added` take the place of points at the same
// step, and with `from` (a step), of all from there on.
function mergePoints(series, added, from = null) {
  const { steps } = series;
  const end = from === null ? steps.length : lowerBound(steps, from);
  const merged = { steps: [], walls: [], values: [], total: series.total + added.steps.length };
  const take = (source, index) => {
    merged.steps.push(source.steps[index]);
    merged.walls.push(source.walls[index]);
    merged.values.push(source.values[index]);
  };
  let index = 0;
  for (let next = 0; next < added.steps.length; next++) {
    while (index < end && steps[index] < added.steps[next]) take(series, index++);
    if (index < end && steps[index] === added.steps[next]) index++;
    take(added, next);
  }
  while (index < end) take(series, index++);
  return merged;
}

// Replace the part of a series between the first and the last step of `part` by it.
function refine(series, part) {
  if (!part.steps.length) return series;
  const { steps, walls, values, total } = series;
  const low = lowerBound(steps, part.steps[0]);
  const high = lowerBound(steps, part.steps[part.steps.length - 1] + 1);
  const join = (whole, inner) => [...whole.slice(0, low), ...inner, ...whole.slice(high)];
  return { steps: join(steps, part.steps), walls: join(walls, part.walls), values: join(values, part.values), total };
}

// Drop every second point of the older half: what a live chart does with more than it can show.
function thin(series, pointsMax) {
  if (series.steps.length <= pointsMax) return series;
  const half = series.steps.length >> 1;
  const keep = (column) => column.filter((_, index) => index >= half || index % 2 === 0);
  return { ...series, steps: keep(series.steps), walls: keep(series.walls), values: keep(series.values) };
}

// Position of the first number that is not below `number`, in an ascending column.
function lowerBound(numbers, number) {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Position of the number that is nearest to `number`; -1 of an empty column.
function nearest(numbers, number) {
  const index = lowerBound(numbers, number);
  if (index === numbers.length) return index - 1;
  return index > 0 && number - numbers[index - 1] <= numbers[index] - number ? index - 1 : index;
}

// The x values of a series: steps, seconds since its first point, or seconds since the epoch.
function makeXs(series, axis) {
  if (axis === "step") return series.steps;
  const start = axis === "relative" ? (series.start ?? series.walls[0]) : 0;
  return series.walls.map((wall) => wall - start);
}

// Least and greatest finite y within ranges of x and y; null for none. On a logarithmic axis, positive.
function findExtent(lines, xMin, xMax, isLog, yMin = -Infinity, yMax = Infinity) {
  let low = Infinity;
  let high = -Infinity;
  for (const { xs, ys } of lines) {
    for (let index = 0; index < ys.length; index++) {
      const y = ys[index];
      if (xs[index] < xMin || xs[index] > xMax || !Number.isFinite(y) || (isLog && y <= 0) || y < yMin || y > yMax) continue;
      if (y < low) low = y;
      if (y > high) high = y;
    }
  }
  return low <= high ? [low, high] : null;
}

const PERCENTILE_VALUES_MAX = 100_000;

// The same without outliers: what is further from the values between the 5th and the 95th percentile
// than these are apart. TensorBoard cuts at the percentiles, which cuts noise and starts of curves too.
function findTypicalExtent(lines, xMin, xMax, isLog) {
  const total = lines.reduce((sum, { ys }) => sum + ys.length, 0);
  const stride = Math.ceil(total / PERCENTILE_VALUES_MAX); // to sort 10^6 values takes longer than to draw them
  const values = new Float64Array(Math.ceil(total / stride) + lines.length);
  let count = 0;
  for (const { xs, ys } of lines) {
    for (let index = 0; index < ys.length; index += stride) {
      const y = ys[index];
      if (xs[index] >= xMin && xs[index] <= xMax && Number.isFinite(y) && (!isLog || y > 0)) values[count++] = y;
    }
  }
  if (!count) return findExtent(lines, xMin, xMax, isLog);
  const sorted = values.subarray(0, count).sort();
  const low = sorted[Math.floor(0.05 * (count - 1))];
  const high = sorted[Math.ceil(0.95 * (count - 1))];
  if (low === high) return findExtent(lines, xMin, xMax, isLog);
  const [least, greatest] = isLog ? [low * (low / high), high * (high / low)] : [low - (high - low), high + (high - low)];
  return findExtent(lines, xMin, xMax, isLog, least, greatest);
}

// A number for people: with significant digits, and all of those before the point, which 12350 would hide.
function showNumber(value, digits = 4) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(size >= 1e4 ? Math.max(digits, 6) : digits)));
}

function showSeconds(seconds, digits = 3) {
  const size = Math.abs(seconds);
  const [unit, name] = size < 60 ? [1, "s"] : size < 3600 ? [60, "min"] : size < 172800 ? [3600, "h"] : [86400, "d"];
  return `${Number((seconds / unit).toPrecision(digits))} ${name}`;
}

function showStep(step, digits = 4) {
  const size = Math.abs(step);
  if (size < 1e4) return Number.isInteger(step) ? String(step) : "";
  if (size >= 1e13) return Number(step.toPrecision(digits)).toExponential();
  const [unit, name] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : [1e3, "k"];
  return `${Number((step / unit).toPrecision(digits))}${name}`;
}

// Texts of an axis by `show`, with more digits where two of them would be the same.
function showTicks(ticks, show, digits) {
  const told = ticks.filter((tick) => tick !== null && show(tick, digits));
  while (digits < 16 && new Set(told.map((tick) => show(tick, digits))).size < told.length) digits++;
  return ticks.map((tick) => (tick === null ? "" : show(tick, digits)));
}

function showX(x, axis) {
  if (axis === "wall") return new Date(x * 1000).toLocaleString();
  return axis === "relative" ? showSeconds(x) : `step ${x.toLocaleString("en")}`;
}
