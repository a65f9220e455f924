// Put the page together, section by section, from what it carries.
(async () => {
  const { el, section } = dom;
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const main = document.getElementById("report");
  const sections = [];
  const show = (made) => {
    sections.push(made);
    main.append(made);
  };

  // Folded parts are opened on paper, and closed again behind it.
  const folded = [];
  const open = () => document.querySelectorAll("details:not([open])").forEach((one) => {
    one.open = true;
    folded.push(one);
  });
  addEventListener("beforeprint", open);
  addEventListener("afterprint", () => folded.splice(0).forEach((one) => { one.open = false; }));

  /** Show a section; one that cannot be made says so, and does not take the others with it. */
  const attempt = async (id, title, make) => {
    try {
      show(await make());
    } catch (error) {
      console.error(error);
      show(section(id, title, el("p", { class: "notice" }, `This part cannot be shown: the file may be damaged (${error.message}). The others do not depend on it.`)));
    }
  };

  main.append(head.title(payload));
  const links = el("div");
  main.append(links);
  if (payload.cautions) await attempt("warnings", "Read this first", () => head.cautions(payload));
  if (payload.summary) await attempt("summary", "Summary", () => summary.make(payload));
  if (payload.explorer) {
    if (arrays.possible()) await attempt("explorer", "Explore the margins", () => explorer.make(payload));
    else show(section("explorer", "Explore the margins", el("p", { class: "notice" }, "This browser is too old to unpack the margins (it lacks DecompressionStream); the tables are complete.")));
  }
  if (payload.breakdowns) await attempt("breakdowns", "Where it fails", () => breakdowns.make(payload));
  for (const { id, title, text, figures } of payload.curves) {
    await attempt(id, title, () => section(id, title, text && el("p", { class: "quiet" }, text), lines.figures(figures)));
  }
  for (const one of payload.others) await attempt(one.id, one.title, () => others.make(one));
  await attempt("about", "What was computed", () => about.make(payload));
  links.replaceWith(head.links(sections));
  document.documentElement.setAttribute("data-ready", "true");
})();
