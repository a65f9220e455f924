"""Mutations that know the structure of what they change: trees, JSON, text, headers, archives.

Each is ``mutate(content, random) -> content`` and never fails: what it cannot parse it changes as
bytes. `mutate_tree` chooses by the file's name.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from tests.fuzz.harness import LINK, Target, Tree

__all__ = ["mutate_json", "mutate_text", "mutate_tree"]

Mutator = Callable[[bytes, random.Random], bytes]

LARGEST = 1 << 20  # bytes of a file that mutations make

# Whole numbers at which readers break: signs, widths of integers, and sizes that fit no memory.
_NUMBERS = (
    0, 1, -1, 2, 7, 127, 128, 255, 256, 4096, 65535, 65536, 2**20, 2**31 - 1, 2**31, 2**32 - 1,
    2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31), -(2**63), 10**30,
)  # fmt: skip

_TEXTS = (
    "", " ", ".", "..", "../x", "/etc/passwd", "a/b", "\0", "\n", "é", "\u202e", "\ud7ff", "NaN",
    "inf", "-0", "1e400", "null", "<script>", "=1+1", "\x1b[31m", "x" * 300, "💥", "\ufeff", "'",
    '"', "[]", "{}", "%s", "None", "True", "sample_id", "label",
)  # fmt: skip

_CELLS = (
    *_TEXTS, ",", "\t", ";", '"', '""', '"\n"', "\r", "\r\n", "\n\n", "#", "\0", "1", "-1", "1e999",
)  # fmt: skip


# --- trees ---


def mutate_tree(tree: Tree, target: Target, rng: random.Random) -> Tree:
    """Return a tree with one to four changes, most of them in one file."""
    tree = dict(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        if len(tree) > 1 and rng.random() < 0.2:
            tree = _change_names(tree, rng)
            continue
        name = _choose_file(tree, rng)
        if tree[name].startswith(LINK):
            if rng.random() < 0.5:
                tree[name] = LINK + rng.choice(
                    (b"/etc/passwd", b"../outside", b".", b"..", b"/proc/self/mem", b"nowhere")
                )
            continue
        tree[name] = _mutator(name, target, rng)(tree[name], rng)[:LARGEST]
    return tree


def _choose_file(tree: Tree, rng: random.Random) -> str:
    """Choose small files with names that describe others more often than the many chunks."""
    names = list(tree)
    described = [name for name in names if name.endswith((".json", ".zarray", ".zattrs"))]
    return rng.choice(described if described and rng.random() < 0.7 else names)


def _mutator(name: str, target: Target, rng: random.Random) -> Mutator:
    lower = name.lower()
    own = [
        mutate
        for ending, mutate in (*target.mutators.items(), *_BY_ENDING)
        if lower.endswith(ending)
    ]
    if own and rng.random() < 0.75:
        return rng.choice(own)
    return mutate_bytes


def _change_names(tree: Tree, rng: random.Random) -> Tree:
    name = rng.choice(list(tree))
    other = rng.choice(list(tree))
    kind = rng.randrange(6)
    if kind == 0:
        del tree[name]
    elif kind == 1:
        tree[name], tree[other] = tree[other], tree[name]
    elif kind == 2:
        tree[name] = LINK + rng.choice(
            (b"/etc/passwd", b".", b"..", b"../../../outside/canary.bin", other.encode())
        )
    elif kind == 3:
        parts = name.split("/")
        new = rng.choice(("x", "c", "0", "1", "é", "a b", "c.0", "-1", "..x", "x" * 200, "con"))
        parts[rng.randrange(1, len(parts)) if len(parts) > 1 else 0] = new
        tree["/".join(parts)] = tree.pop(name)
    elif kind == 4:
        # a folder where a file was
        tree[f"{name}/x"] = tree.pop(name)
    else:
        tree[f"{name}.bak"] = tree[name]
    return tree


# --- bytes ---


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, set, insert, remove, repeat or cut bytes; write an integer of some width."""
    data = bytearray(content)
    if not data:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
    at = rng.randrange(len(data))
    kind = rng.randrange(8)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
    elif kind == 2:
        data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
    elif kind == 3:
        del data[at : at + rng.choice((1, 2, 4, 8, 64))]
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        stop = min(len(data), at + rng.choice((1, 4, 16, 256)))
        data[at:at] = data[at:stop] * rng.choice((1, 2, 16))
    elif kind == 6:
        width = rng.choice((1, 2, 4, 8))
        value = rng.choice(_NUMBERS) % (1 << 8 * width)
        # most integers of the formats lie at multiples of their width
        at -= at % width if rng.random() < 0.7 else 0
        data[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
    else:
        other = rng.randrange(len(data))
        size = rng.choice((1, 4, 8, 32))
        data[at : at + size] = data[other : other + size]
    return bytes(data)


# --- JSON ---


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """Change one value of a JSON document to another, often of another type."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return mutate_bytes(content, rng)
    kind = rng.randrange(12)
    if kind == 0:
        # duplicate keys, which json.loads lets pass
        return re.sub(rb'("[a-z_]+":)', rb"\1 null, \1", content, count=1)
    if kind == 1:
        depth = rng.choice((10, 500, 5000, 100_000))
        return b"[" * depth + content + b"]" * depth
    places = list(_places(document))
    if not places:
        return json.dumps(_any_value(rng)).encode()
    parent, key = rng.choice(places)
    old = parent[key]
    if kind == 2:
        del parent[key]
    elif kind == 3 and isinstance(parent, dict):
        parent[rng.choice(_TEXTS)] = parent.pop(key)
    elif kind == 4 and isinstance(old, list):
        parent[key] = old * rng.choice((0, 2, 100))
    elif kind == 5 and isinstance(old, int | float):
        parent[key] = rng.choice((old + 1, old - 1, -old, old * 2, float(old), str(old)))
    elif kind == 6 and isinstance(old, str) and old[:1] in {"{", "["}:
        # JSON within JSON
        parent[key] = mutate_json(old.encode(), rng).decode("utf-8", "replace")
    elif kind == 7:
        other, place = rng.choice(places)
        parent[key] = json.loads(json.dumps(other[place]))
    else:
        parent[key] = _any_value(rng)
    return json.dumps(document).encode()


def _places(node: Any, depth: int = 0) -> Any:
    """Yield (container, key) of every value of a document."""
    if depth > 50 or not isinstance(node, dict | list):
        return
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items):
        yield node, key
        yield from _places(value, depth + 1)


def _any_value(rng: random.Random) -> Any:
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(_NUMBERS)
    if kind < 5:
        return rng.choice(_TEXTS)
    if kind == 5:
        # json writes NaN and Infinity, which is what a careless writer does
        return rng.choice((float("nan"), float("inf"), 1e308, 0.5, -0.0, True, False, None))
    return rng.choice(([], {}, [0], [[]], {"a": 1}, [1, 2, 3], {"name": "bytes"}, ["a"] * 1000))


# --- text ---


def mutate_text(content: bytes, rng: random.Random) -> bytes:
    """Change a cell, a line or the line ends of delimited text."""
    text = content.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    mark = max(",\t;", key=text.count)
    kind = rng.randrange(9)
    if kind < 4:
        cells = lines[at].split(mark)
        cells[rng.randrange(len(cells))] = rng.choice(_CELLS)
        lines[at] = mark.join(cells)
    elif kind == 4:
        lines.insert(at, rng.choice((lines[at], "", "#", mark * 3, '"', rng.choice(_CELLS))))
    elif kind == 5:
        del lines[at]
    elif kind == 6:
        lines[0] = lines[0].replace(mark, mark + rng.choice(_CELLS) + mark, 1)
    elif kind == 7:
        return content.replace(*rng.choice(((b"\n", b"\r\n"), (b"\n", b"\r"), (b",", b"\t"))))
    else:
        prefix = rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\n\n", b"#\n", b"\x1f\x8b"))
        return prefix + content
    return "\n".join(lines).encode("utf-8", "surrogateescape")


# --- numpy ---


def mutate_npy(content: bytes, rng: random.Random) -> bytes:
    """Change the header of a .npy file: shape, dtype, order, its length, or what it is at all."""
    if not content.startswith(b"\x93NUMPY") or len(content) < 12:
        return mutate_bytes(content, rng)
    wide = content[6] > 1
    size = struct.unpack_from("<I" if wide else "<H", content, 8)[0]
    begin = 12 if wide else 10
    header = content[begin : begin + size].decode("latin-1")
    body = content[begin + size :]
    kind = rng.randrange(6)
    if kind < 2:
        shape = ", ".join(str(rng.choice(_NUMBERS)) for _ in range(rng.choice((0, 1, 2, 2, 2, 3))))
        header = re.sub(r"\([^)]*\)", f"({shape},)" if shape else "()", header)
    elif kind == 2:
        descr = rng.choice((
            "'|O'", "'<f4'", "'>f8'", "'<f2'", "'|V2'", "'<U5'", "'|S0'", "'<c8'", "'<M8[s]'",
            "[('a', '<f4')]", "[('a', '|O')]", "'|b1'", "'<i8'", "'<u8'", "'<f16'",
            "'|V1000000000'",
            "None", "'" + "x" * 100 + "'", "(" * 50 + ")" * 50, "'<U1000000000'",
        ))  # fmt: skip
        header = re.sub(r"'descr': ('[^']*'|\[.*?\])", f"'descr': {descr}", header)
    elif kind == 3:
        header = rng.choice((
            "", "{}", "{'descr': '<f4'}", "__import__('os')", header.replace("}", ", 'x': 1}"),
            header * 2, "[" * 3000, "-" * 20_000 + "1", header + " " * 70_000, "{1: 2}",
            "{'descr': '<f4', 'fortran_order': 3, 'shape': (1, 1)}",
            header.replace("False", "True"),
            "(" * 99 + "1" + ")" * 99, header.replace("(", "(-"),
        ))  # fmt: skip
    elif kind == 4:
        length = rng.choice((0, 1, 118, 65535, 2**31, 2**32 - 1))
        packed = struct.pack("<I", length) if wide else struct.pack("<H", length & 0xFFFF)
        return content[:8] + packed + content[begin:]
    else:
        version = rng.choice((b"\1\0", b"\2\0", b"\3\0", b"\4\0", b"\0\0", b"\xff\xff"))
        return content[:6] + version + content[8:]
    raw = header.encode("latin-1", "replace")
    if len(raw) > 65535:
        return b"\x93NUMPY\2\0" + struct.pack("<I", len(raw)) + raw + body
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(raw)) + raw + body


# --- archives ---


def mutate_zip(content: bytes, rng: random.Random) -> bytes:
    """Change the members of an archive: content, name, compression, size, number."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(item.filename, archive.read(item)) for item in archive.infolist()]
    # an archive that is broken already
    except Exception:  # noqa: BLE001
        return mutate_bytes(content, rng)
    if not members:
        return mutate_bytes(content, rng)
    at = rng.randrange(len(members))
    name, data = members[at]
    kind = rng.randrange(7)
    if kind < 3:
        inner = mutate_npy if data.startswith(b"\x93NUMPY") else mutate_bytes
        if name.endswith(".json"):
            inner = mutate_json
        members[at] = (name, inner(data, rng))
    elif kind == 3:
        new = rng.choice((
            "../" + name, "/etc/" + name, "features.npy", "coords.npy", "x/" + name, "", "..",
            "a\\b", name + "x", "sample_id.npy",
        ))  # fmt: skip
        members[at] = (new, data)
    elif kind == 4:
        members.append(members[at])  # two of one name
    elif kind == 5:
        del members[at]
    else:
        # a bomb: it grows a thousandfold when it is read
        members[at] = (name, data + bytes(1 << 22))
    out = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # of a second member of one name
        for name, data in members:
            info = zipfile.ZipInfo(name or "x")
            info.filename = name
            info.compress_type = method
            archive.writestr(info, data)
    raw = out.getvalue()
    return _lie_about_sizes(raw, rng) if rng.random() < 0.3 else raw


def _lie_about_sizes(raw: bytes, rng: random.Random) -> bytes:
    """Write another size into an entry of the archive's directory."""
    data = bytearray(raw)
    entries = [found.start() for found in re.finditer(b"PK\x01\x02", raw)]
    if entries:
        at = rng.choice(entries)
        # compressed size, plain size, offset of the local header
        field = rng.choice((20, 24, 42))
        value = rng.choice((0, 1, 100, 2**31, 2**32 - 2))
        data[at + field : at + field + 4] = struct.pack("<I", value)
    return bytes(data)


def mutate_gzip(content: bytes, rng: random.Random) -> bytes:
    """Change what a gzip stream holds, or make it one that grows."""
    try:
        text = zlib.decompressobj(31).decompress(content, LARGEST)
    except zlib.error:
        return mutate_bytes(content, rng)
    text = mutate_text(text, rng) if rng.random() < 0.8 else text + b"x" * (1 << 22)
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
    return squeeze.compress(text) + squeeze.flush()


# --- HDF5 and parquet ---


def mutate_numbers(content: bytes, rng: random.Random) -> bytes:
    """Replace an integer that looks like a size, in place: HDF5 and parquet keep checksums of few.

    An integer "looks like" one where its eight bytes hold a value below a million.
    """
    if len(content) < 16:
        return mutate_bytes(content, rng)
    data = bytearray(content)
    for _ in range(200):
        at = rng.randrange(len(data) - 8)
        if 0 < int.from_bytes(data[at : at + 8], "little") < 1_000_000:
            value = rng.choice(_NUMBERS) % (1 << 64)
            data[at : at + 8] = value.to_bytes(8, "little")
            return bytes(data)
    return mutate_bytes(content, rng)


def mutate_names(content: bytes, rng: random.Random) -> bytes:
    """Replace a run of letters by another of the same length."""
    words = list(re.finditer(rb"[A-Za-z_\-/.]{3,40}", content))
    if not words:
        return mutate_bytes(content, rng)
    word, other = rng.choice(words), rng.choice(words)
    new = rng.choice((other.group(), b"../../x", b"\xff" * 8, b"/", word.group().upper()))
    new = new[: len(word.group())].ljust(len(word.group()), rng.choice((b"\0", b"x")))
    return content[: word.start()] + new + content[word.end() :]


_BY_ENDING: tuple[tuple[str, Mutator], ...] = (
    (".json", mutate_json),
    (".zarray", mutate_json),
    (".zgroup", mutate_json),
    (".zattrs", mutate_json),
    (".zmetadata", mutate_json),
    (".csv", mutate_text),
    (".tsv", mutate_text),
    (".txt", mutate_text),
    (".npy", mutate_npy),
    (".npz", mutate_zip),
    (".zip", mutate_zip),
    (".gz", mutate_gzip),
    *((ending, mutate) for ending in (".h5", ".h5ad", ".nc", ".parquet")
      for mutate in (mutate_numbers, mutate_names, mutate_bytes)),
)  # fmt: skip
