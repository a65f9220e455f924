// The histogram of the explorer: bars of the first model, its tail shaded, the second as a line.
const explorerChart = (() => {
  /** Corners of the bars, as one line with steps. */
  function steps(at, counts, from = 0, to = counts.length) {
    const points = [];
    for (let i = from; i < to; i += 1) points.push([at[i], counts[i]]);
    points.push([at[to], 0]);
    return points;
  }

  /** The same, up to x. */
  function stepsUpTo(at, counts, x) {
    const points = [];
    for (let i = 0; i < counts.length && at[i] < x; i += 1) points.push([at[i], counts[i]]);
    if (points.length) points.push([Math.min(x, at[at.length - 1]), 0]);
    return points;
  }

  const line = (x, color, text, align, extra = {}) => ({
    xAxis: x,
    lineStyle: { color, width: 2, type: "solid", ...extra },
    label: {
      show: text !== "", formatter: () => text, color, fontWeight: 600, position: "end", align,
      distance: 4, backgroundColor: charts.colour("card"), padding: [1, 3],
    },
  });

  /** Option of a state {edges, digits, first, second, units, chosen}. */
  function option(state) {
    return (width) => {
      const { option: common, axis } = charts.base();
      const { edges, first, second, digits } = state;
      const { counts } = first.bins;
      const { median, q, n } = first.numbers;
      const stepped = { type: "line", step: "end", symbol: "none", silent: true, emphasis: { disabled: true } };
      const area = (data, color) => ({ ...stepped, data, lineStyle: { width: 0 }, areaStyle: { color, opacity: 1, origin: 0 } });
      const series = [area(steps(edges, counts), charts.colour("area"))];
      const marks = [line(0, charts.colour("ink"), "", "center", { width: 1.5 })];
      if (n > 0) {
        series.push(area(stepsUpTo(edges, counts, q), charts.colour("tail")));
        // Labels lean away from each other, but never out of the chart; narrow ones have no room.
        const far = (x) => (x - edges[0]) / (edges[edges.length - 1] - edges[0]) * (width - 82);
        const text = (label, x) => (width < 500 ? "" : `${label} ${format.number(x, digits)}`);
        const crowded = far(q) < 110 && far(median) - far(q) < 130;
        marks.push(line(median, charts.colour("accent"), text("median", median), far(median) > width - 210 ? "right" : "left"));
        marks.push(line(q, charts.colour("tail"), crowded ? "" : text("quantile", q), far(q) < 110 ? "left" : "right", { type: "dashed" }));
      }
      series[0].markLine = { silent: true, symbol: "none", data: marks };
      if (state.chosen !== null) {
        series[0].markArea = {
          silent: true, itemStyle: { color: charts.colour("ink"), opacity: 0.14 },
          data: [[{ xAxis: edges[state.chosen] }, { xAxis: edges[state.chosen + 1] }]],
        };
      }
      if (second) {
        series.push({
          ...stepped, data: [[edges[0], 0], ...steps(edges, second.bins.counts)],
          lineStyle: { color: charts.colour("other"), width: 2 },
        });
      }
      return {
        ...common,
        grid: { left: width < 500 ? 52 : 64, right: 18, top: width < 500 ? 12 : 30, bottom: 46 },
        xAxis: {
          ...axis, type: "value", min: edges[0], max: edges[edges.length - 1], name: "margin", nameGap: 28,
          splitLine: { show: false },
          axisLabel: { ...axis.axisLabel, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (v) => String(Math.round(v * 1e5) / 1e5).replace("-", "\u2212") },
        },
        yAxis: {
          ...axis, type: "value", name: state.units, nameGap: width < 500 ? 38 : 48, minInterval: 1,
          axisLabel: { ...axis.axisLabel, formatter: (v) => format.integer(v) },
        },
        series,
      };
    };
  }

  return { option };
})();
