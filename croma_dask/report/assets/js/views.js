// The margins of a model at an m under a filter, ascending: sorted once, then filtered in one pass.
const views = (() => {
  const whole = new Map();

  /** {rows, sorted, sums, values} of all samples that have a margin. */
  async function all(data, model, m) {
    const key = `${model} ${m}`;
    if (!whole.has(key)) {
      whole.set(key, arrays.get(data.margins[model][m]).then((values) => {
        const rows = order.argsort(values);
        const sorted = new values.constructor(rows.length);
        for (let i = 0; i < rows.length; i += 1) sorted[i] = values[rows[i]];
        return { rows, sorted, sums: statistics.sums(sorted), values };
      }));
    }
    return whole.get(key);
  }

  /** 1 for each sample that is meant; null for all. `filters`: [{codes, code}]. */
  function mask(n, filters) {
    if (filters.length === 0) return null;
    const kept = new Uint8Array(n).fill(1);
    for (const { codes, code } of filters) {
      for (let i = 0; i < n; i += 1) if (codes[i] !== code) kept[i] = 0;
    }
    return kept;
  }

  /** The part of a view that a mask leaves. */
  function part(view, kept) {
    if (kept === null) return view;
    const n = view.rows.length;
    const rows = new Uint32Array(n);
    const sorted = new view.sorted.constructor(n);
    let count = 0;
    for (let i = 0; i < n; i += 1) {
      const row = view.rows[i];
      if (kept[row] === 0) continue;
      rows[count] = row;
      sorted[count] = view.sorted[i];
      count += 1;
    }
    const short = sorted.subarray(0, count);
    return { rows: rows.subarray(0, count), sorted: short, sums: statistics.sums(short) };
  }

  return { all, mask, part };
})();
