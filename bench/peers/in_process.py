#!/usr/bin/env python3
"""tracestep.step beside PyTorch's own best step, in one process on one GPU: equal, then timed in turns.

    bench/peers/in_process.py [--program build-cuda/tracestep] [--output FILE.json] [--budget 420]

Equal: ten steps of a small module in float32 against the same in float64 by PyTorch; the largest error of loss and
weights, beside PyTorch's own in float32. Timed: five modules in bf16 with float32 weights, AdamW and clipping, a gated one
of this file and those of pytorch/bench_captured.py; PyTorch's is torch.compile(mode="reduce-overhead") with fused AdamW.
Rounds of both in turns; a step is timed by the host, from a synchronised device to a synchronised device, over several
steps. Peaks are of PyTorch's allocator, which both sides use, from the module's making on to the fifth step, capture,
compilation and recording included: bytes of tensors, and bytes that the allocator took from the device. Ours has what the
library allocates itself on top. A peak above PyTorch's, or above what was planned by more than a hundredth, ends with
status 1. "Kept" is the time of the first step after the optimizer's betas have changed: the
capture is there, the program is planned and compiled anew.
"""
import argparse
import copy
import json
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench/peers/pytorch")]
import tracestep  # noqa: E402

START = time.monotonic()


class Block(nn.Module):
    def __init__(self, width, heads, gated):
        super().__init__()
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.heads, self.gated = heads, gated
        self.ln1, self.ln2 = norm(width), norm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        inner = width * 8 // 3 // 64 * 64 if gated else 4 * width
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False) if gated else None

    def forward(self, x):
        n = self.ln1(x)
        q, k, v = (m(n).unflatten(2, (self.heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        n = self.ln2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n) if self.gated else F.gelu(self.up(n), approximate="tanh"))


class Model(nn.Module):
    """Loss of next tokens; `gated`: RMSNorm and SwiGLU, else LayerNorm and GELU."""

    def __init__(self, vocab, width, layers, heads, context, gated):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads, gated) for _ in range(layers))
        self.ln, self.head = (nn.RMSNorm if gated else nn.LayerNorm)(width), nn.Linear(width, vocab, bias=False)
        for p in self.parameters():
            nn.init.normal_(p, 1.0 if p.dim() < 2 else 0.0, 0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), targets.flatten())


SMALL = dict(vocab=67, width=64, layers=2, heads=4, context=32, gated=False)
GATED = dict(vocab=32000, width=1024, layers=6, heads=16, context=1024, gated=True)
# name -> rows, length; of bench_captured.py but for the first
TIMED = {"gated": (4, 1024), "course": (4, 512), "nanogpt": (8, 1024), "gpt2": (8, 1024), "qwen2.5-0.5b": (4, 2048)}


def model_of(name, length):
    """A module in float32 on the GPU, the size of its vocabulary, and whether it shifts labels itself."""
    if name == "gated":
        return Model(**GATED).cuda(), GATED["vocab"], False
    import bench_captured

    with torch.device("cuda"):
        module, vocab = bench_captured.module_of(name, length)
    return module.cuda(), vocab, name in bench_captured.CONFIGS


def batch(vocab, rows, length, seed):
    x = torch.randint(0, vocab, (rows, length + 1), generator=torch.Generator().manual_seed(seed)).cuda()
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, **options)


def plain(model, optimizer, data, clip=1.0):
    optimizer.zero_grad(set_to_none=True)
    loss = model(*data)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return float(loss.detach())


def equal():
    """Errors against float64 after ten steps: ours and PyTorch's."""
    torch.manual_seed(0)
    ours = Model(**SMALL).cuda()
    theirs, exact = copy.deepcopy(ours), copy.deepcopy(ours).double()
    optimizers = [adamw(m) for m in (ours, theirs, exact)]
    step = tracestep.step(ours, optimizer=optimizers[0], clip=1.0)
    losses = []
    for i in range(10):
        data = batch(SMALL["vocab"], 4, 32, i)
        losses.append((float(step(*data)), plain(theirs, optimizers[1], data), plain(exact, optimizers[2], data)))
    torch.cuda.synchronize()

    def apart(model):
        return max(float((p.double() - q).abs().max()) for p, q in zip(model.parameters(), exact.parameters()))

    row = {"loss_error": max(abs(a - c) for a, _, c in losses), "loss_error_pytorch": max(abs(b - c) for _, b, c in losses),
           "weight_error": apart(ours), "weight_error_pytorch": apart(theirs), "losses": losses}
    data = batch(SMALL["vocab"], 4, 32, 99)  # one of theirs on our weights and moments, then one of ours
    mixed = [plain(ours, optimizers[0], data), float(step(*data))], [plain(exact, optimizers[2], data) for _ in range(2)]
    row["mixed_loss_error"] = max(abs(a - b) for a, b in zip(*mixed))
    step.release()
    return row


