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

// TensorBoard's HParams dashboard fetches its columns only once: make a reload fetch them again,
// and apply them if they changed.
customElements.whenDefined("tf-hparams-query-pane").then(() => {
  const pane = customElements.get("tf-hparams-query-pane").prototype;
  const reload = pane.reload;
  const columns = (experiment) =>
    JSON.stringify([experiment?.hparamInfos ?? [], experiment?.metricInfos ?? []].map((infos) => infos.map((info) => info.name)));
  pane.reload = async function () {
    reload.call(this);
    const request = { experimentName: this.experimentName, hparamsLimit: this._maxNumHparamsToLoad };
    const experiment = await this.backend.getExperiment(request).catch(() => this._experiment);
    if (columns(experiment) !== columns(this._experiment)) {
      this._computeExperimentAndRelatedProps();
    }
  };
});
