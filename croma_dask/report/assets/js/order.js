// Order of a vector of floats, by radix: a million float32 in some 30 ms, where a sort with a
// comparison takes a second.
const order = (() => {
  const BITS = 11;
  const SIZE = 1 << BITS;
  const SIGN = 0x80000000;

  /** Rows in the order of their keys, which are not kept; equal ones as they were. */
  function byKey(rows, keys) {
    const n = rows.length;
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

  /** Positions of the values that are not NaN, ascending; equal ones in the order of the rows. */
  function argsort(values) {
    // Of float64 two words each, the low one first.
    const words = values.BYTES_PER_ELEMENT / 4;
    const bits = new Uint32Array(values.buffer, values.byteOffset, words * values.length);
    let n = 0;
    for (let i = 0; i < values.length; i += 1) if (values[i] === values[i]) n += 1;
    let rows = new Uint32Array(n);
    for (let i = 0, j = 0; i < values.length; i += 1) if (values[i] === values[i]) rows[j++] = i;
    for (let word = 0; word < words; word += 1) {
      const high = word === words - 1;
      const keys = new Uint32Array(n);
      for (let j = 0; j < n; j += 1) {
        const i = rows[j];
        // Negative numbers run backwards in their bits; -0 is 0.
        const b = values[i] === 0 ? 0 : bits[words * i + word];
        keys[j] = values[i] < 0 ? ~b : high ? b | SIGN : b;
      }
      rows = byKey(rows, keys);
    }
    return rows;
  }

  return { argsort };
})();
