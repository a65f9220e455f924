// Blocks of the file, unpacked when they are first asked for: base64, deflate, bytes of one
// significance together.
const arrays = (() => {
  const KINDS = { float32: Float32Array, float64: Float64Array, uint16: Uint16Array, uint32: Uint32Array };
  const found = new Map();

  async function unpack(where) {
    const element = document.getElementById(`block-${where.block}`);
    if (element === null) throw new Error(`block ${where.block} is missing`);
    const text = atob(element.textContent);
    // The text is not needed again; a large one would be held twice.
    element.remove();
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const raw = new Uint8Array(await new Response(stream).arrayBuffer());
    if (where.dtype === "text") return JSON.parse(new TextDecoder().decode(raw));
    const Kind = KINDS[where.dtype];
    const size = Kind.BYTES_PER_ELEMENT;
    if (raw.length !== size * where.length) throw new Error(`block ${where.block} has ${raw.length} bytes`);
    const bytes = new Uint8Array(raw.length);
    for (let part = 0; part < size; part += 1) {
      const start = part * where.length;
      for (let i = 0; i < where.length; i += 1) bytes[i * size + part] = raw[start + i];
    }
    return new Kind(bytes.buffer);
  }

  /** The typed array, or the list of texts, of a block. */
  function get(where) {
    if (!found.has(where.block)) {
      found.set(where.block, unpack(where).catch((error) => {
        // What the browser says of it speaks of its own streams.
        throw new Error(`block ${where.block} cannot be unpacked`, { cause: error });
      }));
    }
    return found.get(where.block);
  }

  const possible = () => typeof DecompressionStream === "function";

  return { get, possible };
})();
