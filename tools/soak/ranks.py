#!/usr/bin/env python3
"""Steps of 2 to 8 ranks in every combination of form, precision, granularity, executor and
recomputation.

Each cell must train to the bits of one rank that accumulates as many batches (eager, without
shards or divided weights), to the same bits in processes of MPI (up to four), hold exactly the
bytes that are predicted for it, and print a loss like that of one rank.
The cells are all combinations in a fixed shuffle, and --seed says which COUNT of them.
Usage: ranks.py [--program build/tracestep] [--count CELLS] [--seed S]
"""
import argparse
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
AXES = {
    "replicas": [2, 3, 4, 8],
    "form": ["bucket=tensor", "bucket=64KiB", "bucket=all", "overlap=off", "shard=1",
             "shard=1,bucket=64KiB", "shard=2", "shard=2,bucket=64KiB", "shard=3",
             "shard=3,prefetch=2", "shard=3,overlap=off", "tp=2", "tp=2,sp", "bucket=all,tp=2",
             "shard=1,tp=2,sp", "shard=3,tp=2"],
    "--precision": ["fp32", "bf16", "fp16", "bf16-pure"],
    "--ops": ["fused", "primitive"],
    "--attention": ["naive", "flash"],
    "--executor": ["eager", "arena"],
    "--recompute": ["none", "blocks", "nested"],
}
BATCH = 24
MODEL = ["--d-model", "32", "--d-ff", "48", "--layers", "2", "--heads", "2", "--context", "16",
         "--threads", "1"]
STEPS = 5
MOST_PROCESSES = 4
LOSS_TOLERANCE = {"fp32": 1e-5}  # relative; narrower formats:
NARROW_TOLERANCE = 2e-2


def cells():
    every = [dict(zip(AXES, values)) for values in itertools.product(*AXES.values())]
    random.Random(0).shuffle(every)
    return every


def run(program, command, flags, folder, processes=1):
    launch = ["launch", "-n", str(processes), "--"] if processes > 1 else []
    done = subprocess.run([program, *launch, command, *MODEL, *map(str, flags)], cwd=folder,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command} {' '.join(map(str, flags))}: {done.stderr.strip()}")
    return done.stdout


def train(program, flags, name, folder, processes=1):
    """(weights, last loss)"""
    run(program, "train", ["--tokens", "tokens.bin", "--token-dtype", "uint16", "--vocab", 64,
                           "--steps", STEPS, "--save", name, "--log", name + ".jsonl",
                           *flags], folder, processes)
    last = (folder / (name + ".jsonl")).read_text().splitlines()[-1]
    return (folder / name).read_bytes(), json.loads(last)["loss"]


def training_faults(program, cell, flags, folder):
    replicas = cell["replicas"]
    ranks = replicas * (2 if "tp=2" in cell["form"] else 1)
    parallel = ["--parallel", f"dp={replicas},{cell['form']}"]
    weights, loss = train(program, [*flags, "--batch", BATCH, *parallel], "ranks", folder)
    _, alone = train(program, [*flags, "--batch", BATCH], "alone", folder)
    if abs(loss - alone) > LOSS_TOLERANCE.get(cell["--precision"], NARROW_TOLERANCE) * alone:
        yield f"a loss of {loss}, and {alone} of one rank"
    if ranks <= MOST_PROCESSES:
        other, _ = train(program, [*flags, "--batch", BATCH, *parallel], "processes", folder,
                         processes=ranks)
        if weights != other:
            yield "other weights in processes than in threads"
    if cell["--executor"] != "eager" or cell["--precision"] == "bf16-pure":
        return  # compiled programs and narrow sums round elsewhere
    if cell["form"].startswith("shard") or ranks > replicas:
        return  # the norm of all gradients is summed by parts
    accumulated, _ = train(program, [*flags, "--batch", BATCH // ranks, "--accumulate", ranks],
                           "accumulated", folder)
    if weights != accumulated:
        yield "other weights than one rank that accumulates"


def byte_faults(program, cell, flags, folder):
    parallel = ["--parallel", f"dp={cell['replicas']},{cell['form']}", "--batch", BATCH,
                "--mode", "step"]
    rows = json.loads(run(program, "memory", [*flags, *parallel, "--format", "json"],
                          folder))["rows"]
    if rows[0]["measured_peak_bytes"] != rows[0]["predicted_peak_bytes"]:
        yield f"a peak of {rows[0]['measured_peak_bytes']} for {rows[0]['predicted_peak_bytes']}"


def faults_of(program, cell, folder):
    flags = [word for name, value in cell.items() if name.startswith("--")
             for word in (name, value)]
    try:
        yield from training_faults(program, cell, flags, folder)
        yield from byte_faults(program, cell, flags, folder)
    except RuntimeError as error:
        yield str(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/tracestep")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    every = cells()
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        dice = random.Random(args.seed)
        tokens = [dice.randrange(64) for _ in range(20000)]
        (folder / "tokens.bin").write_bytes(b"".join(t.to_bytes(2, "little") for t in tokens))
        for i in range(args.count):
            cell = every[((args.seed - 1) * args.count + i) % len(every)]
            for fault in faults_of(pathlib.Path(args.program).resolve(), cell, folder):
                faults += 1
                print(*cell.values(), fault, flush=True)
    print(json.dumps({"battery": "ranks", "runs": args.count, "faults": faults, "ok": faults == 0}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
