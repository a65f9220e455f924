// Statistics of ascending values, as the library defines them: quantiles by linear interpolation,
// the lower-tail mean over the values at or below the quantile, F(0) closed at zero.
const statistics = (() => {
  /** Number of values at or below x. */
  function atOrBelow(sorted, x) {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (sorted[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function quantile(sorted, p) {
    const n = sorted.length;
    if (n === 0) return NaN;
    const place = p * (n - 1);
    const i = Math.min(Math.floor(place), n - 1);
    const a = sorted[i];
    const b = sorted[Math.min(i + 1, n - 1)];
    const t = place - i;
    return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
  }

  /** Sums of the first 0, 1, 2 ... values. */
  function sums(sorted) {
    const total = new Float64Array(sorted.length + 1);
    for (let i = 0; i < sorted.length; i += 1) total[i + 1] = total[i] + sorted[i];
    return total;
  }

  /** Numbers of a view {sorted, sums}. */
  function of(view, alpha) {
    const n = view.sorted.length;
    const q = quantile(view.sorted, alpha);
    const below = n === 0 ? 0 : atOrBelow(view.sorted, q);
    return {
      n,
      median: quantile(view.sorted, 0.5),
      q,
      below,
      ltm: below === 0 ? NaN : view.sums[below] / below,
      f0: n === 0 ? NaN : atOrBelow(view.sorted, 0) / n,
    };
  }

  /** Median of the subsets' medians: CRoMa's value in a paired design. */
  function medianOfMedians(view, subsets, nSubsets) {
    const counts = new Uint32Array(nSubsets);
    for (const row of view.rows) counts[subsets[row]] += 1;
    const seen = new Uint32Array(nSubsets);
    const medians = new Float64Array(nSubsets);
    for (let i = 0; i < view.rows.length; i += 1) {
      const s = subsets[view.rows[i]];
      const n = counts[s];
      if (seen[s] === (n - 1) >> 1) medians[s] += view.sorted[i] / 2;
      if (seen[s] === n >> 1) medians[s] += view.sorted[i] / 2;
      seen[s] += 1;
    }
    const there = Array.from(medians).filter((_, s) => counts[s] > 0).sort((a, b) => a - b);
    return quantile(there, 0.5);
  }

  return { atOrBelow, quantile, sums, of, medianOfMedians };
})();
