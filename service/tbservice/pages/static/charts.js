// Cards with curves, in place of the plain pictures of a page: cards `<article data-tag="position">`
// in a `<section data-charts>`, which has what they show as JSON:
// { sources: [{ id, token }], runs: [{ source, run, label }], tags: [text], has_all_runs,
//   is_distribution, groups, live }: that there are more runs than are drawn, all of one source; curves of
// groups, which then are the runs; positions of the sources to follow, without it the first ones.
// Points come from the HTTP API; each source's token reads this experiment alone.

const POINTS_PER_RUN = 1000;
const POINTS_PER_REQUEST = 1_000_000;
const NOTES_MS = 30_000; // each reader has cards drawn again
const PALETTE = 10;
const STORED = "tbhub.charts";

const page = document.querySelector("[data-charts]");
const config = JSON.parse(page.dataset.charts);
const BOXES = { log: "isLog", logx: "isLogX", outliers: "skipsOutliers" }; // settings by name of a checkbox
const settings = { axis: "step", isLog: false, isLogX: false, skipsOutliers: true, smoothing: 0.6, ...readStored(), ...readAddress() };
if (config.is_distribution) settings.axis = "step";
const runIndex = new Map(config.runs.map(({ source, run }, index) => [`${source}\n${run}`, index]));
const hidden = new Set();
const isDark = matchMedia(document.getElementById("dark")?.media ?? "not all");
let colors = [];

function keepValid({ axis, smoothing, ...others }) {
  return {
    ...(["step", "relative", "wall"].includes(axis) && { axis }),
    ...Object.fromEntries(Object.values(BOXES).filter((key) => typeof others[key] === "boolean").map((key) => [key, others[key]])),
    ...(smoothing >= 0 && smoothing < 1 && { smoothing }),
  };
}

// What a view has kept.
function readAddress() {
  const query = new URLSearchParams(location.search);
  return keepValid({
    axis: query.get("axis"),
    isLog: { 0: false, 1: true }[query.get("log")],
    isLogX: { 0: false, 1: true }[query.get("logx")],
    skipsOutliers: { 0: true, 1: false }[query.get("outliers")],
    smoothing: query.has("smoothing") ? Number(query.get("smoothing")) : undefined,
  });
}

// Where views are saved, the address says what is shown, and the forms of views save it.
function writeAddress() {
  const fields = document.querySelectorAll("[data-view-query]");
  if (!fields.length) return;
  const query = new URLSearchParams(location.search);
  query.set("axis", settings.axis);
  query.set("log", settings.isLog ? "1" : "0");
  query.set("logx", settings.isLogX ? "1" : "0");
  query.set("outliers", settings.skipsOutliers ? "0" : "1");
  query.set("smoothing", settings.smoothing);
  history.replaceState(null, "", `?${query}`);
  for (const field of fields) field.value = query;
  for (const form of document.querySelectorAll("[data-view-changed]")) form.hidden = false;
}

function readStored() {
  try {
    return keepValid(JSON.parse(localStorage.getItem(STORED)) ?? {});
  } catch {
    return {}; // another version's, or the browser keeps nothing
  }
}

// The colours of the style sheet, then hues far from each other.
function readColors() {
  const style = getComputedStyle(document.documentElement);
  colors = config.runs.map((_, index) =>
    index < PALETTE
      ? style.getPropertyValue(`--run-${index}`).trim()
      : `hsl(${(index * 137.5) % 360} 60% ${isDark.matches ? 66 : 42}%)`,
  );
  for (const swatch of document.querySelectorAll("[data-swatch]")) {
    swatch.style.background = colors[swatch.dataset.swatch];
  }
  return style;
}

function ask(source, path, body, signal) {
  return askExperiment(config.sources[source], `/scalars/${path}`, { body, signal });
}

function listRuns(source) {
  return config.has_all_runs || config.is_distribution ? {} : { run: config.runs.filter((each) => each.source === source).map(({ run }) => run) };
}

const cards = [...page.querySelectorAll("[data-tag]")].map((element) => (config.groups ? new GroupsCard(element) : config.is_distribution ? new DistributionCard(element) : new Card(element)));
const live = page.querySelector("[aria-live]");
const showAll = () => cards.forEach((card) => card.schedule());

// One request for all cards of the page; with many runs, one for each card that is scrolled to.
async function load(chosen) {
  const query = { tag: chosen.map((card) => card.tag), downsample: POINTS_PER_RUN };
  for (const card of chosen) card.early = [];
  try {
    const answers = await Promise.all(
      config.sources.map(async (each, source) => (await askAgain(each, "/scalars/data", { body: { ...query, ...listRuns(source) } })).json()),
    );
    for (const card of chosen) {
      card.take(answers);
      await new Promise((resolve) => setTimeout(resolve)); // the page answers between two cards
    }
  } catch (error) {
    for (const card of chosen) Object.assign(card, { early: null }).note.textContent = `The points could not be loaded: ${error.message}`;
  }
}

