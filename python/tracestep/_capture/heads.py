"""Attention in parts, its heads that were repeated for groups, and rotary positions on both of its sides."""
from __future__ import annotations

import math
from collections.abc import Callable

import torch

from . import masks
from .composites import attended
from .find import Finder, Rule, core, either, made_by, scaled, uncast
from .program import Node, Val


def attention(f: Finder, node: Node) -> Val | None:
    """softmax(mask(cap(scale · q kᵀ))) v; an einsum joins the dimensions before rows and columns."""
    weights, v = unjoined(uncast(node.inputs[0])), node.inputs[1]
    soft = made_by(uncast(weights), "softmax")
    if not soft or node.attrs.get("transpose_b"):
        return None
    scores, kind = _masked(f, uncast(soft.inputs[0]))
    scores, scale, shift = scaled(scores)
    cap = 0.0
    if tanh := made_by(scores, "tanh"):
        scores, inner, more = scaled(tanh.inputs[0])
        shift, cap, scale = shift + more, scale, inner * scale
    product = made_by(unjoined(uncast(scores)), "matmul")
    if kind is None or shift or not product or scale <= 0 or cap < 0:
        return None
    q, k = product.inputs
    if not product.attrs.get("transpose_b"):
        k = _turned(f, k)
    lead = weights.shape[:-2]
    if math.prod(lead) != math.prod(q.shape[:-2]):
        return None
    q, k, v = (f.p.reshape(x, lead + x.shape[-2:]) if math.prod(x.shape[:-2]) == math.prod(lead) else x for x in (q, k, v))
    if k.shape != v.shape or q.shape[-1] != v.shape[-1] or not q.dtype == k.dtype == v.dtype == node.outputs[0].dtype:
        return None
    return f.p.reshape(attended(f.w, q, k, v, scale, kind, cap), node.outputs[0].shape)


def unjoined(v: Val) -> Val:
    """The value before dimensions in front of the last two were joined or split."""
    while (node := made_by(v, "reshape")) and node.inputs[0].rank > 1 and node.inputs[0].shape[-2:] == v.shape[-2:]:
        v = node.inputs[0]
    return v


def _turned(f: Finder, k: Val) -> Val:
    """The value with its last two axes exchanged, before the other axes were joined."""
    whole = unjoined(k)
    axes = [*range(whole.rank - 2), whole.rank - 1, whole.rank - 2]
    if node := made_by(whole, "permute"):
        y = f.p.permute(node.inputs[0], [node.attrs["axes"][a] for a in axes])
    else:
        y = f.p.permute(whole, axes)
    return f.p.reshape(y, (*k.shape[:-2], k.shape[-1], k.shape[-2]))


def _masked(f: Finder, scores: Val) -> tuple[Val, masks.Seen | None]:
    """Scores before constant masks were added, and the combination of these masks."""
    left: torch.Tensor | None = None
    while found := _mask_of(f, scores):
        scores, is_seen = found[0], masks.seen(found[1])
        if is_seen is None or left is not None and left.shape != is_seen.shape:
            return scores, None
        left = is_seen if left is None else left & is_seen
    return scores, masks.Seen(False) if left is None else masks.kind_of(left)


def _mask_of(f: Finder, scores: Val) -> tuple[Val, torch.Tensor] | None:
    if node := made_by(scores, "add"):
        for a, b in either(node):
            mask = f.tensor(b)
            if mask is not None and mask.dim() >= 2 and mask.numel() > 1:
                return uncast(a), mask
    if node := made_by(scores, "select"):
        condition, a, b = node.inputs
        mask = f.tensor(condition)
        for is_turned, (x, other) in enumerate(((a, b), (b, a))):
            fill = made_by(core(other), "fill")
            if mask is not None and mask.dim() >= 2 and fill and fill.attrs["value"] < -1e4:
                return uncast(x), ~mask if is_turned else mask
    return None


def shared_heads(f: Finder, node: Node) -> Val | None:
    """Uses keys and values once that were repeated for groups of heads, and writes rotary positions as pairs."""
    q, k, v = node.inputs
    single = [_unrepeated(x) for x in (k, v)]
    if all(single) and single[0].shape == single[1].shape:  # type: ignore[union-attr]
        k, v = single  # type: ignore[assignment]
    if "rope" in f.w.patterns and (turned := [_rotated(f, x) for x in (q, k)]) and all(turned):
        q, k = (rotate() for rotate in turned)  # type: ignore[misc]
    if (q, k, v) == node.inputs:
        return None
    return f.p.call("attention", (q, k, v), (q.dtype, q.shape), **node.attrs)


def _unrepeated(x: Val) -> Val | None:
    """The [B,H,T,D] from which [B,H·g,T,D] was made by repeating each head g times."""
    wide = made_by(x, "reshape")
    repeated = made_by(wide.inputs[0], "broadcast") if wide else None
    if not repeated or x.rank != 4 or repeated.outputs[0].rank != 5:
        return None
    source, shape = repeated.inputs[0], repeated.outputs[0].shape
    if source.shape != (*shape[:2], 1, *shape[3:]) or shape[1] * shape[2] != x.shape[1]:
        return None
    if (node := made_by(source, "reshape")) and node.inputs[0].shape == (*shape[:2], *shape[3:]):
        return node.inputs[0]
    return None


