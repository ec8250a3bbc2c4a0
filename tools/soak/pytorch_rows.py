#!/usr/bin/env python3
"""Whole steps of many modules: what PyTorch takes on a card beside what was predicted without one.

    python tools/soak/pytorch_rows.py record --recordings DIR [--only NAME,…]
    python tools/soak/pytorch_rows.py predict --recordings DIR --program FOLDER --tracestep PATH --rows FILE.csv
    python tools/soak/pytorch_rows.py run --rows FILE.csv --output DIR [--seconds 235] [--at-once 12]

`record` runs each row's steps under fake tensors, `predict` asks `memory --as pytorch` about each recording (FOLDER is
any captured module, whose place the recordings take), `run` needs the card: each row runs in a process of its own, so
that its steps are the first ones there, several at a time. Rows are jsonl; events.gz has what the allocator wrote down.
"""
import argparse
import csv
import gc
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for cards must not keep children from using them
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).resolve().parent)]
GIB, OUTSIDE_MIB = 1 << 30, 1024
FIELDS = ("group", "kind", "module", "precision", "update", "checkpoint", "settings", "limit_bytes", "allocated", "reserved",
          "least", "runs_out", "asked_bytes")
EXPANDABLE, LIMITED = ("gpt-medium", "modernbert", "bart"), ("gpt-medium", "llama-own", "translator-6")


def jobs():
    """All rows, in an order in which an early end costs least."""
    import pytorch_modules as zoo
    tuned = [*zoo.LARGER, *zoo.KEPT]
    every = [(p, u, c) for c in ("off", "on") for p in ("bf16", "fp32") for u in ("foreach", "fused")]

    def rows(group, names, ways, kind="step", **more):
        return [{"group": group, "kind": kind, "module": n, "precision": p, "update": u, "checkpoint": c, **more}
                for p, u, c in ways for n in names]
    one = [("bf16", "foreach", "off")]
    four = [every[i] for i in (0, 3, 5, 6)]  # each precision, optimizer and checkpointing twice
    return [*rows("fresher", zoo.FRESHER, four), *rows("fresh", zoo.FRESH, every), *rows("fresh", zoo.FRESH, one, "tracker"),
            *rows("tuned", tuned, every[:1]),
            *(row for share in (1.02, 0.98, 0.7) for row in rows("tuned", LIMITED, one, f"limit {share}")),
            *rows("tuned", EXPANDABLE, one, "settings", settings="expandable_segments:True"),
            *rows("tuned", tuned, every[1:]), *rows("tuned", tuned, one, "tracker"),
            *rows("mended", zoo.MENDED, [("bf16", "foreach", "off"), ("fp32", "fused", "on")])]


def name_of(row):
    return "-".join(row[k] for k in ("module", "precision", "update", "checkpoint"))


def made(row, device):
    import pytorch_modules as zoo
    import torch
    with torch.device(device if device == "meta" else "cpu"):  # then moved, as most people do
        module, args, keywords = {**zoo.ROWS, **zoo.MENDED, **zoo.FRESHER}[row["module"]](row["checkpoint"] == "on")
    module = module.to(device)
    args, keywords = [x.to(device) for x in args], {name: x.to(device) for name, x in keywords.items()}
    return module, torch.optim.AdamW(module.parameters(), lr=1e-4, **{row["update"]: True}), args, keywords


def record(options):
    """A recording of each row that has none yet; several of these may run beside each other."""
    import pytorch_memory
    from tracestep._capture.recorded_step import record_step
    folder = pathlib.Path(options.recordings)
    folder.mkdir(parents=True, exist_ok=True)
    for row in jobs():
        path = folder / f"{name_of(row)}.json"
        if path.exists() or options.only and row["module"] not in options.only.split(","):
            continue
        path.write_text("")  # taken
        module, optimizer, args, keywords = made(row, "meta")
        step = record_step(module, (args, keywords), pytorch_memory.trained(row["precision"], True), optimizer)
        path.write_text(json.dumps(step))
        print(path.name, len(step["events"]), flush=True)