function loadCards() {
  if (config.groups) return cards.forEach((card, index) => card.takeGroups(config.groups.cards[index]));
  const perRequest = Math.max(1, Math.floor(POINTS_PER_REQUEST / (config.runs.length * POINTS_PER_RUN)));
  if (perRequest >= cards.length && !config.is_distribution) return load(cards);
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      const card = cards.find(({ element }) => element === target);
      if (config.is_distribution) card.load().then(() => card.loadRuns());
      else load([card]);
    }
  }, { rootMargin: "200px" });
  cards.forEach((card) => seen.observe(card.element));
}

const followed = (config.live ?? [...config.sources.keys()]).slice(0, STREAMS_MAX);
const feeds = followed.map(
  (index) => new Feed(config.sources[index], { tag: config.tags, ...listRuns(index) }, (changes) => takeLive(index, changes), takeStatus),
);

// The badge of an experiment's own page, and that of its upload if one alone is running.
function takeStatus(status) {
  showStatus(document.querySelector(".page-head [data-status]"), status);
  const uploads = document.querySelectorAll("#uploads .live");
  if (uploads.length === 1) showStatus(uploads[0], status);
}

const title = document.title;

// Cards in notes and descriptions, also of the experiment of the page: pictures, drawn again.
const noteCards = [...document.querySelectorAll(".prose img")].filter(
  ({ src }) => new URL(src).origin === location.origin && config.sources.some(({ id }) => new URL(src).pathname.includes(id)),
);
const drawNotes = makeSeldom(async () => {
  for (const image of noteCards) {
    image.dataset.card ??= image.src;
    const answer = await fetch(image.dataset.card, { cache: "reload" });
    if (!answer.ok) continue;
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(await answer.blob());
  }
}, NOTES_MS);

function takeLive(source, { points, removed }) {
  if (removed.length) config.groups ? reloadGroups() : loadCards();
  if (!config.is_distribution && !config.groups && Object.keys(points).some((run) => !runIndex.has(`${source}\n${run}`))) page.querySelector("[data-new-runs]").hidden = false;
  const step = Math.max(...cards.map((card) => card.add(source, points)), -Infinity);
  if (noteCards.length) drawNotes();
  if (step > -Infinity) document.title = `${step.toLocaleString("en")} · ${title}`;
}

function bindControls() {
  const form = page.querySelector("[data-chart-settings]");
  form.hidden = false;
  form.elements.axis.value = settings.axis;
  form.elements.axis.disabled = Boolean(config.is_distribution);
  const boxes = Object.entries(BOXES).filter(([name]) => form.elements[name]); // a frame has not all
  for (const [name, key] of boxes) form.elements[name].checked = settings[key];
  form.elements.smoothing.value = settings.smoothing;
  const output = form.querySelector("output");
  output.textContent = settings.smoothing.toFixed(2);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    const axis = form.elements.axis.value || settings.axis;
    if (axis !== settings.axis) cards.forEach((card) => (card.zoom = null));
    const before = settings.skipsOutliers;
    for (const [name, key] of boxes) settings[key] = form.elements[name].checked;
    Object.assign(settings, { axis, smoothing: Number(form.elements.smoothing.value) });
    const isOther = settings.skipsOutliers !== before;
    output.textContent = settings.smoothing.toFixed(2);
    try {
      localStorage.setItem(STORED, JSON.stringify(settings));
    } catch {
      // The browser keeps nothing: the settings are for this page.
    }
    writeAddress();
    if (isOther && config.is_distribution) cards.filter(({ isNew }) => !isNew).forEach((card) => card.load());
    else showAll();
  });
}

// The list of runs: boxes show and hide, and the text shows those whose name has it.
function bindRuns() {
  const boxes = [...page.querySelectorAll("input[data-run]")];
  const search = page.querySelector("input[data-run-search]");
  const update = () => {
    const text = search?.value.toLowerCase() ?? "";
    hidden.clear();
    for (const box of boxes) {
      const index = Number(box.dataset.run);
      const isFound = config.runs[index].label.toLowerCase().includes(text);
      box.closest("li").hidden = !isFound;
      if (!isFound || !box.checked) hidden.add(index);
    }
    if (config.is_distribution) cards.forEach((card) => card.loadRuns());
    showAll();
  };
  for (const box of boxes) box.disabled = false;
  if (config.is_distribution) update();
  page.querySelector("[data-runs]")?.addEventListener("change", update);
  search?.addEventListener("input", update);
  if (search?.hidden) {
    search.hidden = false;
    search.form.addEventListener("submit", (event) => event.preventDefault());
  }
  for (const button of page.querySelectorAll("button[data-check]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      for (const box of boxes) if (!box.closest("li").hidden) box.checked = button.dataset.check === "all";
      update();
    });
  }
}

readColors();
bindControls();
bindRuns();
if (config.groups) loadCards(); // the page has them, and asks for what came since
Promise.all(feeds.map((feed) => feed.begin()))
  .then(() => (config.groups ? feeds.some(({ isOver }) => !isOver) && reloadGroups() : loadCards()))
  .then(() => whileVisible((signal) => feeds.forEach((feed) => feed.keep(signal))));
isDark.addEventListener("change", showAll);
new ResizeObserver(() => cards.forEach((card) => card.resize())).observe(page);
