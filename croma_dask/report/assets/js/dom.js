// Elements of the page. Text goes in as text nodes alone: nothing here reads markup from data.
const dom = (() => {
  const SVG_FREE = new Set(["innerHTML", "outerHTML", "style"]);

  /** Make an element; `attributes.on` holds listeners, children are nodes or text. */
  function el(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") {
        for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
      } else if (SVG_FREE.has(name)) {
        throw new Error(`attribute ${name} is not set from here`);
      } else {
        made.setAttribute(name, value === true ? "" : String(value));
      }
    }
    add(made, children);
    return made;
  }

  function add(parent, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }

  function refill(parent, ...children) {
    parent.replaceChildren();
    add(parent, children);
  }

  // Letters that are written from right to left, and signs that turn the direction.
  const TURNING = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

  /** A name that stands in a sentence, its direction kept to itself. */
  const isolated = (name) => (TURNING.test(name) ? `\u2068${name}\u2069` : name);

  let last = 0;
  /** An id that no other element has. */
  function freshId(stem) {
    last += 1;
    return `${stem}-${last}`;
  }

  /** A labelled select; `options` are texts, and their values their positions. */
  function select(title, options, chosen, onChange, { first = null, wide = false } = {}) {
    const id = freshId("select");
    const texts = first === null ? options : [first, ...options];
    const box = el("select", { id, on: { change: () => onChange(Number(box.value)) } },
      texts.map((text, i) => el("option", { value: first === null ? i : i - 1 }, text)));
    box.value = String(chosen);
    const control = el("div", { class: wide ? "control wide" : "control" }, el("label", { for: id }, title), box);
    return { control, box };
  }

  /** A section with its heading. */
  function section(id, title, ...children) {
    return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
  }

  return { el, refill, freshId, isolated, select, section };
})();