def memory_from_here():
    """A function of the peaks from here on, beside what is there now: bytes of tensors, and bytes taken from the device."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    return lambda: (torch.cuda.max_memory_allocated() - allocated, torch.cuda.max_memory_reserved() - reserved)


def timed(name, rounds, steps):
    """Milliseconds a step, in turns, and peaks."""
    rows, length = TIMED[name]
    torch.manual_seed(0)
    peaks = memory_from_here()
    model, vocab, shifts = model_of(name, length)
    ids, targets = batch(vocab, rows, length, 1)
    data = {"input_ids": ids, "labels": ids} if shifts else {"ids": ids, "targets": targets}
    begin = time.monotonic()
    optimizer = adamw(model)
    step = tracestep.step(model, optimizer=optimizer, clip=1.0, check=False, precision="bf16", attention="flash")
    first = float(step(**data))
    torch.cuda.synchronize()
    row = {"name": name, "first_step_s": time.monotonic() - begin, "first_loss": first}
    for group in optimizer.param_groups:
        group["betas"] = (0.9, 0.96)
    begin = time.monotonic()
    step(**data)
    torch.cuda.synchronize()
    row["kept_s"] = time.monotonic() - begin
    for _ in range(3):
        step(**data)
    torch.cuda.synchronize()
    row |= {f"step_{k}": v for k, v in step.bytes().items()}
    row["peak_bytes"], row["reserved_bytes"] = (peak + step.bytes()["own"] for peak in peaks())

    peaks = memory_from_here()
    other = model_of(name, length)[0]
    fused = adamw(other, fused=True)
    begin = time.monotonic()

    def loss_of(*tensors):
        out = other(**dict(zip(data, tensors)))
        return out if isinstance(out, torch.Tensor) else out.loss

    compiled = torch.compile(loss_of, dynamic=False, mode="reduce-overhead")

    def theirs():
        fused.zero_grad(set_to_none=True)
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(*data.values())
        loss.backward()
        nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        fused.step()
        return loss

    row["first_loss_pytorch"] = float(theirs().detach())
    for _ in range(4):
        theirs()
    torch.cuda.synchronize()
    row["compile_s_pytorch"] = time.monotonic() - begin
    row["peak_bytes_pytorch"], row["reserved_bytes_pytorch"] = peaks()
    times = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for side, run in (("ours", lambda: step(**data)), ("theirs", theirs)):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                run()
            torch.cuda.synchronize()
            times[side].append((time.perf_counter() - begin) / steps * 1e3)
    row |= {"ms": statistics.median(times["ours"]), "ms_pytorch": statistics.median(times["theirs"]), "rounds": times}
    row["gain"] = row["ms_pytorch"] / row["ms"]
    step.release()
    return row


def table(rows):
    """A line for each module; whether memory is as it must be."""
    columns = {"ms": "ms", "ms_pytorch": "PyTorch", "gain": "ratio"} | {
        key: label for name, label in (("peak_bytes", "MiB"), ("reserved_bytes", "reserved"))
        for key, label in ((name, label), (name + "_pytorch", "PyTorch"))} | {"step_peak": "planned"}
    print(f"{'module':14}" + "".join(f"{label:>10}" for label in columns.values()))
    is_right = True
    for row in rows:
        cells = [row[key] / 2**20 if key.endswith(("bytes", "bytes_pytorch", "step_peak")) else row[key] for key in columns]
        above = [why for why, limit in (("above PyTorch's", row["peak_bytes_pytorch"]), ("above the plan", 1.01 * row["step_peak"]))
                 if row["peak_bytes"] > limit]
        print(f"{row['name']:14}" + "".join(f"{x:10.3f}" if x < 100 else f"{x:10.1f}" for x in cells), *above)
        is_right = is_right and not above
    return is_right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build-cuda/tracestep"))
    parser.add_argument("--output")
    parser.add_argument("--budget", type=float, default=420, help="seconds, behind which no module is begun")
    parser.add_argument("--modules", default=",".join(TIMED))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    tracestep.use(options.program)
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rows": []}

    def keep():
        if options.output:
            pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")

    result["equal"] = equal()
    print({k: v for k, v in result["equal"].items() if k != "losses"}, flush=True)
    keep()
    for name in options.modules.split(","):
        if time.monotonic() - START > options.budget:
            print(f"{name}: left out, the budget is used", flush=True)
            continue
        try:
            result["rows"].append(timed(name, options.rounds, options.steps))
            print({k: v for k, v in result["rows"][-1].items() if k != "rounds"}, flush=True)
        except Exception as problem:  # the other module is measured all the same
            print(f"{name}: {type(problem).__name__}: {problem}", flush=True)
            import traceback
            traceback.print_exc()
        keep()
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    good = result["equal"]
    ok = (good["loss_error"] < 1e-4 and good["mixed_loss_error"] < 1e-3
          and good["weight_error"] < 2 * good["weight_error_pytorch"] + 1e-6)
    print("equal" if ok else "NOT EQUAL")
    return 0 if table(result["rows"]) and ok else 1


if __name__ == "__main__":
    sys.exit(main())
