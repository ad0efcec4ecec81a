// Close the bar's menus on a click elsewhere and on Escape: a details element alone does neither.
{
  const menus = [...document.querySelectorAll("#tbhub-bar details")];
  const close = (menu) => {
    menu.open = false;
  };
  addEventListener("click", (event) => menus.filter((menu) => !menu.contains(event.target)).forEach(close), true);
  addEventListener("keydown", (event) => {
    const open = menus.find((menu) => menu.open && menu.contains(document.activeElement));
    if (event.key === "Escape" && open) {
      close(open);
      open.querySelector("summary").focus();
    }
  });
}

// Reload by itself after new data, as the page's own button does: TensorBoard's auto-reload is off by
// default, and reloads also when nothing is new. The longer nothing came, the rarer it is asked for,
// and never again after an hour. A hidden page asks for nothing.
{
  const ASK_MS_MIN = 10_000;
  const ASK_MS_MAX = 120_000;
  const OVER_MS = 3_600_000;
  let known = null;
  let changedAt = Date.now();

  const look = async () => {
    const { state, age } = await (await fetch(new URL("data/tbhub_state", location))).json();
    if (known === null) changedAt -= (age ?? 0) * 1000;
    else if (state !== known) {
      changedAt = Date.now();
      document.querySelector(".reload-button")?.click();
    }
    known = state;
  };
  const untilVisible = async () => {
    while (document.hidden) await new Promise((resolve) => addEventListener("visibilitychange", resolve, { once: true }));
  };
  const keep = async () => {
    while (Date.now() - changedAt < OVER_MS) {
      await look().catch(() => {}); // away, or refused: asked again
      await new Promise((resolve) => setTimeout(resolve, Math.min(ASK_MS_MAX, Math.max(ASK_MS_MIN, (Date.now() - changedAt) / 10))));
      await untilVisible();
    }
  };
  keep();
}

// TensorBoard's HParams dashboard fetches its columns only once: make a reload fetch them again, and
// apply them if they changed, with what was chosen for each column. It also ignores errors: show
// them, as of a filter that is wrong.
customElements.whenDefined("tf-hparams-query-pane").then(() => {
  const pane = customElements.get("tf-hparams-query-pane").prototype;
  const SHOWN_AT_ONCE = 5;
  const nameOf = ({ name }) => JSON.stringify(name);
  const columnsOf = ({ _hparams, _metrics }) => [...(_hparams ?? []), ...(_metrics ?? [])];

  const keepFilter = (filter, old) => {
    if (filter.domainDiscrete && old.domainDiscrete) {
      const unchecked = new Set(old.domainDiscrete.filter(({ checked }) => !checked).map(({ value }) => value));
      return { domainDiscrete: filter.domainDiscrete.map(({ value }) => ({ value, checked: !unchecked.has(value) })) };
    }
    const isSame = Object.keys(filter).join() === Object.keys(old).join();
    return isSame ? old : filter;
  };

  const keepChoices = (columns, before) => {
    let added = 0;
    return columns.map((column) => {
      const old = before.get(nameOf(column.info));
      return old
        ? { ...column, displayed: old.displayed, filter: keepFilter(column.filter, old.filter) }
        : { ...column, displayed: added++ < SHOWN_AT_ONCE };
    });
  };

  const apply = (self, experiment) => {
    const before = columnsOf(self);
    const sorted = before[self._sortByIndex];
    self.set("_experiment", experiment);
    self._computeHParams();
    self._computeMetrics();
    if (before.length) {
      const byName = new Map(before.map((column) => [nameOf(column.info), column]));
      self.set("_hparams", keepChoices(self._hparams, byName));
      self.set("_metrics", keepChoices(self._metrics, byName));
    }
    if (sorted) {
      const index = columnsOf(self).findIndex(({ info }) => nameOf(info) === nameOf(sorted.info));
      self._sortByIndex = index < 0 ? undefined : index;
    }
    self._queryServer();
    self._resolveGetExperiment();
    self._computeDataFound();
  };

  const reload = pane.reload;
  pane.reload = async function () {
    const request = { experimentName: this.experimentName, hparamsLimit: this._maxNumHparamsToLoad };
    const experiment = await this.backend.getExperiment(request).catch(() => this._experiment);
    if (JSON.stringify(experiment) === JSON.stringify(this._experiment)) {
      reload.call(this);
    } else {
      apply(this, experiment);
    }
  };

  const showError = (self, text) => {
    let line = self.shadowRoot.querySelector(".tbhub-error");
    if (!line) {
      line = Object.assign(document.createElement("p"), { className: "tbhub-error" });
      line.setAttribute("role", "alert");
      line.style.cssText = "color: #d32f2f; margin: 0; padding: 10px; overflow-wrap: anywhere";
      self.shadowRoot.prepend(line);
    }
    line.textContent = text;
    line.hidden = !text;
  };

  const send = pane._sendListSessionGroupsRequest;
  const never = new Promise(() => {});
  pane._sendListSessionGroupsRequest = function () {
    return (send.call(this) ?? never).then(
      (answer) => {
        showError(this, "");
        return answer;
      },
      (error) => {
        showError(this, error.req?.status === 400 ? error.req.responseText : "The table could not be loaded.");
        return never;
      },
    );
  };
});
