// The degradation curve of a probe sweep: accuracy against Cramer's V, a line a test set.
const degradation = (() => {
  const { el } = dom;

  function option(chart) {
    return () => {
      const { option: common, axis } = charts.base();
      const all = chart.series.flatMap((one) => [...one.low, ...one.high]);
      if (chart.chance !== null) all.push(chart.chance);
      const series = chart.series.flatMap((one, i) => {
        const { name, type, symbol } = charts.look(i);
        const color = charts.colour(name);
        const shared = { type: "line", itemStyle: { color }, emphasis: { disabled: true } };
        // A bar at each point, the bars apart from each other.
        const bars = one.x.flatMap((x, j) => [[x, one.low[j]], [x, one.high[j]], [x, null]]);
        return [
          { ...shared, data: bars, symbol: "none", lineStyle: { color, width: 4, opacity: 0.35 }, silent: true },
          { ...shared, data: one.x.map((x, j) => [x, one.y[j]]), symbol, symbolSize: 7, lineStyle: { color, type, width: 2 } },
        ];
      });
      if (chart.chance !== null && series.length) {
        series[0].markLine = {
          silent: true, symbol: "none", data: [{ yAxis: chart.chance }],
          lineStyle: { color: charts.colour("quiet"), type: "dashed" },
          label: { formatter: "chance", position: "insideStartTop", color: charts.colour("quiet") },
        };
      }
      return {
        ...common,
        grid: { left: 62, right: 18, top: 16, bottom: 46 },
        xAxis: { ...axis, type: "value", name: "Cramer's V of the training rows", nameGap: 28, min: 0, max: 1, splitLine: { show: false } },
        yAxis: { ...axis, type: "value", name: "balanced accuracy", nameGap: 44, ...charts.round(all, { most: 1, least: 0 }) },
        series,
      };
    };
  }

  function figure(chart) {
    const drawn = charts.make(option(chart), { label: `${chart.title}: ${chart.series.map((one) => one.name).join(", ")}. The numbers are in the table below.` });
    return el("figure", {},
      el("figcaption", {}, el("h3", {}, chart.title), el("p", { class: "quiet" }, chart.text)),
      chart.series.length > 1 && charts.legend(chart.series.map((one) => one.name)),
      drawn.element);
  }

  return { figure };
})();
