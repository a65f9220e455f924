// The summary: one line a model, sentences that read it, the Pareto chart, who beats whom.
const summary = (() => {
  const { el, section, refill, select, isolated } = dom;

  function readings(list) {
    const one = list.length === 1;
    const content = el("div", { class: one ? "readings one" : list.length % 3 === 0 || list.length > 4 ? "readings three" : "readings" }, list.map(({ model, sentences }) =>
      el("div", { class: "reading" }, !one && el("h3", {}, model), el("ul", {}, sentences.map((s) => el("li", {}, s))))));
    if (list.length <= 4) return [el("h3", {}, "In words"), content];
    return [el("details", {}, el("summary", {}, "In words, model by model"), content)];
  }

  function pareto(points, { value, typical, worst }) {
    const front = points.filter((p) => p.front).map((p) => isolated(p.name)).join(", ");
    const option = () => {
      const { option: common, axis, text } = charts.base();
      const at = (wanted, extra) => ({
        type: "scatter",
        data: points.filter((p) => p.front === wanted).map((p) => ({ value: [p.value, p.tail], name: p.name })),
        symbolSize: 12,
        label: { show: true, formatter: (p) => p.name, position: "top", ...text, color: charts.colour("ink"), width: 150, overflow: "truncate" },
        labelLayout: { hideOverlap: true },
        emphasis: { disabled: true },
        ...extra,
      });
      return {
        ...common,
        grid: { left: 66, right: 30, top: 28, bottom: 46 },
        xAxis: { ...axis, type: "value", name: value, nameGap: 28, ...charts.round(points.map((p) => p.value), { most: 1, least: -1 }) },
        yAxis: { ...axis, type: "value", name: "lower-tail mean", nameGap: 48, ...charts.round(points.map((p) => p.tail), { most: 1, least: -1 }) },
        series: [
          at(true, { symbol: "circle", itemStyle: { color: charts.colour("accent") } }),
          at(false, { symbol: "circle", itemStyle: { color: charts.colour("card"), borderColor: charts.colour("quiet"), borderWidth: 2 } }),
        ],
      };
    };
    const drawn = charts.make(option, { label: `Lower-tail mean against value of each model. On the Pareto front: ${front}. The numbers are in the table above.` });
    return el("figure", { class: "narrow" },
      el("figcaption", {}, el("h3", {}, `Typical and worst ${worst}`),
        el("p", { class: "quiet" }, `To the right: better for ${typical}. Up: better for the worst. Filled: on the Pareto front.`)),
      drawn.element);
  }

  function pairs(list, names) {
    let chosen = 0;
    const holder = el("div");
    const draw = () => {
      const { better, difference, low, high, title } = list[chosen];
      const columns = [{ title: "Model", kind: "text" }, ...names.map((name) => ({ title: `beats ${isolated(name)}`, kind: "versus" }))];
      const rows = names.map((name, i) => [name, ...names.map((_, j) => (i === j ? null : [better[i][j], difference[i][j], low[i][j], high[i][j]]))]);
      refill(holder, table.make({ columns, rows }, { caption: `${title}: in how many of the draws the model of the line beats that of the column (1: in all), neighbours held fixed; below it the difference, and the interval of the difference` }).element);
    };
    draw();
    const { control } = select("Compare by", list.map((one) => one.title), 0, (i) => { chosen = i; draw(); });
    return [
      el("h3", {}, "Which model beats which"),
      el("p", { class: "quiet" }, "How often the model of a line is better than that of a column when the groups are drawn again; 0.5 is a tie. Where the interval of the difference includes 0, the cohort does not tell."),
      el("div", { class: "controls row" }, control),
      holder,
    ];
  }

  function make(payload) {
    const { summary: shown } = payload;
    return section("summary", "Summary",
      el("p", { class: "quiet" }, shown.text),
      table.make(shown.table, { caption: shown.caption }).element,
      shown.more.columns.length > 1 && table.make(shown.more, { caption: shown.more.caption }).element,
      readings(shown.readings),
      shown.pareto.length > 1 && pareto(shown.pareto, shown.axes),
      shown.pairs.length > 0 && pairs(shown.pairs, payload.models));
  }

  return { make };
})();
