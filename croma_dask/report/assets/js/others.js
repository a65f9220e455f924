// Results of other kinds beside a score: probe sweeps and embedding benchmarks.
const others = (() => {
  const { el, section } = dom;

  /** {id, title, text, figures, tables}. */
  const make = (one) => section(one.id, one.title,
    el("p", { class: "quiet" }, one.text),
    one.figures.map(degradation.figure),
    one.tables.map((spec) => table.make(spec, { caption: spec.caption }).element),
    one.facts.length > 0 && [el("h3", {}, "What was computed"), about.list(one.facts)]);

  return { make };
})();
