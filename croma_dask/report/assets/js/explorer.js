// The explorer: controls, live numbers, histogram, the worst samples under the filter.
const explorer = (() => {
  const { el, section, select, refill, freshId, isolated } = dom;
  const EXAMPLES = 5;
  const WORST = 12;

  function alphaControl(value, onChange) {
    const id = freshId("alpha");
    // The result's own alpha is always within reach.
    const [least, most] = [Math.min(0.01, value), Math.max(0.5, value)];
    const clip = (x) => Math.min(most, Math.max(least, x));
    const range = el("input", { type: "range", id, min: least, max: most, step: "0.01", on: { input: () => set(range.value, range) } });
    const box = el("input", { type: "number", min: least, max: most, step: "any", "aria-label": "alpha as a number", on: { input: () => set(box.value, box), change: () => { box.value = String(current); } } });
    let current = clip(value);
    function set(text, from) {
      const x = Number(text);
      if (text === "" || Number.isNaN(x)) return;
      current = clip(x);
      if (from !== range) range.value = String(current);
      if (from !== box) box.value = String(current);
      onChange(current);
    }
    range.value = String(current);
    box.value = String(current);
    return {
      value: current,
      control: el("div", { class: "control wide" }, el("label", { for: id }, "alpha, the share in the tail"), el("div", { class: "alpha" }, range, box)),
    };
  }

  function numbersList(data, words, numbers, name, { digits, second = false, value = null } = {}) {
    const number = (x) => format.number(x, digits);
    const item = (title, text, raw, cls) => el("div", { class: cls }, el("dt", {}, title), el("dd", {}, raw === null ? text : el("data", { value: raw }, text)));
    return el("dl", { class: second ? "numbers second" : "numbers", "data-model": name },
      data.models.length > 1 && el("div", {}, el("dt", {}, second ? "Compared with" : "Model"), el("dd", { class: "model" }, name)),
      item(`${words.units} (n)`, format.integer(numbers.n), numbers.n, "n"),
      item("median", number(numbers.median), numbers.median, "median"),
      value !== null && item("CRoMa value", number(value), value, "value"),
      item("quantile", number(numbers.q), numbers.q, "quantile"),
      item("lower-tail mean", number(numbers.ltm), numbers.ltm, "tail"),
      item(`${words.confounder} wins, F(0)`, format.percent(numbers.f0), numbers.f0, "f0"));
  }

  async function make(payload) {
    const data = payload.explorer;
    const { words } = payload;
    const columns = ["label", "confounder", ...(data.paired ? ["subset"] : [])];
    const codes = Object.fromEntries(await Promise.all(columns.map(async (name) => [name, await arrays.get(data[name].codes)])));
    const state = { model: payload.best, second: -1, m: data.main_m, alpha: Number(data.alpha), filters: {}, chosen: null, units: words.units };

    const live = el("div", { "aria-live": "polite", "aria-atomic": "true", class: "live" });
    const detail = el("p", { class: "detail", id: freshId("detail") });
    const drawn = charts.make((width) => explorerChart.option({ ...state, second: state.second_side })(width), { label: "Histogram of margins" });
    const slider = el("div", {
      tabindex: "0", role: "slider", "aria-label": "Bars of the histogram: arrow keys choose one", "aria-describedby": detail.id, "aria-valuemin": "0", "aria-valuenow": "0", class: "bars",
    }, drawn.element);
    const worst = table.make({
      columns: [
        { title: "Sample", kind: "text" }, { title: words.label, kind: "text" }, { title: words.confounder, kind: "text" },
        { title: words.group, kind: "text" }, ...(data.paired ? [{ title: "Subset", kind: "text" }] : []), { title: "Margin", kind: "number" },
      ],
      rows: [],
    }, { label: "The worst samples under this filter" });
    let named = null;
    let run = 0;
    let asked = false;

    async function compute() {
      const mine = ++run;
      const [first, second] = await Promise.all([
        views.all(data, state.model, state.m),
        state.second >= 0 ? views.all(data, state.second, state.m) : null,
      ]);
      // Another change has come while a model was unpacked.
      if (mine !== run) return;
      performance.mark("explorer-start");
      const kept = filtered();
      const side = (view) => {
        const shown = view === null ? null : part(view, kept);
        return shown && { shown, numbers: statistics.of(shown, state.alpha), bins: histogram.bins(shown.sorted, state.edges) };
      };
      state.edges = histogram.edges([first, ...(second ? [second] : [])]);
      state.digits = histogram.digits(state.edges);
      state.first = side(first);
      state.second_side = side(second);
      state.kept = kept;
      const nBins = state.edges.length - 1;
      if (state.chosen !== null) state.chosen = Math.min(state.chosen, nBins - 1);
      slider.setAttribute("aria-valuemax", String(nBins - 1));
      write();
      drawn.redraw();
      performance.measure("explorer", "explorer-start");
    }

    // What the filter leaves is kept until it changes: moving alpha does not filter again.
    let maskKey = null;
    let maskOf = null;
    let parts = new Map();
    function filtered() {
      const key = JSON.stringify(state.filters);
      if (key !== maskKey) {
        maskKey = key;
        maskOf = views.mask(data.n, Object.entries(state.filters).map(([name, code]) => ({ codes: codes[name], code })));
        parts = new Map();
      }
      return maskOf;
    }
    function part(view, kept) {
      if (!parts.has(view)) parts.set(view, views.part(view, kept));
      return parts.get(view);
    }

    function write() {
      const { first, second_side: second, digits } = state;
      // Without a filter, a paired design's headline is a median of medians.
      const headline = ({ shown }) => (data.paired ? statistics.medianOfMedians(shown, codes.subset, data.subset.names.length) : null);
      refill(live,
        numbersList(data, words, first.numbers, data.models[state.model], { digits, value: headline(first) }),
        second && numbersList(data, words, second.numbers, data.models[state.second], { digits, second: true, value: headline(second) }));
      const { n, median, q, ltm, f0 } = first.numbers;
      const filters = Object.entries(state.filters).map(([name, code]) => `${words[name] ?? name} ${isolated(data[name].names[code])}`);
      const what = `${data.models.length > 1 ? `${isolated(data.models[state.model])}, ` : ""}${filters.length ? filters.join(", ") : `all ${words.units}`}`;
      drawn.element.setAttribute("aria-label", n === 0
        ? `Histogram of margins, ${what}: none has a margin.`
        : `Histogram of margins, ${what}: ${format.count(n, words.unit)}, median ${format.number(median, digits)}, ${format.percent(f0)} at or below 0, lower-tail mean ${format.number(ltm, digits)} up to ${format.number(q, digits)}.`);
      writeDetail();
      writeWorst();
    }

    function writeDetail() {
      const { first, edges, chosen, digits } = state;
      if (chosen === null) {
        refill(detail, el("span", { class: "quiet" }, "Point at a bar, or choose one with the arrow keys, to see which samples it holds."));
        slider.setAttribute("aria-valuetext", "no bar chosen");
        return;
      }
      const { counts, starts } = first.bins;
      const rows = first.shown.rows.subarray(starts[chosen], starts[chosen + 1]);
      const listed = named === null ? [] : Array.from(rows.subarray(0, EXAMPLES), (row) => isolated(named.id(row)));
      const more = rows.length > listed.length && listed.length > 0 ? " \u2026" : "";
      const share = first.numbers.n ? ` (${format.percent(counts[chosen] / first.numbers.n)})` : "";
      const text = `Margins above ${format.number(edges[chosen], digits)} up to ${format.number(edges[chosen + 1], digits)}: ${format.count(counts[chosen], words.unit)}${share}${listed.length ? `: ${listed.join(", ")}${more}` : ""}`;
      refill(detail, text);
      slider.setAttribute("aria-valuenow", String(chosen));
      slider.setAttribute("aria-valuetext", text);
    }

    function writeWorst() {
      if (named === null) return;
      const { rows, sorted } = state.first.shown;
      const at = (name, row) => data[name].names[codes[name][row]];
      worst.update(Array.from(rows.subarray(0, WORST), (row, i) => [
        named.id(row), at("label", row), at("confounder", row), named.group(row),
        ...(data.paired ? [at("subset", row)] : []), sorted[i],
      ]));
    }

    function change(values) {
      Object.assign(state, values);
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => { asked = false; compute().catch(failed); });
    }

    function failed(error) {
      console.error(error);
      refill(live, el("p", { class: "notice" }, `This model cannot be shown: the file may be damaged (${error.message}).`));
    }

    function choose(bin) {
      const next = bin === null ? null : Math.max(0, Math.min(state.edges.length - 2, bin));
      if (next === state.chosen) return;
      state.chosen = next;
      writeDetail();
      drawn.redraw();
    }

    drawn.element.addEventListener("ready", ({ detail: chart }) => {
      chart.getZr().on("mousemove", ({ offsetX, offsetY }) => {
        if (!chart.containPixel("grid", [offsetX, offsetY])) return;
        const x = chart.convertFromPixel({ xAxisIndex: 0 }, offsetX);
        choose(statistics.atOrBelow(state.edges, x) - 1);
      });
    });
    slider.addEventListener("keydown", (event) => {
      const { key } = event;
      const last = state.edges.length - 2;
      const now = state.chosen;
      const next = {
        ArrowRight: now === null ? 0 : now + 1, ArrowUp: now === null ? 0 : now + 1,
        ArrowLeft: now === null ? last : now - 1, ArrowDown: now === null ? last : now - 1,
        PageUp: (now ?? 0) + 10, PageDown: (now ?? last) - 10, Home: 0, End: last,
      }[key];
      if (next === undefined) return;
      event.preventDefault();
      choose(next);
    });

    const filter = (name) => select(words[name] ?? name, data[name].names, -1, (code) => {
      const filters = { ...state.filters };
      if (code < 0) delete filters[name];
      else filters[name] = code;
      change({ filters });
    }, { first: "all" }).control;
    const alpha = alphaControl(Number(data.alpha), (value) => change({ alpha: value }));
    state.alpha = alpha.value;
    const many = data.models.length > 1;
    const controls = el("form", { class: "controls", "aria-label": "What to show", on: { submit: (event) => event.preventDefault() } },
      many && select("Model", data.models, payload.best, (model) => change({ model }), { wide: true }).control,
      many && select("Compare with", data.models, -1, (second) => { otherKey.hidden = second < 0; change({ second }); }, { first: "none", wide: true }).control,
      data.m.length > 1 && select("m, nearest of each type", data.m.map(String), state.m, (m) => change({ m })).control,
      columns.map(filter),
      alpha.control);

    const otherKey = el("li", { hidden: true }, el("span", { class: "swatch other", "aria-hidden": "true" }), "the model compared with");
    const key = el("ul", { class: "key" },
      [["area", `${words.units}`], ["tail", "the worst share alpha"], ["median", "median"], ["zero", `0: left of it ${words.confounder} wins`]].map(([cls, text]) =>
        el("li", {}, el("span", { class: `swatch ${cls}`, "aria-hidden": "true" }), text)),
      otherKey);

    const limits = [];
    if (data.m_left_out.length) limits.push(`To keep this file small, m = ${data.m_left_out.join(", ")} is not in the explorer.`);
    if (data.worst && !data.ids) limits.push(`There are too many samples to carry all their ids: the ${format.integer(data.worst.each)} worst of each model have theirs, others are named by their row in the manifest, counted from 0.`);
    if (data.worst && !data.groups) limits.push("Groups are told of these alone.");

    const made = section("explorer", "Explore the margins",
      el("p", { class: "quiet" }, `The margin of a ${words.unit} is above 0 where ${words.units} of the same ${words.label} from another ${words.confounder} lie nearer than ${words.units} of another ${words.label} from the same ${words.confounder}. Choose what to look at; the numbers and the chart follow.`),
      limits.map((text) => el("p", { class: "notice" }, text)),
      el("div", { class: "explorer" }, controls, el("div", {}, live, key, slider, detail)),
      el("h3", { class: "after" }, "The worst samples under this filter"),
      worst.element);
    await compute();
    names.load(data).then((loaded) => {
      named = loaded;
      writeDetail();
      writeWorst();
    }).catch((error) => {
      console.error(error);
      made.append(el("p", { class: "notice" }, `Samples have no names here: the file may be damaged (${error.message}).`));
    });
    return made;
  }

  return { make };
})();
