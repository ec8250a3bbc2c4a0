"""Correctness of tracestep's attention against float64, at the bar of an unfused path in torch."""

import dataclasses
import math

import torch


@dataclasses.dataclass
class Case:
    dtype: torch.dtype
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    causal: bool
    kind: str = "normal"  # normal, large (logits of 1e4), equal (all logits), strided, bottom
    deterministic: bool = True
    group: int = 1  # heads of q that share one of k and v
    window: int = 0  # keys that a query sees, its own the last; 0: all
    cap: float = 0.0  # scores s become cap tanh(s / cap); 0: they stay

    def __str__(self):
        dtype = str(self.dtype).replace("torch.", "")
        return (f"{dtype} {self.batch}x{self.heads}x{self.queries}x{self.keys}x{self.width}"
                f"{f' groups of {self.group}' if self.group > 1 else ''}"
                f"{f' window of {self.window}' if self.window else ''}"
                f"{f' cap of {self.cap:g}' if self.cap else ''}"
                f"{' causal' if self.causal else ''} {self.kind}"
                f"{'' if self.deterministic else ' any-order'}")

    @property
    def offset(self):
        return self.keys - self.queries if self.kind == "bottom" else 0


def cases(dtypes, widths):
    sizes = ((1, 1, 1, 1), (2, 3, 128, 128), (1, 2, 257, 131), (1, 2, 127, 509), (1, 1, 1, 300),
             (2, 2, 1021, 1021), (1, 2, 130, 2100), (1, 1, 2050, 2050))
    for dtype in dtypes:
        for width in widths:
            for causal in (False, True):
                for size in sizes:
                    yield Case(dtype, *size, width, causal)
                for kind in ("large", "equal", "strided", "bottom"):
                    yield Case(dtype, 1, 2, 300, 340, width, causal, kind)
                yield Case(dtype, 1, 2, 340, 300, width, causal, "bottom")
                yield Case(dtype, 2, 2, 700, 700, width, causal, deterministic=False)
                for heads, group in ((4, 2), (6, 3), (8, 8)):
                    yield Case(dtype, 2, heads, 513, 513, width, causal, "strided", group=group)
                    yield Case(dtype, 1, heads, 300, 431, width, causal, "bottom", False, group)
                for cap in (0.5, 4.0, 50.0):
                    yield Case(dtype, 1, 2, 513, 513, width, causal, cap=cap)
                    yield Case(dtype, 2, 6, 300, 431, width, causal, "bottom", group=3, cap=cap)
                yield Case(dtype, 1, 2, 300, 340, width, causal, "large", cap=30.0)
                yield Case(dtype, 1, 1, 600, 1100, width, causal, "bottom", cap=20.0)
            for window in (1, 50, 128, 300):
                yield Case(dtype, 1, 2, 777, 777, width, True, window=window)
                yield Case(dtype, 2, 6, 513, 600, width, True, "bottom", group=3, window=window)
                yield Case(dtype, 2, 2, 513, 600, width, True, "bottom", window=window, cap=2.0)
                yield Case(dtype, 1, 2, 340, 300, width, True, deterministic=False, window=window)


