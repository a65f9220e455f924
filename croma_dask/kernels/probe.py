"""Inverted-file search: which clusters a row probes, and the walk over a tile of probed pairs.

A row *probes* its nearest clusters: fully (`FULL`, every row of the cluster is a candidate), or,
further out, only for its SO or its OS rows. Every pair that is multiplied is offered to both of its
rows, so a row also meets those that probe its own cluster. A pair that both sides probe turns up
twice; it is taken once, by rank of the probe and then by position.

The probes of a row are codes `cluster * 8 + flags`, ascending.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.constants import GLOBAL, OS, SO
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.select import append, keep_least, offer
from croma_dask.kernels.typing import F32, I32, I64, Scalar

FULL = 1
"""Flag of a cluster all of whose rows are candidates."""

PROBE_SO = 2
PROBE_OS = 4
"""Flags of a cluster of which only the SO or the OS rows are."""

_FIRST = 128
"""Clusters that are put in order at first; then as many again, as long as a row walks on."""

_STRETCH = 64

ALL_ROWS, OWN_ROWS, OTHER_ROWS = 0, 1, 2

_WORTH_CUTTING = 4096
"""Pairs of a typed tile below which it is not cut."""

_FOREMOST = np.int64(-(1 << 62))
"""Makes the key of a cluster less than that of any other one."""


@inlined
def count_types(
    pointer: I64, cluster: I32, other: I32, count: I32, level: int, own: int, out: I64
) -> None:
    """Rows of one level of a column in each cluster that have another level of the other one."""
    out[:] = 0
    for e in range(pointer[level], pointer[level + 1]):
        if other[e] != own:
            out[cluster[e]] += count[e]


@kernel
def walk(
    scores: F32, home: I32, label: I32, confounder: I32, order: I32,
    own_group: I64, own_so: I64, own_os: I64,
    size: I64,
    label_pointer: I64, label_cluster: I32, label_other: I32, label_count: I32,
    confounder_pointer: I64, confounder_cluster: I32, confounder_other: I32,
    confounder_count: I32,
    probes: int, need_all: int, need_so: int, need_os: int,
    pointer: I64, codes: I32,
) -> None:  # fmt: skip
    """Choose the clusters that every row of a block probes.

    Parameters
    ----------
    scores
        (n, C) half squared distances of the rows to the centres, not negative.
    home, label, confounder
        (n,) own cluster and codes.
    order
        (n,) the order in which rows are done, equal types together.
    own_group, own_so, own_os
        (n,) rows of the own group: all, and those that would be SO and OS rows.
    size
        (C,) rows of each cluster.
    label_pointer, label_cluster, label_other, label_count
        For each label the clusters that hold rows of it, by confounder; and the same for each
        confounder by label.
    probes
        Clusters that are probed fully, at least.
    need_all, need_so, need_os
        Candidates that have to be met besides the own group's: of any type, and of each type.
    pointer, codes
        (n + 1,) and (n * C,) the result.
    """
    n, n_clusters = scores.shape
    keys = np.empty(n_clusters, np.int64)
    so_count = np.empty(n_clusters, np.int64)
    os_count = np.empty(n_clusters, np.int64)
    # Rows are done in another order than they lie: room of C codes each, closed up at the end.
    found = np.zeros(n, np.int64)
    last_label, last_confounder = -1, -1
    for at in range(n):
        r = order[at]
        if label[r] != last_label or confounder[r] != last_confounder:
            last_label, last_confounder = label[r], confounder[r]
            count_types(
                label_pointer, label_cluster, label_other, label_count, last_label,
                last_confounder, so_count,
            )  # fmt: skip
            count_types(
                confounder_pointer, confounder_cluster, confounder_other, confounder_count,
                last_confounder, last_label, os_count,
            )  # fmt: skip
        for c in range(n_clusters):
            d = np.float32(max(np.float32(0.0), scores[r, c]))
            keys[c] = (np.int64(d.view(np.int32)) << np.int64(32)) | np.int64(c)
        # Before all others, which may be at distance 0 too: many equal rows share their centres.
        keys[home[r]] = np.int64(home[r]) | _FOREMOST
        done = min(n_clusters, _FIRST)
        keep_least(keys, n_clusters, done)
        keys[:done].sort()
        everything = need_all + own_group[r] if need_all > 0 else 0
        so = need_so + own_so[r] if need_so > 0 else 0
        os = need_os + own_os[r] if need_os > 0 else 0
        met, met_so, met_os = 0, 0, 0
        base = r * n_clusters
        n_codes = 0
        for rank in range(n_clusters):
            full = rank < probes or met < everything
            if not full and met_so >= so and met_os >= os:
                break
            if rank == done:
                # As many again: to sort all of them would be most of the work in large cohorts.
                more = min(n_clusters - done, done)
                rest = keys[done:]
                keep_least(rest, n_clusters - done, more)
                rest[:more].sort()
                done += more
            near = np.int64(keys[rank] & np.int64(0xFFFFFFFF))
            flags = 0
            if full:
                flags = FULL
                met += size[near]
                met_so += so_count[near]
                met_os += os_count[near]
            else:
                if met_so < so and so_count[near] > 0:
                    flags |= PROBE_SO
                    met_so += so_count[near]
                if met_os < os and os_count[near] > 0:
                    flags |= PROBE_OS
                    met_os += os_count[near]
            if flags:
                codes[base + n_codes] = np.int32(near * 8 + flags)
                n_codes += 1
        codes[base : base + n_codes].sort()
        found[r] = n_codes
    pointer[0] = 0
    for r in range(n):
        lo, base = pointer[r], r * n_clusters
        for e in range(found[r]):
            codes[lo + e] = codes[base + e]
        pointer[r + 1] = lo + found[r]


@kernel
def needed_radius(
    scores: F32, home: I32, label: I32, confounder: I32, query: I32, target: I32, size: I64,
    label_pointer: I64, label_cluster: I32, label_other: I32, label_count: I32,
    confounder_pointer: I64, confounder_cluster: I32, confounder_other: I32,
    confounder_count: I32,
    out: I64,
) -> None:  # fmt: skip
    """How far each query has to walk until it reaches a cluster.

    `out[p]` becomes (clusters, SO rows, OS rows) that row `query[p]` has met before it comes to
    cluster `target[p]`. Arrays otherwise as in `walk`; equal types stand best together.
    """
    n_clusters = scores.shape[1]
    so_count = np.empty(n_clusters, np.int64)
    os_count = np.empty(n_clusters, np.int64)
    last_label, last_confounder = -1, -1
    for p in range(query.shape[0]):
        r, goal = query[p], target[p]
        if label[r] != last_label or confounder[r] != last_confounder:
            last_label, last_confounder = label[r], confounder[r]
            count_types(
                label_pointer, label_cluster, label_other, label_count, last_label,
                last_confounder, so_count,
            )  # fmt: skip
            count_types(
                confounder_pointer, confounder_cluster, confounder_other, confounder_count,
                last_confounder, last_label, os_count,
            )  # fmt: skip
        out[p, 0], out[p, 1], out[p, 2] = 0, 0, 0
        if goal == home[r]:
            continue
        # In the order of the walk: what rounding has brought below 0 counts as 0.
        limit = max(np.float32(0.0), scores[r, goal])
        for c in range(n_clusters):
            d = max(np.float32(0.0), scores[r, c])
            if c == home[r] or d < limit or (d == limit and c < goal):
                out[p, 0] += 1
                out[p, 1] += so_count[c]
                out[p, 2] += os_count[c]


@inlined
def flags_of(pointer: I64, codes: I32, row: int, cluster: int) -> int:
    """Return the flags with which a row probes a cluster; 0 where it does not."""
    lo, hi = pointer[row], pointer[row + 1]
    least = cluster * 8
    while lo < hi:
        mid = (lo + hi) // 2
        if codes[mid] < least:
            lo = mid + 1
        else:
            hi = mid
    if lo < pointer[row + 1] and codes[lo] < least + 8:
        return int(codes[lo] - least)
    return 0


@inlined
def is_ours(flag: int, back: int, own: Scalar, other: Scalar) -> bool:
    """Whether a pair is taken here, where the row probes with `flag` and the other one `back`.

    A full probe of either side meets the pair for good; of two equal probes the row that comes
    first has it.
    """
    if flag != FULL and back & FULL:
        return False
    if back & flag:
        return bool(own < other)
    return True


@kernel
def scan_probed(
    dots: F32, flag: int, rows: I32, columns: I32, length: I32, start: I32,
    half_i: F32, label_i: I32, confounder_i: I32, group_i: I32, position_i: I32, cluster_i: I32,
    half_j: F32, label_j: I32, confounder_j: I32, group_j: I32, position_j: I32,
    pointer_j: I64, codes_j: I32,
    take_i: bool, keys_i: I64, fill_i: I32, threshold_i: F32, limit_i: F32,
    take_j: bool, keys_j: I64, fill_j: I32, threshold_j: F32, limit_j: F32,
) -> None:  # fmt: skip
    """Offer every pair of a tile of probed pairs to both of its rows.

    `dots[r, c]` is the product of row `rows[r]` of range I, which probes the cluster of the columns
    with `flag`, and row `columns[c]` of range J. With `FULL` all pairs are offered, otherwise those
    of the flag's type alone; each to all lists of its type, the one of any type among them.
    """
    n_rows, n_columns = dots.shape
    only = GLOBAL if flag == FULL else (SO if flag == PROBE_SO else OS)
    half = np.empty(n_columns, np.float32)
    limit = np.empty((3, n_columns), np.float32)
    run_end = np.empty(n_columns, np.int32)
    end = n_columns
    for c in range(n_columns - 1, -1, -1):
        j = columns[c]
        half[c] = half_j[j]
        if c + 1 < n_columns:
            k = columns[c + 1]
            if label_j[j] != label_j[k] or confounder_j[j] != confounder_j[k]:
                end = c + 1
        run_end[c] = end
        for q in range(3):
            if not take_j:
                limit[q, c] = -np.inf
            else:
                limit[q, c] = limit_j[q, j]
    hits = np.empty(_STRETCH, np.int32)
    zero = np.float32(0.0)
    lowest = np.float32(-np.inf)
    for r in range(n_rows):
        i = rows[r]
        h, g, own = half_i[i], group_i[i], np.int64(position_i[i])
        line = dots[r]
        c = 0
        while c < n_columns:
            end = run_end[c]
            j0 = columns[c]
            same_label = label_i[i] == label_j[j0]
            same_confounder = confounder_i[i] == confounder_j[j0]
            kind = GLOBAL
            if same_label and not same_confounder:
                kind = SO
            elif same_confounder and not same_label:
                kind = OS
            if (only != GLOBAL and kind != only) or (kind == GLOBAL and length[GLOBAL] == 0):
                c = end
                continue
            column_limit = limit[kind]
            while c < end:
                stop = min(end, c + _STRETCH)
                mine = lowest
                if take_i:
                    mine = limit_i[kind, i]
                w = stop - c
                ln = line[c:stop]
                hs = half[c:stop]
                cl = column_limit[c:stop]
                near = np.int32(0)
                for x in range(w):
                    near += np.int32(h + hs[x] - ln[x] < max(mine, cl[x]))
                if near > 0:
                    n = 0
                    for x in range(w):
                        hits[n] = x
                        n += h + hs[x] - ln[x] < max(mine, cl[x])
                    for at in range(n):
                        x = hits[at]
                        j = columns[c + x]
                        if group_j[j] == g:
                            continue
                        back = flags_of(pointer_j, codes_j, j, cluster_i[i])
                        if not is_ours(flag, back, own, np.int64(position_j[j])):
                            continue
                        d = np.float32(max(zero, h + hs[x] - ln[x]))
                        high = np.int64(np.float32(d).view(np.int32)) << np.int64(32)
                        if take_i and d < limit_i[kind, i]:
                            offer(
                                keys_i, fill_i, threshold_i, limit_i, length, start,
                                i, kind, d, high | np.int64(position_j[j]),
                            )  # fmt: skip
                        if take_j and d < limit_j[kind, j]:
                            offer(
                                keys_j, fill_j, threshold_j, limit_j, length, start,
                                j, kind, d, high | own,
                            )  # fmt: skip
                            for q in range(3):
                                limit[q, c + x] = limit_j[q, j]
                c = stop


@inlined
def multiply(
    flag: int, rows: I32, columns: I32, length: I32, start: I32, left: F32, right: F32, buffer: F32,
    centred_i: F32, half_i: F32, label_i: I32, confounder_i: I32, group_i: I32, position_i: I32,
    cluster_i: I32,
    centred_j: F32, half_j: F32, label_j: I32, confounder_j: I32, group_j: I32, position_j: I32,
    pointer_j: I64, codes_j: I32,
    take_i: bool, keys_i: I64, fill_i: I32, threshold_i: F32, limit_i: F32,
    take_j: bool, keys_j: I64, fill_j: I32, threshold_j: F32, limit_j: F32,
) -> None:  # fmt: skip
    """Multiply rows with columns in tiles, and offer the pairs."""
    for j0 in range(0, columns.shape[0], right.shape[0]):
        some = columns[j0 : j0 + right.shape[0]]
        m = some.shape[0]
        for c in range(m):
            right[c] = centred_j[some[c]]
        for i0 in range(0, rows.shape[0], left.shape[0]):
            part = rows[i0 : i0 + left.shape[0]]
            n = part.shape[0]
            for r in range(n):
                left[r] = centred_i[part[r]]
            tile = buffer[: n * m].reshape((n, m))
            np.dot(left[:n], right[:m].T, tile)
            scan_probed(
                tile, flag, part, some, length, start,
                half_i, label_i, confounder_i, group_i, position_i, cluster_i,
                half_j, label_j, confounder_j, group_j, position_j, pointer_j, codes_j,
                take_i, keys_i, fill_i, threshold_i, limit_i,
                take_j, keys_j, fill_j, threshold_j, limit_j,
            )  # fmt: skip


@kernel
def sweep_groups(
    groups: I64, whose: int, flag_of: I32, key_of: I32, edges_of: I64, rows_of: I32, starts: I64,
    stops: I64, length: I32, start: I32, left: F32, right: F32, buffer: F32,
    centred_i: F32, half_i: F32, label_i: I32, confounder_i: I32, group_i: I32, position_i: I32,
    cluster_i: I32,
    centred_j: F32, half_j: F32, label_j: I32, confounder_j: I32, group_j: I32, position_j: I32,
    pointer_j: I64, codes_j: I32,
    take_i: bool, keys_i: I64, fill_i: I32, threshold_i: F32, limit_i: F32,
    take_j: bool, keys_j: I64, fill_j: I32, threshold_j: F32, limit_j: F32,
) -> int:  # fmt: skip
    """Let groups of rows of range I meet the clusters of range J that they probe alike.

    Parameters
    ----------
    groups
        Which groups (index/probing.py).
    whose
        `ALL_ROWS` of a group, `OWN_ROWS`, whose own cluster it is, or `OTHER_ROWS`.
    flag_of, key_of, edges_of, rows_of
        The groups of range I.
    starts, stops
        Places of the cluster of each group in range J.
    left, right, buffer
        Room for gathered rows, gathered columns, and a tile.

    Returns
    -------
    int
        Pairs that were multiplied.

    Notes
    -----
    A typed tile is cut where more than a quarter of it would be pairs that are alike in both
    columns: the clusters nearby hold mostly rows of the very same type, which no typed list wants.
    """
    pairs = 0
    for at in range(groups.shape[0]):
        t = groups[at]
        lo, hi = starts[at], stops[at]
        flag = flag_of[t]
        rows = rows_of[edges_of[t] : edges_of[t + 1]]
        if whose != ALL_ROWS:
            kept = np.empty(rows.shape[0], np.int32)
            n = 0
            for r in rows:
                kept[n] = r
                n += (lo <= r < hi) == (whose == OWN_ROWS)
            rows = kept[:n]
        columns = np.empty(hi - lo, np.int32)
        n = 0
        level = label_j if flag == PROBE_SO else confounder_j
        for j in range(lo, hi):
            columns[n] = j
            n += flag == FULL or level[j] == key_of[t]
        columns = columns[:n]
        if rows.shape[0] == 0 or columns.shape[0] == 0:
            continue
        own = confounder_i if flag == PROBE_SO else label_i
        other = confounder_j if flag == PROBE_SO else label_j
        total = rows.shape[0] * columns.shape[0]
        alike = 0
        if flag != FULL and total > _WORTH_CUTTING:
            c = 0
            while c < columns.shape[0]:
                stop = c + 1
                while stop < columns.shape[0] and other[columns[stop]] == other[columns[c]]:
                    stop += 1
                same = 0
                for r in rows:
                    same += own[r] == other[columns[c]]
                alike += same * (stop - c)
                c = stop
        if 4 * alike <= total:
            pairs += total
            multiply(
                flag, rows, columns, length, start, left, right, buffer, centred_i, half_i,
                label_i, confounder_i, group_i, position_i, cluster_i, centred_j, half_j, label_j,
                confounder_j, group_j, position_j, pointer_j, codes_j, take_i, keys_i, fill_i,
                threshold_i, limit_i, take_j, keys_j, fill_j, threshold_j, limit_j,
            )  # fmt: skip
            continue
        c = 0
        while c < columns.shape[0]:
            stop = c + 1
            while stop < columns.shape[0] and other[columns[stop]] == other[columns[c]]:
                stop += 1
            apart = np.empty(rows.shape[0], np.int32)
            n = 0
            for r in rows:
                apart[n] = r
                n += own[r] != other[columns[c]]
            if n > 0:
                pairs += n * (stop - c)
                multiply(
                    flag, apart[:n], columns[c:stop], length, start, left, right, buffer,
                    centred_i, half_i, label_i, confounder_i, group_i, position_i, cluster_i,
                    centred_j, half_j, label_j, confounder_j, group_j, position_j, pointer_j,
                    codes_j, take_i, keys_i, fill_i, threshold_i, limit_i, take_j, keys_j, fill_j,
                    threshold_j, limit_j,
                )  # fmt: skip
            c = stop
    return pairs


@kernel
def offer_listed(
    rows: I32, candidates: I32, centred: F32, half: F32, label: I32, confounder: I32, group: I32,
    position: I32,
    length: I32, start: I32, keys: I64, fill: I32, threshold: F32, limit: F32,
) -> None:  # fmt: skip
    """Offer to the list of any type of row `rows[r]` the rows `candidates[r]` of its own range.

    A candidate stands once in a row; -1 is none. One of a type may have been met before, by a typed
    probe, and is then left out.
    """
    for r in range(rows.shape[0]):
        i = rows[r]
        for e in range(candidates.shape[1]):
            j = candidates[r, e]
            if j < 0 or group[j] == group[i]:
                continue
            if (label[j] == label[i]) != (confounder[j] == confounder[i]):
                met = False
                lo = start[GLOBAL]
                for at in range(lo, lo + fill[GLOBAL, i]):
                    met |= (keys[i, at] & np.int64(0xFFFFFFFF)) == position[j]
                if met:
                    continue
            product = np.float32(0.0)
            for t in range(centred.shape[1]):
                product += centred[i, t] * centred[j, t]
            d = np.float32(max(np.float32(0.0), half[i] + half[j] - product))
            if d < threshold[GLOBAL, i]:
                high = np.int64(np.float32(d).view(np.int32)) << np.int64(32)
                key = high | np.int64(position[j])
                append(keys, fill, threshold, limit, length, start, i, GLOBAL, key)
