// What was computed, and what the words mean.
const about = (() => {
  const { el, section } = dom;

  const list = (pairs) => el("dl", { class: "facts" }, pairs.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]));

  function make(payload) {
    const { facts, models, definitions, library } = payload.about;
    return section("about", facts.length > 0 ? "What was computed" : "About this page",
      facts.length > 0 && list(facts),
      models && table.make(models, { caption: "What differs between the models" }).element,
      definitions.length > 0 && [el("h3", {}, "What the metrics mean"), list(definitions)],
      el("p", { class: "quiet" }, library));
  }

  return { make, list };
})();
