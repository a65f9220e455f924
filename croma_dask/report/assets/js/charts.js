// ECharts in the colours of the page: drawn as SVG, without animation, again whenever the width,
// the colour scheme or the medium (paper) changes.
const charts = (() => {
  const { el } = dom;
  const live = new Set();
  const DASHES = ["solid", "dashed", "dotted"];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
  const N_COLOURS = 8;

  /** Colour of the page by its name in the style sheet. */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  /** How the i-th of several lines looks: no two of the first 24 alike. */
  function look(i) {
    return {
      name: `c${i % N_COLOURS}`,
      dash: Math.floor(i / N_COLOURS) % DASHES.length,
      type: DASHES[Math.floor(i / N_COLOURS) % DASHES.length],
      symbol: SYMBOLS[i % SYMBOLS.length],
    };
  }

  /** Settings that all charts share. */
  function base() {
    const text = { color: colour("quiet"), fontSize: 12, fontFamily: getComputedStyle(document.body).fontFamily };
    const axis = {
      axisLine: { onZero: false, lineStyle: { color: colour("quiet") } },
      axisTick: { lineStyle: { color: colour("quiet") } },
      axisLabel: { ...text, formatter: (v) => String(v).replace("-", "\u2212") },
      nameTextStyle: text,
      splitLine: { lineStyle: { color: colour("line") } },
      nameLocation: "middle",
    };
    return { text, axis, option: { animation: false, backgroundColor: "transparent", textStyle: text } };
  }

  /** Ends and interval of an axis with round numbers around some values. */
  function round(values, { most = Infinity, least = -Infinity } = {}) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const span = high - low || 0.1;
    const raw = span / 4;
    const power = 10 ** Math.floor(Math.log10(raw));
    const interval = power * [1, 2, 5, 10].find((step) => step * power >= raw * 0.999);
    const tidy = (x) => Math.round(x * 1e9) / 1e9;
    return {
      min: Math.max(least, tidy(interval * Math.floor((low - 0.04 * span) / interval))),
      max: Math.min(most, tidy(interval * Math.ceil((high + 0.04 * span) / interval))),
      interval,
    };
  }

  /**
   * A chart whose `option()` is asked for anew at every drawing. `label` is what a reader who does
   * not see it is told.
   */
  function make(option, { label, small = false } = {}) {
    const element = el("div", { class: small ? "chart small" : "chart", role: "img", "aria-label": label });
    let chart = null;
    let asked = false;

    function draw() {
      if (!element.isConnected || element.clientWidth === 0) return;
      if (chart === null) {
        chart = echarts.init(element, null, { renderer: "svg" });
        element.dispatchEvent(new CustomEvent("ready", { detail: chart }));
      }
      chart.resize({ width: element.clientWidth, height: element.clientHeight });
      chart.setOption(option(element.clientWidth), { notMerge: true });
    }

    /** Draw at the next frame, once, however often it is asked for until then. */
    function redraw() {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => { asked = false; draw(); });
    }

    const self = { element, draw, redraw, get chart() { return chart; } };
    live.add(self);
    new ResizeObserver(redraw).observe(element);
    return self;
  }

  const drawAll = () => live.forEach((one) => one.draw());

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => live.forEach((one) => one.redraw()));
  // Paper has its own width and is light: the style sheet says so only once printing has begun.
  matchMedia("print").addEventListener("change", drawAll);
  addEventListener("afterprint", drawAll);

  /** A list that says which line is which, for charts of several. */
  function legend(names) {
    return el("ul", { class: "key" }, names.map((name, i) => {
      const { name: c, dash } = look(i);
      return el("li", {}, el("span", { class: `swatch line ${c} dash${dash}`, "aria-hidden": "true" }), name);
    }));
  }

  return { make, base, round, colour, look, legend };
})();
