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

  main.append(head.title(payload));
  const links = el("div");
  main.append(links);
  if (payload.cautions) show(head.cautions(payload));
  if (payload.summary) show(summary.make(payload));
  if (payload.explorer) {
    if (arrays.possible()) show(await explorer.make(payload));
    else show(section("explorer", "Explore the margins", el("p", { class: "notice" }, "This browser is too old to unpack the margins (it lacks DecompressionStream); the tables are complete.")));
  }
  if (payload.breakdowns) show(breakdowns.make(payload));
  for (const { id, title, text, figures } of payload.curves) show(section(id, title, text && el("p", { class: "quiet" }, text), lines.figures(figures)));
  for (const one of payload.others) show(others.make(one));
  show(about.make(payload));
  links.replaceWith(head.links(sections));
  document.documentElement.setAttribute("data-ready", "true");
})();
