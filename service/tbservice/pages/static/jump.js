// Ctrl-K, or Search in the header: go anywhere. Pages and the commands of this page are here; names of
// all else are asked of the server while one types (docs/decisions/0061). A combobox with a listbox:
// https://www.w3.org/WAI/ARIA/apg/patterns/combobox/ A module: its names are its own.

const CHARS_MIN = 2; // as in pages/people/jump.py
const WAIT_MS = 80; // without a key, before names are asked for
const SHOWN_MAX = 6; // pages and commands while something is typed

const jump = document.getElementById("jump");
const jumpTo = document.getElementById("jump-to");
const jumpList = document.getElementById("jump-list");
const jumpStatus = jump.querySelector("output");
let chosen = null; // the active option
let isChosenByHand = false;
let asked = null; // the request that is not answered yet

function makeOption(text, href, detail) {
  const option = document.createElement("a");
  Object.assign(option, { href, tabIndex: -1, role: "option", ariaSelected: "false" });
  option.appendChild(document.createElement("bdi")).textContent = text;
  if (detail) {
    option.append(" ");
    Object.assign(option.appendChild(document.createElement("bdi")), { className: "muted small", textContent: detail });
  }
  return option;
}

function makeGroup(label, options) {
  const group = document.createElement("div");
  group.setAttribute("role", "group");
  group.ariaLabel = label;
  const head = group.appendChild(document.createElement("div"));
  Object.assign(head, { className: "jump-label", textContent: label, ariaHidden: "true" });
  group.append(...options);
  return group;
}

// The commands of this page: its tabs, the links and menus of its head, colours, keys. What a menu of
// them does is chosen there: nothing is changed or deleted from here.
const COMMANDS = ".tabs a:not([aria-current]), .page-head .actions > a, .actions > details > summary, form.theme button";
function collectCommands() {
  const commands = new Map();
  for (const element of document.querySelectorAll(COMMANDS)) {
    if (element.closest("dialog, tbody, .pager, .menu-panel")) continue;
    const words = element.textContent.trim().replace(/\s+/g, " ");
    commands.set(element.closest(".theme") ? `Colours: ${words}` : words, element);
  }
  const options = [...commands].map(([text, element]) => {
    const option = makeOption(text, element.href ?? "#");
    option.addEventListener("click", (event) => {
      if (element.href && !element.dataset.dialog) return; // a link, also for a new tab
      event.preventDefault();
      jump.close();
      element.focus();
      element.click();
    });
    return option;
  });
  const group = makeGroup("On this page", options);
  group.dataset.commands = "";
  jumpList.querySelector("[data-commands]").replaceWith(group);
}

const shownOptions = () => [...jumpList.querySelectorAll("[role=option]:not([hidden])")];

function choose(option) {
  chosen?.setAttribute("aria-selected", "false");
  chosen = option ?? null;
  if (chosen) {
    chosen.setAttribute("aria-selected", "true");
    jumpTo.setAttribute("aria-activedescendant", chosen.id);
    chosen.scrollIntoView({ block: "nearest" });
  } else jumpTo.removeAttribute("aria-activedescendant");
}

// What is here and has each typed word at the beginning of one of its words.
function showPlaces() {
  const words = jumpTo.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const option of jumpList.querySelectorAll(":not([data-found]) > [role=option]")) {
    const name = ` ${option.textContent.toLowerCase()}`;
    const isShown = words.every((word) => name.includes(` ${word}`)) && (!words.length || shown < SHOWN_MAX);
    option.hidden = !isShown;
    shown += isShown;
  }
  showGroups();
}

function showGroups() {
  const options = shownOptions();
  jumpList.querySelectorAll("[role=option]").forEach((option, index) => (option.id = `jump-${index}`));
  for (const group of jumpList.children) group.hidden = !group.querySelector("[role=option]:not([hidden])");
  if (!isChosenByHand || !options.includes(chosen)) choose(jumpTo.value.trim() ? options[0] : null);
  jumpStatus.className = "visually-hidden";
  jumpStatus.value = options.length === 1 ? "1 place" : `${options.length} places`;
}

function showFound(groups) {
  jumpList.querySelectorAll("[data-found]").forEach((group) => group.remove());
  for (const { label, items } of groups) {
    const group = makeGroup(label, items.map(({ text, href, detail }) => makeOption(text, href, detail)));
    group.dataset.found = "";
    jumpList.append(group);
  }
  showGroups();
}

// One request at a time, for what is typed now: an older one is cancelled.
async function find() {
  asked?.abort();
  const { signal } = (asked = new AbortController());
  const q = jumpTo.value.trim();
  if (q.length < CHARS_MIN) return showFound([]);
  await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  if (signal.aborted) return;
  const experiment = location.pathname.match(/^\/experiment\/(\w+)\//)?.[1] ?? "";
  const query = new URLSearchParams({ q, experiment, ...(jump.dataset.workspace && { workspace: jump.dataset.workspace }) });
  const options = { headers: { "X-Tbhub-Page": jump.dataset.key }, signal, redirect: "error" };
  try {
    const answer = await fetch(`/jump?${query}`, options);
    if (!answer.ok) throw new Error((await answer.json()).detail);
    const { groups } = await answer.json();
    if (!signal.aborted) showFound(groups);
  } catch (error) {
    if (signal.aborted) return;
    showFound([]);
    jumpStatus.className = "hint"; // for all to see: else there would be nothing
    const reason = error instanceof TypeError ? "the server cannot be reached" : error.message;
    jumpStatus.value = `Names were not searched: ${reason}. Enter searches experiments.`;
  }
}

function open() {
  jumpTo.value = "";
  isChosenByHand = false;
  collectCommands();
  showPlaces();
  find();
  if (!jump.open) jump.showModal();
}

jumpTo.addEventListener("input", () => {
  isChosenByHand = false;
  showPlaces();
  find();
});
jumpTo.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) {
    event.preventDefault();
    const options = shownOptions();
    const place = options.indexOf(chosen);
    isChosenByHand = true;
    choose(options[(place < 0 && by < 0 ? options.length - 1 : place + by + options.length) % options.length]);
  } else if (event.key === "Enter" && chosen && !event.isComposing) {
    event.preventDefault();
    chosen.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey }));
  }
});
jump.addEventListener("close", () => asked?.abort());
jump.addEventListener("click", (event) => event.target === jump && jump.close()); // beside it
document.querySelector("[data-dialog=jump]")?.addEventListener("click", open);
addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  open();
});
