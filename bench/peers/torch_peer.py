"""PyTorch as a peer: which builds are there, what may be tuned, how one cell is run.

Knobs are environment variables and bench_step.py flags. Each starts at the option assumed best;
tuning then tries the others one knob at a time and keeps what makes a whole step faster.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

BENCH_STEP = pathlib.Path(__file__).resolve().parent / "pytorch" / "bench_step.py"
BLAS_FOLDERS = ("/usr/lib/x86_64-linux-gnu/openblas-openmp",
                "/usr/lib/aarch64-linux-gnu/openblas-openmp")
WIDE_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184",
               "MALLOC_TOP_PAD_": "67108864"}
SIZED = {
    "small": ["--size", "small"],
    "4x256": ["--d-model", "256", "--d-ff", "1024", "--layers", "4", "--heads", "4"],
}


class Shape(typing.NamedTuple):
    """A model by name and a context; its flags are the same for bench_step.py and tracestep."""

    name: str
    context: int

    @staticmethod
    def parse(text):
        name, _, context = text.partition("@")
        if name not in SIZED or not context.isdigit():
            raise SystemExit(f"[compare_cpu] unknown shape {text!r}; "
                             f"write NAME@CONTEXT with NAME one of {', '.join(SIZED)}")
        return Shape(name, int(context))

    def flags(self, arguments):
        return [*SIZED[self.name], "--context", str(self.context),
                "--batch", str(arguments.batch), "--vocab", str(arguments.vocab)]


def cpu_flags():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(l.split(":")[1].split()) for l in lines if l.startswith("flags")), set())


class Settings:
    """Named choices of one torch process: environment variables and bench_step.py flags."""

    def __init__(self, choices=None):
        self.choices = dict(choices or {})

    def with_choice(self, knob, option):
        return Settings({**self.choices, knob: option})

    def environment(self, knobs):
        merged = {}
        for knob, option in self.choices.items():
            merged.update(knobs[knob][option].get("env", {}))
        return merged

    def flags(self, knobs):
        return [f for knob, option in self.choices.items()
                for f in knobs[knob][option].get("flags", [])]

    def describe(self):
        return ", ".join(f"{k} {v}" for k, v in self.choices.items())


def knobs_for(build):
    """What may be turned, the assumed best option first; options this machine lacks are absent."""
    flags, threads = cpu_flags(), build["threads"]
    knobs = {
        "threads": {str(threads): {"flags": ["--threads", str(threads)],
                                   "env": {"OMP_NUM_THREADS": str(threads)}}},
        "malloc": {"wide+hugepages": {"env": {**WIDE_MALLOC,
                                              "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}},
                   "wide": {"env": WIDE_MALLOC}, "as installed": {}},
    }
    if build["system_blas"]:
        folder = next((f for f in BLAS_FOLDERS if os.path.isdir(f)), None)
        blas = {"openblas-openmp": {"env": {"LD_LIBRARY_PATH": folder}}} if folder else {}
        knobs["blas"] = {**blas, "as installed": {}}
        cores = ["SKYLAKEX"] if "avx512f" in flags else []
        cores += ["ZEN"] if "avx2" in flags else []
        knobs["coretype"] = {c: {"env": {"OPENBLAS_CORETYPE": c}} for c in cores}
        knobs["coretype"]["detected"] = {}
    if "avx512f" in flags:
        knobs["dispatch"] = {c: {"env": {"ATEN_CPU_CAPABILITY": c}} for c in ("avx512", "avx2")}
    knobs["binding"] = {"free": {}, "bound": {"env": {"OMP_PROC_BIND": "true"}}}
    knobs["waiting"] = {"default": {}, "passive": {"env": {"OMP_WAIT_POLICY": "passive"}}}
    knobs["attention"] = {a: {"flags": ["--attention", a]} for a in build["attentions"]}
    knobs["norm"] = {n: {"flags": ["--norm", n]} for n in build["norms"]}
    knobs["adamw"] = {o: {"flags": ["--optimizer", o]} for o in build["optimizers"]}
    return knobs


PROBE = """
import inspect, json, torch, torch.nn.functional as F
adamw = inspect.signature(torch.optim.AdamW.__init__).parameters
fused = "fused" in adamw
if fused:
    try:
        torch.optim.AdamW([torch.zeros(1, requires_grad=True)], fused=True)
    except RuntimeError:
        fused = False