def predict(options):
    """The rows with what the program says of them."""
    folder = pathlib.Path(options.rows).with_suffix(".program")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(options.program, folder)
    least = {}

    def asked(recording, row):
        shutil.copyfile(recording, folder / "pytorch-step.json")
        flags = ["--alloc-conf", row["settings"]] if row.get("settings") else []
        if row.get("limit_bytes"):
            flags += ["--memory-limit", f"{int(row['limit_bytes']) + (OUTSIDE_MIB << 20)}B"]
        out = subprocess.run([options.tracestep, "memory", "--program", str(folder), "--as", "pytorch", "--outside-mib",
                              str(OUTSIDE_MIB), "--device", "cuda", "--format", "json", *flags], capture_output=True, text=True)
        if out.returncode != 0:
            raise SystemExit(f"{recording}: {out.stderr[-500:]}")
        return json.loads(out.stdout)["rows"][0]

    with open(options.rows, "w", newline="") as file:
        file.write(f'"{FIELDS[0]}",{",".join(FIELDS[1:])}\r\n')  # as our own files begin
        writer = csv.DictWriter(file, FIELDS)
        for row in jobs():
            recording = pathlib.Path(options.recordings) / f"{name_of(row)}.json"
            if not recording.exists() or recording.stat().st_size == 0:
                print("no recording of", name_of(row))
                continue
            if row["kind"].startswith("limit"):
                row["limit_bytes"] = int(least[name_of(row)] * float(row["kind"].split()[1])) >> 21 << 21
            said = asked(recording, row)
            row.update(allocated=said["peak_bytes"], reserved=said["reserved_bytes"],
                       least=said["needed_bytes"] - (OUTSIDE_MIB << 20))
            least.setdefault(name_of(row), row["least"])
            if said["where"]:
                row.update(runs_out=f"{said['site'] or said['op']} {said['part']} {said['step']}", asked_bytes=said["asked_bytes"])
            writer.writerow(row)
    shutil.rmtree(folder)


def events_of(snapshot):
    """[number of requested bytes], -1 - the index of a birth, or [what, bytes] of a segment or a failure."""
    out, alive = [], {}
    for e in snapshot["device_traces"][0]:
        if e["action"] == "alloc":
            alive[e["addr"]] = len(out)
            out.append(e["size"])
        elif e["action"] == "free_completed":
            out.append(-1 - alive.pop(e["addr"], -1))
        elif e["action"].startswith("segment") or e["action"] == "oom":
            out.append([e["action"], e["size"]])
    return out


def ran(row, events_path):
    """One row on the card; what went wrong is a field of it."""
    import pytorch_memory
    import torch
    began, out = time.time(), {}
    step = pytorch_memory.trained(row["precision"], True)
    try:
        if row["settings"]:
            torch.cuda.memory._set_allocator_settings(row["settings"])
        if row["kind"] == "tracker":
            return {"tracker": pytorch_memory.tracked(lambda device: made(row, device), step, 2), "s": time.time() - began}
        torch.cuda.init()
        if row["limit_bytes"]:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction((int(row["limit_bytes"]) + 0.5) / total)
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None, stacks="python")
        out["init_s"] = time.time() - began
        one = made(row, "cuda")
        out["made_bytes"] = torch.cuda.memory_allocated()
        for _ in range(2):
            step(*one)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as problem:
        own = [f for f in traceback.extract_tb(problem.__traceback__) if "/soak/" in f.filename]
        last = own[-1]
        out["runs_out"] = f"{last.filename.rpartition('/')[2]}:{last.lineno} {last.name}"
        out["message"] = str(problem)[:300]
    except Exception as problem:  # of any type: the other rows are worth having
        out["error"] = f"{type(problem).__name__}: {str(problem)[:300]}"
    if not (s := torch.cuda.memory_stats()):
        return out
    out.update({k: s[f"{k}_bytes.all.peak"] for k in ("allocated", "reserved", "requested")})
    out.update(retries=s["num_alloc_retries"], ooms=s["num_ooms"], s=time.time() - began)
    snapshot = torch.cuda.memory._snapshot()
    out["expandable"] = snapshot.get("allocator_settings", {}).get("expandable_segments")
    with gzip.open(events_path, "wt") as file:
        file.write(json.dumps({"row": name_of(row), "kind": row["kind"], "events": events_of(snapshot)}, separators=(",", ":")) + "\n")
    return out


