#!/usr/bin/env python3
"""Holds what is predicted of PyTorch's memory to a card.

    python tools/soak/pytorch_memory.py allocator --settings expandable_segments:True --output F
    python tools/soak/pytorch_memory.py ops --output F
    python tools/soak/pytorch_memory.py modules [--only NAME,…] [--precision fp32,bf16] [--update foreach,fused]
                                                [--checkpoint off,on] [--steps 2] [--output F]

`allocator` runs sequences of allocations, worked examples and random ones, and writes what the allocator said after
each: fixtures of the replay's tests. `ops` and `modules` run steps twice, on the card and under fake tensors, and
print where the two lists of allocations differ; pytorch_rows.py compares peaks of larger modules. Needs a card; no program of ours.
"""
import argparse
import difflib
import gzip
import json
import os
import pathlib
import sys
import time
import warnings

os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).resolve().parent)]

import torch  # noqa: E402

warnings.filterwarnings("ignore")
MIB = 1 << 20

# Sizes in turn; a negative number frees that one, counted from 1. With a limit on the device's bytes where there is one.
WORKED = {
    "1": [1], "2": [MIB, MIB, 512], "3": [MIB + 1], "4": [10 * MIB - 1, 10 * MIB],
    "5": [11 * MIB, -1, 21 * MIB // 2], "6": [30 * MIB, -1, 12 * MIB, 18 * MIB], "7": [8 * MIB, 8 * MIB, -1, 9 * MIB],
    "8": [40 * MIB, -1, 50 * MIB], "9": [256 * MIB, -1, 40 * MIB]}
LIMITS = {"8": 64 * MIB}


def random_sequence(seed, count, largest):
    """Sizes over all magnitudes, and frees, by a generator of its own: the same everywhere."""
    state, out, alive, number = seed, [], [], 0

    def draw(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (state >> 33) % n
    for _ in range(count):
        if alive and draw(100) < 45 + min(len(alive), 40) // 4:
            out.append(-alive.pop(draw(len(alive))))
        else:
            number += 1
            out.append(1 + draw(1 << (1 + draw(largest))))
            alive.append(number)
    return out


def run_sequence(sequence, limit):
    """[size or free, allocated, reserved, active, retries, whether it failed] after each."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else (limit + 0.5) / total)
    start = torch.cuda.memory_stats()
    rows, alive, number = [], {}, 0
    for size in sequence:
        failed = 0
        if size < 0:
            alive.pop(-size, None)
        else:
            number += 1
            try:
                alive[number] = torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                failed = 1
        s = torch.cuda.memory_stats()
        rows.append([size, *(s[f"{k}.all.current"] - start[f"{k}.all.current"] for k in
                             ("allocated_bytes", "reserved_bytes", "inactive_split_bytes")),
                     s["num_alloc_retries"] - start["num_alloc_retries"], failed])
    s = torch.cuda.memory_stats()
    peak = [s[f"{k}.all.peak"] for k in ("allocated_bytes", "reserved_bytes")]
    alive.clear()
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()
    return {"limit": limit, "peak": peak, "rows": rows}


def allocator(options):
    """Sequences under the settings that PYTORCH_CUDA_ALLOC_CONF has, which are set before the first allocation."""
    torch.cuda.init()
    found = {"settings": options.settings, "torch": torch.__version__, "card": torch.cuda.get_device_name(0),
             "total": torch.cuda.get_device_properties(0).total_memory, "free": torch.cuda.mem_get_info(0)[0],
             "worked": {}, "random": []}
    for name, sequence in WORKED.items():
        found["worked"][name] = run_sequence(sequence, LIMITS.get(name))
        last = found["worked"][name]
        print(options.settings or "default", name, "allocated", last["rows"][-1][1], "reserved", last["rows"][-1][2], "peaks", *last["peak"],
              "retries", last["rows"][-1][4])
    for seed, count, largest, limit in ((1, 500, 24, None), (2, 500, 27, None), (3, 400, 29, 900 * MIB), (4, 400, 27, 260 * MIB), (6, 400, 28, 400 * MIB),
                                        (5, 300, 24, 32 * MIB)):
        one = run_sequence(random_sequence(seed, count, largest), limit)
        found["random"].append({"seed": seed, "count": count, "largest": largest, **one})
        print(options.settings or "default", "random", seed, "peaks", *one["peak"], "retries", one["rows"][-1][4], "failed",
              sum(r[5] for r in one["rows"]))
    write(options.output, found)


def write(path, data):
    if path:
        with gzip.open(path, "wt") as file:
            json.dump(data, file, separators=(",", ":"))


def site(frames):
    """The innermost frames that say something: of the library's own code, or of Python."""
    names = []
    for frame in frames:
        name, file = frame["name"], frame["filename"]
        if any(part in name + file for part in ("CachingAllocator", "CapturedTraceback", "unwind", "c10::", "at::detail::empty",
                                                "StorageImpl", "TensorImpl", "make_tensor", "_ops::", "wrap_kernel", "redispatch")):
            continue
        if name and name != "??":
            names.append(f"{name[:100]}" + (f" {file.rpartition('/')[2]}:{frame['line']}" if file.endswith(".py") else ""))
        if len(names) == 3:
            break
    return " < ".join(names)


def on_card(run, frames=True):
    """Runs it while the allocator records; its events as [size, site] and [-index of the birth], with stats."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context="alloc" if frames else None, stacks="all")
    before = torch.cuda.memory_stats()
    run()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    events, alive = [], {}
    for e in snapshot["device_traces"][0]:
        if e["action"] == "alloc":
            alive[e["addr"]] = len(events)
            events.append([e["size"], site(e.get("frames", ())), e["stream"]])
        elif e["action"] == "free_completed":
            events.append([-1 - alive.pop(e["addr"], -1)])
        elif e["action"].startswith("segment") or e["action"] == "oom":
            events.append([0, e["action"], e["size"]])
    keys = ("allocated_bytes.all.peak", "allocated_bytes.all.current", "reserved_bytes.all.peak", "reserved_bytes.all.current",
            "requested_bytes.all.peak")
    return events, {k: after[k] for k in keys}, {k: before[k] for k in keys}


def compared(real, fake, names):
    """Where the lists differ: [only on the card, only in the recording], each with its site."""
    a = [(e[0], "+") if e[0] > 0 else (real[-1 - e[0]][0] if e[0] < 0 else 0, "-") for e in real if e[0] != 0 and e[0] != -0]
    sizes = {e[0]: e[1] for e in fake if len(e) > 1}
    b = [(e[1], "+") if len(e) > 1 else (sizes[-e[0]], "-") for e in fake]
    real = [e for e in real if e[0] != 0]
    out = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for at in range(i, j):
            out.append(["card", a[at][1], a[at][0], real[at][1] if real[at][0] > 0 else ""])
        for at in range(k, m):
            e = fake[at]
            out.append(["fake", b[at][1], b[at][0], f"{names[e[2]]} {names[e[3]]} {names[e[4]]} {e[5]}" if len(e) > 1 else ""])
    return out


def rounded_peak(events):
    """Of the recording, each rounded up to 512, with what each workspace has on this card."""
    alive, now, peak = {}, 0, 0
    for e in events:
        if len(e) > 1:
            alive[e[0]] = max(e[1], 0) + 511 & ~511
            now += alive[e[0]]
            peak = max(peak, now)
        else:
            now -= alive.pop(-e[0])
    return peak, now


def trained(precision, clip):
    """A step as people write it."""
    def step(module, optimizer, args, keywords):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = module(*args, **keywords)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        else:
            module.zero_grad(set_to_none=True)
    return step


def beside(name, build, options, precision, update, again, frames, steps=2, clip=True,
           attention="auto"):
    """One row: a module's steps on the card and under fake tensors."""
    from tracestep._capture.recorded_step import record_step
    updates = {"foreach": dict(foreach=True), "fused": dict(fused=True)}
    step = trained(precision, clip)

    def made(device):
        with torch.device(device):
            module, args, keywords = build(again)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, **updates[update]) if update else None
        return module, optimizer, args, keywords
    began = time.time()
    module, optimizer, args, keywords = made("meta")
    fake = record_step(module, (args, keywords), step, optimizer, steps=steps, attention=attention)
    recorded_s = time.time() - began

    def run():
        module, optimizer, args, keywords = made("cuda")
        for _ in range(steps):
            step(module, optimizer, args, keywords)
    began = time.time()
    real, stats, before = on_card(run, frames)
    peak, end = rounded_peak(fake["events"])
    row = {"module": name, "precision": precision, "update": update, "checkpoint": again, "steps": steps,
           "card_peak": stats["allocated_bytes.all.peak"], "card_reserved": stats["reserved_bytes.all.peak"],
           "card_before": before["allocated_bytes.all.current"], "card_requested": stats["requested_bytes.all.peak"], "fake_peak": peak, "record_s": round(recorded_s, 2),
           "card_s": round(time.time() - began, 2), "events": [len(real), len(fake["events"])]}
    differences = compared(real, fake["events"], fake["names"]) if frames else []
    return row, {"row": row, "real": real if frames else [e[:1] + e[2:] for e in real], "fake": fake, "differences": differences}


def tracked(made, step, steps):
    """The peak that MemTracker of PyTorch counts."""
    from torch.distributed._tools.mem_tracker import MemTracker
    module, optimizer, args, keywords = made("cuda")
    tracker = MemTracker()
    tracker.track_external(module, optimizer)
    with tracker:
        for i in range(steps):
            step(module, optimizer, args, keywords)
            if i == 0:
                tracker.reset_mod_stats()
    return max((row["Total"] for device, row in tracker.get_tracker_snapshot("peak").items() if device.type == "cuda"), default=0)


def modules(options, table=None):
    """All combinations."""
    import pytorch_modules
    table = table or {**pytorch_modules.SMALL, **pytorch_modules.LARGE}
    names = options.only.split(",") if options.only else list(pytorch_modules.SMALL)
    everything = []
    for name in names:
        for precision in options.precision.split(","):
            for update in options.update.split(","):
                for again in options.checkpoint.split(","):
                    try:
                        row, all_of_it = beside(name, table[name], options, precision, update, again == "on",
                                                options.frames, options.steps)
                    except Exception as problem:  # of any type: the other rows are worth having
                        print(json.dumps({"module": name, "precision": precision, "update": update, "checkpoint": again,
                                          "error": f"{type(problem).__name__}: {str(problem)[:300]}"}), flush=True)
                        continue
                    everything.append(all_of_it)
                    print(json.dumps(row), flush=True)
    write(options.output, everything)


def ops(options):
    """Small modules of one op each: what its kernels allocate inside."""
    from pytorch_ops import CASES
    everything = []
    part, _, parts = options.shard.partition("/")
    for i, (name, (build, precision, update)) in enumerate(CASES.items()):
        if i % int(parts) != int(part):
            continue
        if options.only and not any(part in name for part in options.only.split(",")):
            continue
        try:
            kind = next((k for k in ("flash", "efficient", "cudnn", "math") if k in name.split()), "auto")
            row, all_of_it = beside(name, build, options, precision, update, False, True, steps=2, clip="clip" in name,
                                    attention=kind)
        except Exception as problem:  # of any type: the other cases are worth having
            print(name, "ERROR", type(problem).__name__, str(problem)[:300], flush=True)
            continue
        everything.append(all_of_it)
        print(name, row["card_peak"], row["fake_peak"], len(all_of_it["differences"]), flush=True)
    write(options.output, everything)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("allocator", "ops", "modules"))
    parser.add_argument("--settings", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--update", default="foreach")
    parser.add_argument("--checkpoint", default="off")
    parser.add_argument("--shard", default="0/1", help="of ops: I/N takes every N-th case")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--frames", action="store_true", help="with the stacks of allocations, and where the lists differ")
    parser.add_argument("--output")
    options = parser.parse_args()
    {"allocator": allocator, "ops": ops, "modules": modules}[options.part](options)


if __name__ == "__main__":
    main()
