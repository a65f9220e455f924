// Numbers as text. One place, so that they look alike everywhere.
const format = (() => {
  const MINUS = "\u2212";
  const NONE = "\u2013";

  const absent = (value) => value === null || value === undefined || Number.isNaN(value);

  function number(value, digits = 3) {
    if (absent(value)) return NONE;
    const text = value.toFixed(digits);
    // What is above 0 is never shown as 0, nor what is below.
    if (Number(text) === 0 && value !== 0) return value > 0 ? `<${(10 ** -digits).toFixed(digits)}` : `>${MINUS}${(10 ** -digits).toFixed(digits)}`;
    return text.replace("-", MINUS);
  }

  function percent(value) {
    if (absent(value)) return NONE;
    const text = (100 * value).toFixed(1);
    if (text === "0.0" && value > 0) return "<0.1 %";
    if (text === "100.0" && value < 1) return ">99.9 %";
    return `${text.replace("-", MINUS)} %`;
  }

  const integer = (value) => (absent(value) ? NONE : Math.round(value).toLocaleString("en").replace("-", MINUS));

  function rank(value) {
    if (absent(value)) return NONE;
    return Number.isInteger(value) ? String(value) : value.toFixed(Number.isInteger(2 * value) ? 1 : 2);
  }

  function count(n, one, many = `${one}s`) {
    return `${integer(n)} ${n === 1 ? one : many}`;
  }

  return { number, percent, integer, rank, count, absent, NONE };
})();