def child(row, number, scratch):
    """Runs one row and writes it down; for a process of its own."""
    try:
        found = ran(row, scratch / f"{number}.gz")
    except BaseException as problem:  # even what is no Exception must be told
        found = {"error": f"{type(problem).__name__}: {str(problem)[:300]}"}
    (scratch / f"{number}.json").write_text(json.dumps({**row, "predicted_allocated": row["allocated"],
                                                        "predicted_reserved": row["reserved"],
                                                        "predicted_runs_out": row["runs_out"], **found}))


def warmed():
    """Imports what children need, and makes sure that no card was touched."""
    import pytorch_memory  # noqa: F401
    import pytorch_modules as zoo
    import torch
    gc.disable()
    for name, build in {**zoo.FRESHER, **zoo.FRESH, **zoo.LARGER, **zoo.MENDED, "mistral": zoo.LARGE["mistral"], "gemma": zoo.LARGE["gemma"],
                        "phi3": zoo.LARGE["phi3"], "qwen3": zoo.LARGE["qwen3"]}.items():
        try:
            with torch.device("meta"):
                build(False)
        except Exception as problem:  # of any type: its rows say so, too
            print(name, type(problem).__name__, str(problem)[:200], file=sys.stderr)
    gc.enable()
    gc.collect()
    assert not torch.cuda.is_initialized()


def run(options):
    """As many rows beside each other as memory allows."""
    scratch = pathlib.Path(options.scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    output = pathlib.Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with open(options.rows, newline="") as file:
        rows = list(csv.DictReader(file))
    if not options.separate:
        warmed()
    print(f"warm after {time.time() - began:.1f} s", file=sys.stderr)
    done = False
    waiting, running, most = list(enumerate(rows)), {}, options.gib * GIB
    cost = [int(float(r["reserved"]) * 1.05 + 1.7 * GIB) for r in rows]
    with open(output / "rows.jsonl", "w") as out, open(output / "events.gz", "wb") as events:
        def ended(pid):
            nonlocal done
            number, is_first, done = running.pop(pid), not done, True
            path = scratch / f"{number}.json"
            text = path.read_text() if path.exists() else json.dumps({**rows[number], "error": "the process ended"})
            if is_first and not options.separate and ("fork" in text or "CUDA-capable" in text or "initialization error" in text):
                options.separate = True  # children of one that has imported PyTorch cannot use the card here
                waiting.insert(0, (number, rows[number]))
                return
            out.write(text + "\n")
            out.flush()
            if (path := scratch / f"{number}.gz").exists():
                shutil.copyfileobj(path.open("rb"), events)
                events.flush()
        while waiting or running:
            late = time.time() - began > options.seconds
            if late:
                waiting.clear()
            is_held = running and not done  # the first row shows how rows can be run
            free = 0 if is_held else most - sum(cost[n] for n in running.values())
            fitting = next((i for i, (n, _) in enumerate(waiting) if cost[n] <= free), None)
            if fitting is not None and len(running) < options.at_once:
                number, row = waiting.pop(fitting)
                if options.separate:
                    pid = subprocess.Popen([sys.executable, __file__, "one", "--rows", options.rows, "--number", str(number),
                                            "--scratch", str(scratch)]).pid
                else:
                    pid = os.fork()
                    if pid == 0:
                        child(row, number, scratch)
                        os._exit(0)
                running[pid] = number
                continue
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                ended(pid)
            elif late and time.time() - began > options.seconds + 12:
                for pid in list(running):
                    os.kill(pid, 9)
                    os.waitpid(pid, 0)
                    ended(pid)
            else:
                time.sleep(0.01)
    print(f"done after {time.time() - began:.1f} s", file=sys.stderr)


def one(options):
    """A child without a warm parent."""
    with open(options.rows, newline="") as file:
        child(list(csv.DictReader(file))[options.number], options.number, pathlib.Path(options.scratch))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("record", "predict", "run", "one"))
    parser.add_argument("--recordings")
    parser.add_argument("--only", default="")
    parser.add_argument("--program")
    parser.add_argument("--tracestep", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--rows")
    parser.add_argument("--output")
    parser.add_argument("--scratch", default="/tmp/pytorch-rows")
    parser.add_argument("--seconds", type=float, default=235)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--gib", type=float, default=128)
    parser.add_argument("--separate", action="store_true", help="import PyTorch in each row's process, not once before")
    parser.add_argument("--number", type=int)
    options = parser.parse_args()
    {"record": record, "predict": predict, "run": run, "one": one}[options.part](options)


if __name__ == "__main__":
    main()
