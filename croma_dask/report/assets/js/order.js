// Order of a float32 vector, by radix: a million values in some 30 ms, where a sort with a
// comparison takes a second.
const order = (() => {
  const BITS = 11;
  const SIZE = 1 << BITS;

  /** Positions of the values that are not NaN, ascending; equal ones in the order of the rows. */
  function argsort(values) {
    const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
    let n = 0;
    for (let i = 0; i < values.length; i += 1) if (values[i] === values[i]) n += 1;
    let rows = new Uint32Array(n);
    let keys = new Uint32Array(n);
    for (let i = 0, j = 0; i < values.length; i += 1) {
      if (values[i] !== values[i]) continue;
      rows[j] = i;
      // Negative numbers run backwards in their bits; -0 is 0.
      const b = values[i] === 0 ? 0 : bits[i];
      keys[j] = (b & 0x80000000 ? ~b : b | 0x80000000) >>> 0;
      j += 1;
    }
    let otherRows = new Uint32Array(n);
    let otherKeys = new Uint32Array(n);
    for (let shift = 0; shift < 32; shift += BITS) {
      const starts = new Uint32Array(SIZE + 1);
      for (let i = 0; i < n; i += 1) starts[((keys[i] >>> shift) & (SIZE - 1)) + 1] += 1;
      for (let d = 1; d <= SIZE; d += 1) starts[d] += starts[d - 1];
      for (let i = 0; i < n; i += 1) {
        const at = starts[(keys[i] >>> shift) & (SIZE - 1)]++;
        otherRows[at] = rows[i];
        otherKeys[at] = keys[i];
      }
      [rows, otherRows] = [otherRows, rows];
      [keys, otherKeys] = [otherKeys, keys];
    }
    return rows;
  }

  return { argsort };
})();
