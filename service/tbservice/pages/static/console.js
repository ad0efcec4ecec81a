// The console below charts: a line marks its step in every card, and the cursor of a card its line.
// Both are joined by time, as the service has found the step of each line.

const consoleBox = document.querySelector(".console");
const consoleLines = consoleBox ? [...consoleBox.querySelectorAll("li[data-time]")] : [];
let isMarking = false; // a card that is marked by a line must not mark a line

function markCards(link) {
  isMarking = true;
  for (const card of cards) card.markStep(link.dataset.run, Number(link.dataset.step));
  isMarking = false;
}

function markLine(time) {
  for (const line of consoleBox.querySelectorAll(".is-marked")) line.classList.remove("is-marked");
  if (time === null || !consoleLines.length) return;
  const times = consoleLines.map((line) => Number(line.dataset.time));
  const line = consoleLines[nearest(times, time)];
  // What was printed much later or earlier is not what was printed at this point.
  if (time < times[0] - 1 || time > times[times.length - 1] + 1) return;
  line.classList.add("is-marked");
  consoleBox.scrollTop = line.offsetTop - consoleBox.offsetTop - consoleBox.clientHeight / 2;
}

if (consoleBox) {
  consoleBox.scrollTop = consoleBox.scrollHeight; // the end is what one looks for first
  document.getElementById(location.hash.slice(1))?.closest(".console li")?.scrollIntoView({ block: "nearest" });
  for (const kind of ["mouseover", "focusin"]) {
    consoleBox.addEventListener(kind, (event) => {
      const link = event.target.closest("li")?.querySelector("a[data-step]");
      if (link) markCards(link);
    });
  }
  for (const kind of ["mouseleave", "focusout"]) consoleBox.addEventListener(kind, () => cards.forEach((card) => card.unmark()));
  document.addEventListener("chart-cursor", ({ detail }) => isMarking || markLine(detail));
}
