// Line charts over a few values of k or m, each with the table of its numbers.
const lines = (() => {
  const { el } = dom;

  function option(chart) {
    return () => {
      const { option: common, axis } = charts.base();
      const write = (v) => (chart.percent ? `${Math.round(1000 * v) / 10} %` : String(Math.round(v * 1e6) / 1e6).replace("-", "\u2212"));
      const series = chart.series.map((one, i) => {
        const { name, type, symbol } = charts.look(i);
        const color = charts.colour(name);
        return {
          type: "line",
          name: String(i),
          data: one.y.map((y, j) => ({ value: y, symbolSize: chart.x[j] === one.mark ? 13 : 6 })),
          symbol,
          lineStyle: { color, type, width: 2 },
          itemStyle: { color },
          emphasis: { disabled: true },
          markLine: i > 0 || chart.neutral === null ? undefined : {
            silent: true, symbol: "none", label: { show: false },
            lineStyle: { color: charts.colour("ink"), type: "solid", width: 1.2 },
            data: [{ yAxis: chart.neutral }],
          },
        };
      });
      const values = chart.series.flatMap((one) => one.y).filter((v) => !format.absent(v));
      if (chart.neutral !== null) values.push(chart.neutral);
      return {
        ...common,
        grid: { left: 62, right: 16, top: 14, bottom: 46 },
        xAxis: { ...axis, type: "category", data: chart.x.map(String), name: chart.x_title, nameGap: 28 },
        yAxis: {
          ...axis, type: "value", name: chart.y_title, nameGap: 46,
          ...charts.round(values, { most: 1, least: chart.least }),
          axisLabel: { ...axis.axisLabel, formatter: write },
        },
        series,
      };
    };
  }

  function figure(chart) {
    const label = `${chart.title}: a line for each of ${format.count(chart.series.length, "model")}, over ${chart.x.join(", ")}. The numbers are in the table below.`;
    const drawn = charts.make(option(chart), { label, small: true });
    return el("figure", {},
      el("figcaption", {}, el("h3", {}, chart.title), el("p", { class: "quiet" }, chart.text)),
      chart.series.length > 1 && charts.legend(chart.series.map((one) => one.name)),
      drawn.element,
      el("details", {}, el("summary", {}, "Numbers"), table.make(chart.table, { label: chart.title }).element));
  }

  const figures = (list) => el("div", { class: "charts" }, list.map(figure));

  return { figures };
})();
