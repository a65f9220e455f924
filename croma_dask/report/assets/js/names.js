// What single samples are called: ids and groups, of all or of the worst alone, or their rows in
// the manifest.
const names = (() => {
  /** Resolves to {id(row), group(row)}. */
  async function load(data) {
    const ids = data.ids && (await arrays.get(data.ids));
    const groupNames = data.groups && (await arrays.get(data.groups.names));
    const groupCodes = data.groups && (await arrays.get(data.groups.codes));
    const worst = data.worst && {
      rows: await arrays.get(data.worst.rows),
      ids: await arrays.get(data.worst.ids),
      groups: await arrays.get(data.worst.groups),
    };
    const manifestRows = data.rows && (await arrays.get(data.rows));
    const place = worst && new Map(Array.from(worst.rows, (row, i) => [row, i]));
    return {
      id: (row) => ids?.[row] ?? worst?.ids[place.get(row)] ?? `row ${manifestRows ? manifestRows[row] : row}`,
      group: (row) => (groupNames ? groupNames[groupCodes[row]] : worst?.groups[place.get(row)] ?? format.NONE),
    };
  }

  return { load };
})();
