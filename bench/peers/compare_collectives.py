#!/usr/bin/env python3
"""Times the collectives of tracestep and of PyTorch (NCCL) between GPUs of one machine, in turns.

Every turn issues all calls of a size one behind the other and takes the median of the times between
two results on the first rank. Prints one row per collective and size, with the best of the turns.

    python3 bench/peers/compare_collectives.py --ranks 2 --bytes 1MiB,16MiB,256MiB,1GiB
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def bytes_of(text):
    return int(text[:-3]) * UNITS[text[-3:]]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", default="1MiB,4MiB,16MiB,64MiB,256MiB,1GiB")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--tracestep", default=str(ROOT / "build-cuda/tracestep"))
    return parser.parse_args()


def torch_rank(rank, options, queue):
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{options.port}", rank=rank,
                            world_size=options.ranks)
    for name in COLLECTIVES:
        for size in map(bytes_of, options.bytes.split(",")):
            whole = torch.zeros(size // 4, device="cuda")
            part = torch.zeros(size // 4 // options.ranks, device="cuda")
            call = {"all_reduce": lambda: dist.all_reduce(whole),
                    "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
                    "all_gather": lambda: dist.all_gather_into_tensor(whole, part)}[name]
            for _ in range(5):
                call()
            torch.cuda.synchronize()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(options.calls + 1)]
            marks[0].record()
            for mark in marks[1:]:
                call()
                mark.record()
            torch.cuda.synchronize()
            times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
            if rank == 0:
                queue.put((name, size, statistics.median(times)))
    dist.destroy_process_group()


def run_torch(options):
    import torch.multiprocessing as processes
    queue = processes.get_context("spawn").SimpleQueue()
    processes.spawn(torch_rank, (options, queue), nprocs=options.ranks)
    found = {}
    while not queue.empty():
        name, size, ms = queue.get()
        found[name, size] = ms
    return found


def run_tracestep(options):
    command = [options.tracestep, "launch", "-n", str(options.ranks), "--", "comm", "--device",
               "cuda", "--bytes", options.bytes, "--calls", str(options.calls), "--format", "json"]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {out.returncode}\n{out.stderr}")
    return {(row["collective"], row["bytes"]): row["median_ms"]
            for row in json.loads(out.stdout)["rows"]}


def main():
    options = parse_arguments()
    turns = {"torch": [], "tracestep": []}
    for _ in range(options.turns):
        turns["tracestep"].append(run_tracestep(options))
        turns["torch"].append(run_torch(options))
    print("| collective | bytes | PyTorch ms | tracestep ms | PyTorch / tracestep |")
    print("|---|---:|---:|---:|---:|")
    for name in COLLECTIVES:
        for size in map(bytes_of, options.bytes.split(",")):
            best = {who: min(turn[name, size] for turn in all_turns)
                    for who, all_turns in turns.items()}
            print(f"| {name} | {size} | {best['torch']:.4f} | {best['tracestep']:.4f} | "
                  f"{best['torch'] / best['tracestep']:.3f} |")


if __name__ == "__main__":
    main()
