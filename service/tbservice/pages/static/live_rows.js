// Rows of tables with new values: `<table data-live="[{id, token}]">` names the experiments that are
// running, and rows have data-experiment, in a table of runs also data-run.
// Cells: data-column="name of a column"; in lists data-value (a run and a tag), data-points, data-at.

const live = document.querySelector("[data-live]");
const pageTitle = document.title;
// As the page has it: six digits, and all of an integer.
function format(value, digits = 6) {
  if (!Number.isFinite(value) || Number.isSafeInteger(value)) return String(value);
  const number = Number(value.toPrecision(digits));
  const size = Math.abs(number);
  if (size >= 1e-4 && size < 1e6) return String(number);
  return number.toExponential().replace(/(e[+-])(\d)$/, (_, exponent, digit) => `${exponent}0${digit}`);
}
const rowsOf = ({ id }) => [...live.querySelectorAll(`tr[data-experiment="${CSS.escape(id)}"]`)];

function show(cell, text) {
  if (!cell || cell.textContent === text) return;
  (cell.querySelector("bdi") ?? cell).textContent = text;
  cell.classList.remove("changed");
  void cell.offsetWidth; // so that the animation begins again
  cell.classList.add("changed");
}

// The last value of a series, and what else of it has a column.
function showSeries(row, tag, { steps, values, replaces_from: replaced }) {
  const last = values.at(-1);
  const numbers = values.filter((value) => typeof value === "number");
  for (const cell of row.querySelectorAll("[data-column]")) {
    const name = cell.dataset.column.replace(/^metric\./, "");
    const before = Number(cell.textContent);
    if (name === tag || name === `${tag}.last`) show(cell, format(last));
    else if (name === `${tag}.last_step`) show(cell, format(steps.at(-1)));
    else if (replaced !== null || !cell.textContent) continue; // it is not the old value and the new ones
    else if (name === `${tag}.points`) show(cell, format(before + steps.length));
    else if (name === `${tag}.min`) show(cell, format(Math.min(before, ...numbers)));
    else if (name === `${tag}.max`) show(cell, format(Math.max(before, ...numbers)));
  }
  const value = row.querySelector("[data-value]");
  if (value?.dataset.tag === tag) show(value, format(last, Math.abs(last) < 1e4 ? 4 : 6));
}

function takePoints(source, { points }) {
  let step = -Infinity;
  for (const row of rowsOf(source)) {
    for (const time of row.querySelectorAll("[data-at] time")) {
      Object.assign(time, { dateTime: new Date().toISOString(), textContent: "just now", title: new Date().toLocaleString() });
    }
    const value = row.querySelector("[data-value]");
    const name = row.dataset.run ?? value?.dataset.valueRun;
    for (const [tag, series] of Object.entries(points[name] ?? {})) showSeries(row, tag, series);
  }
  for (const tags of Object.values(points)) {
    for (const { steps } of Object.values(tags)) step = Math.max(step, ...steps.slice(-1));
  }
  if (step > -Infinity) document.title = `${step.toLocaleString("en")} · ${pageTitle}`;
  refresh(source);
}

function takeStatus(source, status) {
  for (const row of rowsOf(source)) {
    showStatus(row.querySelector("[data-status]"), status);
    show(row.querySelector('[data-column="training"]'), status ?? "");
    // A run whose session has not ended: as its training did.
    const cell = row.querySelector('[data-column="status"]');
    const ended = { finished: "success", failed: "failure", killed: "failure" }[status];
    if (ended && ["running", "unknown"].includes(cell?.textContent.trim())) show(cell, ended);
  }
}

// Number of points: after new ones, at most once a second; those that come meanwhile are asked for next.
const REFRESH_MS = 900;
const asked = new Map();
async function refresh(source) {
  if (asked.has(source.id)) return void asked.set(source.id, true);
  asked.set(source.id, false);
  await Promise.all([showPoints(source), new Promise((resolve) => setTimeout(resolve, REFRESH_MS))]);
  const isOld = asked.get(source.id);
  asked.delete(source.id);
  if (isOld) refresh(source);
}

async function showPoints(source) {
  const answer = await askExperiment(source, "").catch(() => null);
  if (!answer) return;
  const { points } = await answer.json();
  for (const row of rowsOf(source)) {
    for (const cell of row.querySelectorAll("[data-points]")) {
      cell.textContent = `${points.toLocaleString("en")} point${points === 1 ? "" : "s"}`;
    }
  }
}

if (live) {
  const sources = JSON.parse(live.dataset.live).slice(0, STREAMS_MAX);
  const feeds = sources.map((source) => {
    const rows = rowsOf(source);
    const runs = rows.map((row) => row.dataset.run).filter((run) => run !== undefined);
    const query = runs.length ? { run: runs } : {};
    const take = (changes) => takePoints(source, changes);
    return new Feed(source, query, take, (status) => takeStatus(source, status));
  });
  Promise.all(feeds.map((feed) => feed.begin())).then(() =>
    whileVisible((signal) => feeds.forEach((feed) => feed.keep(signal))),
  );
}