def _rotated(f: Finder, x: Val) -> Callable[[], Val] | None:
    """Writes x·cos + rotate(x)·sin as the op; the part of a head that is not rotated stays."""
    rest: list[Val] = []
    if (parts := made_by(x, "concat")) and parts.attrs["axis"] == x.rank - 1 and len(parts.inputs) == 2:
        x, rest = parts.inputs[0], [parts.inputs[1]]
    if found := _rotated_pairs(f, x):
        return lambda: _rope(f, *found, False, rest)
    total = made_by(x, "add")
    for left, right in either(total) if total else []:
        for source, cos in either(left.node) if made_by(left, "mul") else []:  # type: ignore[arg-type]
            for turned, sin in either(right.node) if made_by(right, "mul") else []:  # type: ignore[arg-type]
                tables = [f.tensor(t) for t in (cos, sin)]
                if any(t is None for t in tables):
                    continue
                by_halves = _is_turned(turned, source)
                flat = [_table(t, by_halves) for t in tables if t is not None] if by_halves is not None else []
                if flat and all(t is not None for t in flat):
                    return lambda: _rope(f, source, flat, bool(by_halves), rest)  # type: ignore[arg-type]
    return None


def _rotated_pairs(f: Finder, x: Val) -> tuple[Val, list[torch.Tensor]] | None:
    """The x of (a·cos - b·sin, a·sin + b·cos), side by side, for the pairs (a, b) of x."""
    pairs = made_by(x, "reshape")
    whole = made_by(pairs.inputs[0], "concat") if pairs else None
    if not whole or whole.outputs[0].shape != (*x.shape[:-1], x.shape[-1] // 2, 2) or len(whole.inputs) != 2:
        return None
    terms = [n and [made_by(v, "mul") for v in n.inputs]
             for n in (made_by(core(whole.inputs[0]), "sub"), made_by(core(whole.inputs[1]), "add"))]
    if not all(t and all(t) for t in terms):
        return None
    parts: list[dict[int, torch.Tensor]] = []  # of each term: which of the pair, times what
    source: Val | None = None
    for product in (n for t in terms for n in t):  # type: ignore[union-attr]
        for v, table in either(product):
            picked, values = made_by(core(v), "slice"), f.tensor(table)
            split = made_by(picked.inputs[0], "reshape") if picked else None
            if values is None or not split or split.outputs[0].shape != whole.outputs[0].shape \
                    or source not in (None, split.inputs[0]):
                continue
            source = split.inputs[0]
            parts.append({picked.attrs["start"]: _flat(values)})  # type: ignore[union-attr, dict-item]
            break
    if len(parts) != 4 or any(t is None for p in parts for t in p.values()):
        return None
    (cos,), (sin,) = parts[0].values(), parts[1].values()
    first, second = (parts[2], parts[3]) if 0 in parts[2] else (parts[3], parts[2])
    fits = 0 in parts[0] and 1 in parts[1] and 1 in second and 0 in first and \
        torch.equal(first[0], sin) and torch.equal(second[1], cos)
    return (source, [cos, sin]) if fits and source is not None and source.shape == x.shape else None


def _flat(t: torch.Tensor) -> torch.Tensor | None:
    """A table as [T, width], if it is the same along all axes in front."""
    while t.dim() > 2:
        if not bool((t == t[:1]).all()):
            return None
        t = t[0]
    return t


def _is_turned(turned: Val, x: Val) -> bool | None:
    """True: (-second half, first half) of x; False: each pair as (-second, first); None: neither."""
    half = x.shape[-1] // 2
    whole = made_by(turned, "concat")
    if whole and len(whole.inputs) == 2 and (neg := made_by(whole.inputs[0], "neg")):
        second, first = made_by(neg.inputs[0], "slice"), made_by(whole.inputs[1], "slice")
        if second and first and second.inputs[0] is x and first.inputs[0] is x and \
                (first.attrs["start"], first.attrs["stop"]) == (0, half) and second.attrs["start"] == half \
                and whole.attrs["axis"] == first.attrs["axis"] == second.attrs["axis"] == x.rank - 1:
            return True
    pairs = made_by(turned, "reshape")
    whole = made_by(pairs.inputs[0], "concat") if pairs else None
    if not whole or whole.attrs["axis"] != x.rank or len(whole.inputs) != 2 or whole.outputs[0].shape[-1] != 2:
        return None
    neg = made_by(core(whole.inputs[0]), "neg")
    picked = [made_by(core(v), "slice") for v in ((neg.inputs[0] if neg else whole.inputs[0]), whole.inputs[1])]
    sources = [made_by(n.inputs[0], "reshape") for n in picked if n]
    is_pair = neg and len(sources) == 2 and all(
        s and s.inputs[0] is x and s.outputs[0].shape == (*x.shape[:-1], half, 2) for s in sources)
    return False if is_pair and [n.attrs["start"] for n in picked if n] == [1, 0] else None


def _table(t: torch.Tensor, by_halves: bool) -> torch.Tensor | None:
    """The table [T, D/2] behind one over [..., T, D] in which both elements of a pair are equal."""
    flat = _flat(t)
    if flat is None:
        return None
    half = flat.shape[1] // 2
    a, b = (flat[:, :half], flat[:, half:]) if by_halves else (flat[:, 0::2], flat[:, 1::2])
    return a if torch.equal(a, b) else None


def _rope(f: Finder, x: Val, tables: list[torch.Tensor], by_halves: bool, rest: list[Val]) -> Val:
    cos, sin = (f.w.constant(t, is_table=True) for t in tables)
    y = f.p.call("rope", (x, cos, sin), (x.dtype, x.shape), **({"halves": True} if by_halves else {}))
    return f.p.concat([y, *rest], -1)


HEADS: list[tuple[str, str, Rule]] = [("matmul", "attention", attention), ("attention", "attention", shared_heads)]
