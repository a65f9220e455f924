// Tables that sort by click and by keyboard: each heading is a button, and says its order.
const table = (() => {
  const { el, refill, freshId } = dom;
  const MOST_ROWS = 30;
  const MORE_ROWS = 300;
  const CODE = 12;
  const texts = new Intl.Collator("en", { numeric: true });
  const TEXT = new Set(["text", "code"]);

  const numeric = (cell) => (Array.isArray(cell) ? cell[0] : cell);

  function shown(kind, cell) {
    const value = numeric(cell);
    const base = kind.replace(/ ?interval$/, "") || "number";
    const text = {
      number: () => format.number(value),
      percent: () => format.percent(value),
      integer: () => format.integer(value),
      rank: () => format.rank(value),
      probability: () => format.number(value, 2),
    }[base]();
    if (format.absent(value)) return [el("span", { class: "quiet" }, format.NONE)];
    const main = el("data", { value }, text);
    if (!Array.isArray(cell) || format.absent(cell[1])) return [main];
    const write = base === "percent" ? (v) => format.percent(v).replace(" %", "") : format.number;
    return [main, el("span", { class: "range" }, `${write(cell[1])} to ${write(cell[2])}${base === "percent" ? " %" : ""}`)];
  }

  /** Share of the draws in which one model beats another, with the difference and its interval. */
  function versus(cell) {
    if (cell === null || format.absent(cell[0])) return [el("span", { class: "quiet" }, format.NONE)];
    const [better, ...difference] = cell;
    const [by, low, high] = difference.map((v) => format.number(v));
    return [el("data", { value: better }, format.number(better, 2)), el("span", { class: "range" }, by), el("span", { class: "range" }, `${low} to ${high}`)];
  }

  /** A fingerprint: its beginning tells it from others, the whole is there to be copied. */
  function code(text) {
    if (text.length <= CODE) return [el("code", {}, text)];
    return [el("details", {}, el("summary", { title: text }, el("code", {}, `${text.slice(0, CODE)}\u2026`)), el("code", {}, text))];
  }

  function body(kind, cell) {
    if (kind === "text") return [el("span", { class: "name" }, cell ?? format.NONE)];
    if (kind === "code") return code(cell ?? "");
    if (kind === "versus") return versus(cell);
    if (kind === "flag") return [cell ? "yes" : ""];
    return shown(kind, cell);
  }

  function compare(kind, a, b, sign) {
    if (TEXT.has(kind)) return sign * texts.compare(String(a ?? ""), String(b ?? ""));
    const x = kind === "flag" ? Number(Boolean(a)) : numeric(a);
    const y = kind === "flag" ? Number(Boolean(b)) : numeric(b);
    // What has no value stays below, whatever the order.
    if (format.absent(x) || format.absent(y)) return format.absent(x) - format.absent(y);
    return sign * (x - y);
  }

  /** Class of a cell of a shaded column: by its place between the column's least and largest. */
  function shades(columns, rows) {
    const ends = columns.map(({ shade }, i) => {
      const values = shade ? rows.map((row) => numeric(row[i])).filter((v) => !format.absent(v)) : [];
      return values.length > 1 ? [Math.min(...values), Math.max(...values)] : null;
    });
    return (i, cell) => {
      const value = numeric(cell);
      if (ends[i] === null || format.absent(value) || ends[i][0] === ends[i][1]) return null;
      return `shade${Math.round(4 * (value - ends[i][0]) / (ends[i][1] - ends[i][0]))}`;
    };
  }

  /** Say by classes on which side something that scrolls is cut off. */
  function scrolling(box) {
    const frame = el("div", { class: "frame" }, box);
    const look = () => {
      const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
      frame.classList.toggle("more-left", box.scrollLeft > 1);
      frame.classList.toggle("more-right", rest > 1);
    };
    box.addEventListener("scroll", look, { passive: true });
    const watch = new ResizeObserver(look);
    watch.observe(box);
    watch.observe(box.firstElementChild);
    return frame;
  }

  /**
   * A table {columns: [{title, kind, hint}], rows, sort: [column, order]}.
   * `caption` names it, in sight; `label` where a heading does already. Returns the element and `update(rows)`.
   */
  function make(spec, { caption = null, label = caption, sortable = true } = {}) {
    const { columns } = spec;
    let rows = spec.rows;
    let [sorted, direction] = spec.sort ?? [null, null];
    let most = MOST_ROWS;
    const tbody = el("tbody");
    const more = el("div", { class: "more" });
    // A title is for the mouse alone: what a column means stands below the table as well.
    const hints = columns.map((column) => (column.hint ? freshId("hint") : null));
    const heads = columns.map((column, i) => {
      const kind = TEXT.has(column.kind) || column.kind === "flag" ? "text" : null;
      const content = sortable
        ? el("button", { type: "button", title: column.hint || null, "aria-describedby": hints[i], on: { click: () => sort(i) } }, column.title)
        : el("span", { class: "plain", title: column.hint || null, "aria-describedby": hints[i] }, column.title);
      return el("th", { scope: "col", class: kind }, content);
    });

    function draw() {
      const inOrder = sorted === null ? rows : rows
        .map((row, i) => [row, i])
        .sort(([a, i], [b, j]) => compare(columns[sorted].kind, a[sorted], b[sorted], direction === "ascending" ? 1 : -1) || i - j)
        .map(([row]) => row);
      heads.forEach((head, i) => {
        if (!sortable) return;
        if (i === sorted) head.setAttribute("aria-sort", direction);
        else head.removeAttribute("aria-sort");
      });
      const shade = shades(columns, rows);
      const visible = inOrder.slice(0, most);
      refill(tbody, visible.map((row) => el("tr", {}, row.map((cell, i) => {
        const { kind } = columns[i];
        const cls = kind === "code" ? "code" : TEXT.has(kind) || kind === "flag" ? "text" : shade(i, cell);
        return i === 0
          ? el("th", { scope: "row" }, body(kind, cell))
          : el("td", { class: cls }, body(kind, cell));
      }))));
      const left = inOrder.length - visible.length;
      refill(more, left > 0 && el("button", { type: "button", class: "plain", on: { click: () => showMore(visible.length) } },
        `Show ${format.count(Math.min(left, MORE_ROWS), "more row")} (${format.integer(visible.length)} of ${format.integer(inOrder.length)} are shown)`));
    }

    /** A few hundred further rows, the first of which gets the focus: its button has gone. */
    function showMore(from) {
      most = from + MORE_ROWS;
      draw();
      const first = tbody.rows[from];
      first.tabIndex = -1;
      first.focus();
    }

    function sort(i) {
      // Text starts at its beginning, numbers at the largest; a second press turns it round.
      const start = columns[i].kind === "text" || columns[i].kind === "rank" ? "ascending" : "descending";
      const turned = direction === "ascending" ? "descending" : "ascending";
      direction = sorted === i ? turned : start;
      sorted = i;
      draw();
    }

    draw();
    const element = el("div", {},
      caption && el("p", { class: "caption" }, caption),
      scrolling(
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, scrolls sideways where it is too wide` },
          el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, heads)), tbody))),
      more,
      hints.some(Boolean) && el("details", { class: "hints" }, el("summary", {}, "What the columns mean"),
        el("dl", { class: "facts" }, columns.flatMap(({ title, hint }, i) => (hint ? [el("dt", {}, title), el("dd", { id: hints[i] }, hint)] : [])))));
    return { element, update(next) { rows = next; draw(); } };
  }

  return { make };
})();