def make_inputs(case, generator):
    def tensor(rows, heads):
        shape = (case.batch, heads, rows, case.width)
        if case.kind == "strided":  # [batch, rows, heads, width], seen as the others
            shape = (case.batch, rows, heads, case.width)
        x = torch.randn(shape, device="cuda", generator=generator, dtype=torch.float32)
        x = x.to(case.dtype)
        return x.transpose(1, 2) if case.kind == "strided" else x
    q, g = (tensor(case.queries, case.heads) for _ in range(2))
    k, v = (tensor(case.keys, case.heads // case.group) for _ in range(2))
    if case.kind == "large":
        q = (q * (1e4 / 3 / math.sqrt(case.width))).to(case.dtype)
    if case.kind == "equal":
        k = k[:, :, :1].expand_as(k).contiguous()
    return q, k, v, g


def unfused(case, q, k, v, g):
    """o, lse, dq, dk, dv with the matrix of scores, in the dtype of the operands."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    keys, values = (x.repeat_interleave(case.group, 1) for x in (k, v))
    scores = (q @ keys.transpose(-1, -2)) * (1 / math.sqrt(case.width))
    if case.cap:
        scores = case.cap * torch.tanh(scores / case.cap)
    seen = torch.ones(case.queries, case.keys, dtype=torch.bool, device=q.device)
    if case.causal:
        seen = seen.tril(case.offset)
    if case.window:
        seen = seen.triu(case.offset - case.window + 1)
    some = seen.any(-1, keepdim=True)  # queries that see a key; the others give 0
    scores = scores.masked_fill(~seen & some, -math.inf)
    lse = torch.logsumexp(scores, -1).masked_fill(~some.squeeze(-1), -math.inf)
    o = (torch.softmax(scores, -1) * some) @ values
    return [o.detach(), lse.detach(), *torch.autograd.grad(o, (q, k, v), g)]


def distance(x, y):
    """||x - y|| / ||y||, infinities that agree left out."""
    x, y = x.double(), y.double()
    agree = torch.isinf(y) & (x == y)
    x, y = x.masked_fill(agree, 0.0), y.masked_fill(agree, 0.0)
    return (torch.linalg.vector_norm(x - y) / torch.linalg.vector_norm(y).clamp_min(1e-3)).item()


def poisoned(like, guard=64):
    """A tensor of NaN between guard zones of a pattern, strided as `like`; and the zones."""
    size = like.numel()
    block = torch.full((size + 2 * guard,), 7.0, dtype=like.dtype, device=like.device)
    block[guard:guard + size] = math.nan
    order = sorted(range(like.dim()), key=lambda i: -like.stride(i))
    inner = block[guard:guard + size].view([like.size(i) for i in order])
    view = inner.permute([order.index(i) for i in range(like.dim())])
    return view, (block[:guard], block[guard + size:])


def check_case(library, case, generator, repeats):
    """Worst error over the unfused path's; raises where something is wrong."""
    q, k, v, g = make_inputs(case, generator)
    exact = unfused(case, *(x.double() for x in (q, k, v, g)))
    usual = unfused(case, q, k, v, g)
    options = dict(offset=case.offset, window=case.window, cap=case.cap)
    in_order = dict(options, deterministic=case.deterministic)
    o, o_zones = poisoned(q)
    lse, lse_zones = poisoned(torch.empty(q.shape[:3], dtype=torch.float32, device="cuda"))
    grads, zones = zip(*(poisoned(x) for x in (q, k, v)))
    library.forward(q, k, v, case.causal, o, lse, **options)
    library.backward(q, k, v, o, g, lse, case.causal, list(grads), **in_order)
    results = [o, lse, *grads]
    for pair in (o_zones, lse_zones, *zones):
        for zone in pair:
            assert bool((zone == 7.0).all()), f"{case}: wrote outside a result"
    floor = {torch.float32: 1e-6}.get(case.dtype, 2e-3 if case.dtype == torch.bfloat16 else 3e-4)
    worst = 0.0
    for name, ours, theirs, right in zip(("o", "lse", "dq", "dk", "dv"), results, usual, exact):
        error, bar = distance(ours, right), max(2 * distance(theirs, right), floor)
        scale = torch.linalg.vector_norm(right.double().nan_to_num(0.0, 0.0, 0.0)).item()
        if not error <= bar and scale > 1e-2:
            raise AssertionError(f"{case}: {name} off by {error:.2e}, the bar is {bar:.2e}")
        worst = max(worst, error / bar if scale > 1e-2 else 0.0)
    for _ in range(repeats):
        again, _ = library.forward(q, k, v, case.causal, **options)
        assert torch.equal(again, o), f"{case}: forward differs between runs"
        if case.deterministic:
            others = library.backward(q, k, v, o, g, lse, case.causal, **in_order)
            assert all(torch.equal(a, b) for a, b in zip(others, grads)), (
                f"{case}: backward differs between runs")
    return worst


def run_checks(library, dtypes, widths, repeats):
    """(cases passed, messages of those that failed)."""
    generator = torch.Generator("cuda").manual_seed(1)
    passed, failures = 0, []
    for case in cases(dtypes, widths):
        try:
            check_case(library, case, generator, repeats)
            passed += 1
        except (AssertionError, RuntimeError) as error:
            failures.append(str(error))
    return passed, failures
