#!/usr/bin/env python3
"""Recordings of PyTorch on a card, and what `tracestep read` makes of them beside PyTorch's own sums.

    python tools/soak/card_recordings.py record models FOLDER   on a card: three models, eager and compiled
    python tools/soak/card_recordings.py record pairs FOLDER    ten recordings of a step, ten with a wider block
    python tools/soak/card_recordings.py check FOLDER           anywhere: what differs, by --tracestep PROGRAM

Of each model: a trace, a snapshot, key_averages() and memory_stats(). `check` holds calls and times of ops and kernels
and the peak of the snapshot against them, and compares every two recordings of pairs: modules found where nothing
changed, and the wider block where it did. Exit status 1: a peak differs, a module was found where nothing changed, or the
wider block was not found. Takes no part in the tests: it needs a card.
"""
import argparse
import gzip
import itertools
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def steps_of(module, inputs, named=None, compiled=False):
    """A step under bf16 autocast: forward, backward, fused AdamW."""
    import torch
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    forward = torch.compile(module) if compiled else module

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(*inputs, **(named or {}))
        loss.backward()
        optimizer.step()
    return step


def record(path, step, steps, with_stack=True):
    """Writes the trace of `steps` steps, after two that are left out, to path, gzip; returns the profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=with_stack,
                 schedule=schedule(wait=0, warmup=2, active=steps, repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(str(path))) as profiler:
        for _ in range(steps + 2):
            step()
            profiler.step()
        torch.cuda.synchronize()
    return profiler


def write(path, value):
    with gzip.open(path, "wt", compresslevel=4) as file:
        json.dump(value, file)


def record_model(folder, name, build, compiled):
    import torch
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=200000)
    with torch.device("cuda"):
        module, inputs, named = build(False)
    step = steps_of(module.cuda(), inputs, named, compiled)
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(str(folder / f"{name}.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    write(folder / f"{name}.stats.json.gz", dict(torch.cuda.memory_stats()))
    profiler = record(folder / f"{name}.trace.json.gz", step, 6, not compiled)
    write(folder / f"{name}.averages.json.gz",
          [{"name": e.key, "calls": e.count, "host": e.device_type.name == "CPU", "host_us": e.cpu_time_total,
            "host_self_us": e.self_cpu_time_total, "device_us": e.device_time_total}
           for e in profiler.key_averages()])


def record_models(folder):
    from pytorch_modules import gpt, published, vit
    sizes = dict(vocab_size=4096, hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
                 num_key_value_heads=4)
    for name, build in (("gpt", gpt(8192, 1024, 4, 16, 8, 1024)), ("llama", published("llama", 8, 1024, **sizes)),
                        ("vit", vit(512, 4, 8, 16, 224, 32))):
        for compiled in (False, True):
            record_model(folder, name + ("-compiled" if compiled else "-eager"), build, compiled)


def record_pairs(folder):
    """Steps of four perceptron blocks among attention; in b* one of them, some 8 % of a step, is 3.1 % wider."""
    import torch
    from pytorch_modules import Block, ids_of

    class Perceptron(torch.nn.Sequential):
        def __init__(self, c, hidden):
            super().__init__(torch.nn.Linear(c, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, c))

    class Stack(torch.nn.Module):
        def __init__(self, c=1024, v=8192, more=0):
            super().__init__()
            self.tokens, self.head = torch.nn.Embedding(v, c), torch.nn.Linear(c, v, bias=False)
            self.layers = torch.nn.ModuleList(
                m for i in range(4) for m in (Block(c, 16), Perceptron(c, 4 * c + (more if i == 1 else 0))))

        def forward(self, ids, targets):
            x = self.tokens(ids)
            for layer in self.layers:
                x = layer(x) if isinstance(layer, Block) else x + layer(x)
            return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())

    steps = {}
    for name, more in (("a", 0), ("b", 128)):
        with torch.device("cuda"):
            steps[name] = steps_of(Stack(more=more), (ids_of(8192, 16, 1024), ids_of(8192, 16, 1024)))
    for i in range(10):
        for name, step in steps.items():
            record(folder / f"{name}{i}.trace.json.gz", step, 20)


def answer_of(program, *arguments):
    run = subprocess.run([program, "read", *map(str, arguments), "--format", "json"], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"read {' '.join(map(str, arguments))}: {run.stderr.strip()}")
    answer = json.loads(run.stdout)
    return answer.get("tables", answer)


def load(path):
    with gzip.open(path, "rt") as file:
        return json.load(file)


def check_model(program, trace):
    """Prints how many ops and kernels differ from key_averages(); True where the snapshot's peak is PyTorch's own."""
    stem = str(trace).removesuffix(".trace.json.gz")
    tables = answer_of(program, trace, "--host-ops")
    steps = tables["recording"]["rows"][0]["steps"]
    ops, kernels = {row["op"]: row for row in tables["ops"]["rows"]}, {}
    for row in tables["kernels"]["rows"]:
        kernels[row["kernel"]] = kernels.get(row["kernel"], 0) + steps * row["mean_ms"] * 1e3
    count, differ = {True: 0, False: 0}, {True: 0, False: 0}
    for row in load(f"{stem}.averages.json.gz"):
        name, on_host = row["name"], row["host"]
        if name.startswith("ProfilerStep"):
            continue
        count[on_host] += 1
        if on_host:
            ours = ops.get(name)
            differ[on_host] += (ours is None or ours["calls"] != row["calls"] or
                                abs(ours["total_ms"] * 1e3 - row["host_us"]) > 0.02 + 1e-6 * row["host_us"] or
                                abs(ours["self_ms"] * 1e3 - row["host_self_us"]) > 0.05)
        else:
            differ[on_host] += abs(kernels.get(name, 0) - row["device_us"]) > 0.02 + 1e-3 * row["device_us"]
    state = answer_of(program, f"{stem}.pickle")["snapshot"]["rows"][0]
    theirs = load(f"{stem}.stats.json.gz")
    peaks = [(state["peak_bytes"], theirs["requested_bytes.all.peak"]), (state["most_reserved_bytes"], theirs["reserved_bytes.all.peak"])]
    print(f"{pathlib.Path(stem).name}: {count[True]} ops, {differ[True]} differ; {count[False]} kernels, "
          f"{differ[False]} differ; peak and reserved {'equal' if all(a == b for a, b in peaks) else peaks}")
    return all(a == b for a, b in peaks)


def modules_that_differ(program, a, b):
    return {row["name"] for row in answer_of(program, a, b)["rows"]
            if row["level"] in ("module", "whole module") and row["verdict"] in ("slower", "faster")}


def check_pairs(program, folder):
    sides = {side: sorted(folder.glob(f"{side}?.trace.json.gz")) for side in "ab"}
    same = [modules_that_differ(program, *pair) for side in sides.values() for pair in itertools.combinations(side, 2)]
    wider = [modules_that_differ(program, *pair) for pair in itertools.product(*sides.values())]
    found = sum(any("Perceptron_1" in name for name in names) for names in wider)
    print(f"{len(same)} pairs of one step: a module differs in {sum(map(bool, same))}")
    print(f"{len(wider)} pairs with a wider block: found in {found}; named: {sorted(set().union(*wider))}")
    return not any(same) and found >= 0.99 * len(wider)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("act", choices=["record", "check"])
    parser.add_argument("rest", nargs="+", metavar="models|pairs FOLDER | FOLDER")
    parser.add_argument("--tracestep", default="build/tracestep")
    args = parser.parse_args()
    folder = pathlib.Path(args.rest[-1])
    if args.act == "record":
        folder.mkdir(parents=True, exist_ok=True)
        {"models": record_models, "pairs": record_pairs}[args.rest[0]](folder)
        return 0
    traces = sorted(folder.glob("*-*.trace.json.gz"))
    is_right = all([check_model(args.tracestep, trace) for trace in traces])
    if any(folder.glob("a?.trace.json.gz")):
        is_right = check_pairs(args.tracestep, folder) and is_right
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