print(json.dumps({
    "version": torch.__version__,
    "attentions": (["auto"] if hasattr(F, "scaled_dot_product_attention") else []) + ["plain"],
    "norms": (["auto"] if hasattr(F, "rms_norm") else []) + ["plain"],
    "optimizers": ["fused"] * fused + ["foreach", "loop"],
    "system_blas": "BLAS_INFO=mkl" not in torch.__config__.show(),
}))
"""


def find_builds(pythons, threads):
    """Asks each interpreter for its torch; those without one are named and left out."""
    builds = []
    for python in pythons:
        try:
            result = subprocess.run([python, "-c", PROBE], capture_output=True, text=True)
        except OSError:
            continue
        if result.returncode != 0:
            note(f"{python}: no usable torch ({(result.stderr.splitlines() or ['?'])[-1]})")
            continue
        build = json.loads(result.stdout)
        build.update(python=python, threads=threads)
        note(f"{python}: torch {build['version']}")
        builds.append(build)
    return builds


def note(text):
    print(text, file=sys.stderr, flush=True)


def run_child(command, environment=None):
    """Runs to the end; returns (stdout, peak resident bytes), or raises with the last message."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err,
                                 env={**os.environ, **(environment or {})})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if child.returncode != 0:
            last = (err.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"{command[0]} ended with {child.returncode}: {last}")
        return out.read(), usage.ru_maxrss * 1024


def run_torch(build, settings, shape, mode, arguments, counts, form="best"):
    """One cell in its own process; `form` is course, best, or compiled (best, torch.compile)."""
    knobs = knobs_for(build)
    command = [build["python"], str(BENCH_STEP), "--form", "course" if form == "course" else "best",
               *shape.flags(arguments), "--mode", mode, "--warmup", str(counts[0]),
               "--steps", str(counts[1]), *settings.flags(knobs), "--cell"]
    if form == "course":  # its optimizer is its own
        command += ["--optimizer", "auto"]
    if form == "compiled":
        command += ["--compile"]
    output, _ = run_child(command, settings.environment(knobs))
    return json.loads(output.splitlines()[-1])


def tune(build, shape, arguments):
    """Turns one knob after the other by the time of a whole step; the fastest stays."""
    knobs = knobs_for(build)
    best = Settings({knob: next(iter(options)) for knob, options in knobs.items()})
    trials = []

    def best_time(settings):
        try:
            row = run_torch(build, settings, shape, "step", arguments, (1, arguments.tune_steps))
        except RuntimeError as problem:
            note(f"  {problem}  {settings.describe()}")
            return math.inf
        trials.append({"settings": settings.describe(), "min_ms": row["min_ms"]})
        note(f"  {build['version']} {row['min_ms']:9.1f} ms  {settings.describe()}")
        return row["min_ms"]

    fastest = best_time(best)
    for knob, options in knobs.items():
        for option in list(options)[1:]:
            candidate = best.with_choice(knob, option)
            elapsed = best_time(candidate)
            # Two percent is within noise: there the option assumed best stays.
            if elapsed < 0.98 * fastest:
                best, fastest = candidate, elapsed
    return best, trials


def tuned_settings(builds, shapes, arguments):
    """Tunes once per build and model, at the shortest context asked for."""
    chosen, trials = {}, {}
    for build in builds:
        for name in dict.fromkeys(s.name for s in shapes):
            knobs = knobs_for(build)
            plain = Settings({knob: next(iter(options)) for knob, options in knobs.items()})
            key = (build["python"], name)
            if arguments.no_tune:
                chosen[key] = plain
                continue
            shape = min((s for s in shapes if s.name == name), key=lambda s: s.context)
            note(f"tuning {build['version']} on {name}@{shape.context}")
            chosen[key], trials[f"{build['version']} {name}"] = tune(build, shape, arguments)
    return chosen, trials
