// Where it fails: tables by label, confounder, cells, subset, and the worst groups.
const breakdowns = (() => {
  const { el, section, select } = dom;

  function rowsOf(one, model, m) {
    const keys = one.keys_by_model ? one.keys_by_model[model][m] : one.keys;
    const values = one.values[model][m];
    return values.map((row, i) => [...keys.map((key) => key.texts[i]), ...row]);
  }

  function make(payload) {
    const { tables, left_out: leftOut, m: every, main_m: mainM } = payload.breakdowns;
    const state = { model: payload.best, m: mainM };
    const made = tables.map((one) => {
      const keys = one.keys ?? one.keys_by_model[0][0];
      const columns = [...keys.map(({ title }) => ({ title, kind: "text" })), ...one.columns];
      const shown = table.make({ columns, rows: rowsOf(one, state.model, state.m) }, { label: one.title });
      return { one, shown };
    });
    const change = (values) => {
      Object.assign(state, values);
      made.forEach(({ one, shown }) => shown.update(rowsOf(one, state.model, state.m)));
    };
    const controls = el("div", { class: "controls row" },
      payload.models.length > 1 && select("Model", payload.models, payload.best, (model) => change({ model })).control,
      every.length > 1 && select("m", every.map(String), mainM, (m) => change({ m })).control);
    return section("breakdowns", "Where it fails",
      el("p", { class: "quiet" }, "Headings sort: press one, and again to turn the order round. Cells without a sample are left out."),
      leftOut.map((title) => el("p", { class: "notice" }, `${title}: there are too many levels for a table here; croma_dask.breakdown gives it.`)),
      controls.childElementCount > 0 && controls,
      made.map(({ one, shown }) => [el("h3", {}, one.title), one.note && el("p", { class: "quiet" }, one.note), shown.element]));
  }

  return { make };
})();
