// Comfort for our own pages; each of them works without it.

// Menus: close on a click elsewhere and on Escape, which a details element alone does not.
const menus = () => [...document.querySelectorAll("details.menu[open]")];
addEventListener("click", (event) => {
  menus().filter((menu) => !menu.contains(event.target)).forEach((menu) => (menu.open = false));
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of menus()) {
    menu.open = false;
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
  }
});

// Links with data-dialog open what they lead to as a dialog of this page, if it has that.
for (const opener of document.querySelectorAll("a[data-dialog]")) {
  const dialog = document.getElementById(opener.dataset.dialog);
  if (!dialog) continue;
  opener.setAttribute("aria-haspopup", "dialog");
  opener.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    dialog.showModal();
  });
}

// Copy buttons: `<button type="button" data-copy="id of an input" hidden>`.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).value);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 2000);
    });
  }
}

// Times: the tooltip in the reader's time zone instead of UTC.
for (const time of document.querySelectorAll("time[datetime]")) {
  time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "long", timeStyle: "long" });
}

// Times that say how long ago it was count on while a page is open: "just now" may be hours old. As
// `format_moment` says it; where this browser's clock is another than the server's, they stay.
const UNITS = { year: 31_536_000, month: 2_592_000, day: 86_400, hour: 3_600, minute: 60 };
function tellDistance(time) {
  const seconds = (Date.now() - new Date(time.dateTime)) / 1000;
  const distance = Math.abs(seconds);
  const unit = Object.keys(UNITS).find((each) => distance >= 0.99 * UNITS[each]);
  if (!unit && distance < 45) return seconds >= 0 ? "just now" : "in a moment";
  const number = unit && Math.max(1, Math.round(distance / UNITS[unit]));
  const text = unit ? `${number} ${unit}${number > 1 ? "s" : ""}` : "a minute";
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}
const times = [...document.querySelectorAll("time[datetime]")].filter((time) => tellDistance(time) === time.textContent);
setInterval(() => times.forEach((time) => (time.textContent = tellDistance(time))), 30_000);

// A form with data-submit-now is sent at once; its button is for those without this script.
document.querySelector("form[data-submit-now]")?.requestSubmit();
