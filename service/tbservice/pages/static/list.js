// Lists that one works in: filters that apply at once, selection, keys. All of it works without.

// A form with data-apply-on-change needs no button.
for (const form of document.querySelectorAll("form[data-apply-on-change]")) {
  form.querySelectorAll("[data-without-script]").forEach((button) => (button.hidden = true));
  form.addEventListener("change", (event) => event.target.matches("select") && form.requestSubmit());
}

// Selection: one box for all rows, and the actions stay in sight while something is selected.
const boxes = [...document.querySelectorAll("[data-list] tbody input[type=checkbox]")];
const all = document.querySelector("[data-select-all]");
function showSelection() {
  const count = boxes.filter((box) => box.checked).length;
  all.checked = count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
  document.querySelector("[data-selection]").classList.toggle("in-sight", count > 0);
  document.querySelector("[data-selected-count]").value = count ? `${count} selected` : "";
}
if (all && boxes.length) {
  all.closest("label").hidden = false;
  all.addEventListener("change", () => {
    boxes.forEach((box) => (box.checked = all.checked));
    showSelection();
  });
  boxes.forEach((box) => box.addEventListener("change", showSelection));
  addEventListener("pageshow", showSelection); // a browser that comes back keeps what was selected
}

// Keys of a single letter can be switched off: WCAG 2.1, 2.1.4.
const OFF = "tbhub.keys-off";
const keysOn = document.getElementById("keys-on");
keysOn.checked = !localStorage.getItem(OFF);
keysOn.addEventListener("change", () => {
  if (keysOn.checked) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "1");
});

const rows = [...document.querySelectorAll("[data-list] tbody tr")];
const linkOf = (row) => row.querySelector("th a");
const currentRow = () => rows.findIndex((row) => row.contains(document.activeElement));
function move(by) {
  const next = Math.min(Math.max(currentRow() + by, 0), rows.length - 1);
  if (next >= 0) linkOf(rows[next])?.focus();
}
function toggle() {
  const box = rows[currentRow()]?.querySelector("input[type=checkbox]");
  if (box) {
    box.checked = !box.checked;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  }
}
const KEYS = {
  "/": () => document.querySelector("form[role=search] input[type=search]")?.focus(),
  "?": () => document.getElementById("keys").showModal(),
  j: () => move(1),
  k: () => move(-1),
  x: toggle,
  s: () => rows[currentRow()]?.querySelector("button.star")?.click(),
  e: () => rows[currentRow()]?.querySelector("a[data-edit]")?.click(),
};

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !keysOn.checked) return;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
