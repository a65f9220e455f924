// Bins of ascending values. A bin is open to the left and closed to the right, and 0 is an edge:
// the bars up to it hold the samples that F(0) counts.
const histogram = (() => {
  const WIDTHS = [1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2];
  const LEAST = 20;
  const MOST = 104;

  /** Edges that cover all values of some views, the same while a filter changes. */
  function edges(views) {
    let low = 0;
    let high = 0;
    let n = 1;
    for (const { sorted } of views) {
      if (sorted.length === 0) continue;
      low = Math.min(low, sorted[0]);
      high = Math.max(high, sorted[sorted.length - 1]);
      n = Math.max(n, sorted.length);
    }
    // Few samples fill few bars.
    const most = Math.max(LEAST, Math.min(MOST, 2 * Math.sqrt(n)));
    const width = WIDTHS.find((w) => (high - low) / w <= most - 2) ?? WIDTHS[WIDTHS.length - 1];
    const first = Math.floor(low / width - 1e-9) - (low < 0 ? 0 : 1);
    const last = Math.max(Math.ceil(high / width + 1e-9), first + 2);
    return Float64Array.from({ length: last - first + 1 }, (_, i) => Math.round((first + i) * width * 1e6) / 1e6);
  }

  /** Count of each bin, and where it starts among the values. */
  function bins(sorted, at) {
    const starts = new Uint32Array(at.length);
    for (let i = 0; i < at.length; i += 1) starts[i] = i === 0 ? 0 : statistics.atOrBelow(sorted, at[i]);
    // What float32 has rounded beyond the outermost edge.
    starts[at.length - 1] = sorted.length;
    const counts = Array.from({ length: at.length - 1 }, (_, i) => starts[i + 1] - starts[i]);
    return { counts, starts };
  }

  /** Decimals that tell one edge from the next. */
  const digits = (at) => Math.max(3, Math.ceil(-Math.log10(at[1] - at[0]) - 1e-6));

  return { edges, bins, digits };
})();
