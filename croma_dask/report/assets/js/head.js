// Title, cohort in a sentence, links, and the warnings.
const head = (() => {
  const { el, section } = dom;

  const title = (payload) => el("header", {},
    el("h1", {}, payload.title),
    payload.lead && el("p", { class: "lead" }, payload.lead),
    el("p", { class: "quiet" }, `Report made ${payload.made} by croma_dask ${payload.version}.`));

  const links = (sections) => el("nav", { "aria-label": "Sections" },
    el("ul", {}, sections.map((one) => el("li", {}, el("a", { href: `#${one.id}` }, one.querySelector("h2").textContent)))));

  function cautions(payload) {
    const list = payload.cautions;
    const made = section("warnings", list.length ? "Read this first" : "Nothing to warn about",
      list.length
        ? el("ul", {}, list.map(({ title: what, text }) => el("li", {}, el("strong", {}, what), text)))
        : el("p", {}, payload.models.length > 1
          ? `Every ${payload.words.unit} has a value, the search was exact, and the embeddings differ.`
          : `Every ${payload.words.unit} has a value, and the search was exact.`));
    if (list.length) made.classList.add("cautions");
    return made;
  }

  return { title, links, cautions };
})();
