#!/usr/bin/env python3
"""Training by two or more processes with a device each: what it computes and holds in every form, and
how it ends when one of two fails.

    tools/rank_checks.py --device cuda   # two GPUs, by NCCL; a section of tools/test_gpu
    tools/rank_checks.py --device cpu    # the same table by MPI, anywhere
    tools/rank_checks.py --device cuda --ranks 4 --only "train|peaks"   # the forms alone, on four GPUs

A form must train to the losses and gradient norms of one device on the same batches, in peaks and received
bytes as predicted on every rank. A rank that is killed, stopped, held in the middle of a step, without room on its disk or given
other options must end both, with one message, and leave the last checkpoint usable.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time

from checked_runs import Result, finish, peaks_agree, run, start, tail

ROOT = pathlib.Path(__file__).resolve().parents[1]
VOCABULARY = 512
STEPS = 20
PRECISIONS = ("fp32", "bf16")
# Relative; of the first and the last loss, and of the gradient norms of those steps.
TOLERANCES = {"fp32": {"loss": 1e-5, "grad_norm": 1e-4}, "bf16": {"loss": 1e-2, "grad_norm": 5e-2}}
RUN_SECONDS = 60  # then a run hangs
TIMEOUT_S = 8  # --comm-timeout where a rank fails: longer than connecting two GPUs takes
PATIENCE_S = TIMEOUT_S + 8  # from a failure to the end of all
STARTED_STEPS = 3  # of a training that is under way
# Holds the first thread of a process, as a driver might; the others go on. Ends with the process.
HOLD = """
import ctypes, os, sys
process, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
if libc.ptrace(SEIZE, process, None, None) or libc.ptrace(INTERRUPT, process, None, None):
    sys.exit(os.strerror(ctypes.get_errno()))
print("held", flush=True)
while not os.WIFSIGNALED(state := os.waitpid(process, WALL)[1]) and not os.WIFEXITED(state):
    pass
"""


def forms_of(ranks):
    """(--parallel, more options, part of the batch in a micro-batch)"""
    n = ranks
    out = [(f"dp={n}", [], 1), (f"dp={n},bucket=1MiB,overlap=updates", [], 1), (f"dp={n},shard=1", [], 1),
           (f"dp={n},shard=2", [], 1), (f"dp={n},shard=3", [], 1), (f"dp={n},shard=3,prefetch=2", [], 1),
           (f"tp={n}", [], 1), (f"tp={n},sp", [], 1), (f"tp={n},overlap=off", [], 1), (f"dp={n}", ["--accumulate", "2"], 2),
           (f"tp={n}", ["--accumulate", "2"], 2), (f"dp={n}", ["--recompute", "blocks"], 1)]
    for tensor in (2, 4):
        if n % tensor != 0 or n <= tensor:
            continue
        both = f"dp={n // tensor},tp={tensor}"
        out += [(both, [], 1), (f"{both},sp", [], 1), *((f"{both},shard={stage}", [], 1) for stage in (1, 2, 3)),
                (f"{both},sp,shard=3", [], 1), (both, ["--accumulate", "2"], 2)]
    return out


def eager_too(ranks):
    return (f"dp={ranks}", f"dp={ranks},shard=3", f"tp={ranks}")


class Skipped(Exception):
    """Why a check cannot be made here."""


class Trainings:
    """Runs the program in `folder`, on one device or in `ranks` processes; in two, where one of them fails."""

    ports = itertools.count(29600)

    def __init__(self, program, device, folder, ranks=2):
        self.program, self.device, self.folder, self.ranks = str(program), device, folder, ranks
        self.batch = max(8, 2 * ranks)
        self.model = ["--d-model", "128", "--d-ff", "352", "--layers", "2", "--heads", str(max(4, ranks)), "--context", "32"]
        dice = random.Random(1)
        tokens = [dice.randrange(VOCABULARY) for _ in range(20000)]
        (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))

    def launch(self, options=(), ranks=2):
        return [self.program, "launch", "-n", str(ranks), *options, "--"]

    def on_device(self):
        return ["--device", self.device, *(["--threads", "1"] if self.device == "cpu" else [])]

    def train(self, name, *more):
        return ["train", "--tokens", "tokens.bin", "--token-dtype", "uint16", "--vocab",
                str(VOCABULARY), *self.model, *self.on_device(), "--log", name + ".jsonl", *more]

    def bench(self, *more):
        return ["bench", "--mode", "step", "--vocab", str(VOCABULARY), *self.model, *self.on_device(),
                "--warmup", "1", "--steps", "1", "--roof", "0", "--format", "json", *more]

    def run(self, words, together=False, options=()):
        """(exit status, output)"""
        command = [*(self.launch(options, self.ranks) if together else [self.program]), *words]
        return run(command, RUN_SECONDS, {"TRACESTEP_LOG": "quiet"}, self.folder)

    def must(self, words, together=False):
        status, output = self.run(words, together)
        if status != 0:
            raise RuntimeError(f"status {status} of {' '.join(words)}\n{tail(output, 20)}")
        return output

    def steps(self, name):
        """The lines of a log; fewer while it is being written."""
        file = self.folder / (name + ".jsonl")
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]


# --- what is computed -----------------------------------------------------------------------------


def losses_differ(alone, together, precision):
    """Problems: where the first and the last step of two logs differ by more than is allowed."""
    if len(alone) != STEPS or len(together) != STEPS:
        return [f"{len(alone)} and {len(together)} of {STEPS} steps"]
    problems = []
    for i, (key, limit) in itertools.product((0, -1), TOLERANCES[precision].items()):
        expected, found = alone[i][key], together[i][key]
        if not abs(found - expected) <= limit * abs(expected):
            problems.append(f"step {alone[i]['step']}: {key} {found}, of one device {expected} "
                            f"({abs(found / expected - 1):.1e} apart, {limit:g} is allowed)")
    return problems


class Alone:
    """The logs of one device, which several forms are compared with."""

    def __init__(self, trainings, pool):
        self.logs = {kind: pool.submit(self.train, trainings, *kind)
                     for kind in itertools.product(PRECISIONS, ("eager", "compiled"))}

    @staticmethod
    def train(trainings, precision, executor):
        name = f"alone-{precision}-{executor}"
        trainings.must(trainings.train(name, "--batch", str(trainings.batch), "--steps", str(STEPS),
                                       "--precision", precision, "--executor", executor))
        return trainings.steps(name)


def check_training(trainings, alone, form, precision, executor):
    parallel, more, parts = form
    name = "-".join([parallel, *more, precision, executor]).replace("--", "")
    trainings.must(trainings.train(name, "--batch", str(trainings.batch // parts), "--steps", str(STEPS),
                                   "--precision", precision, "--executor", executor, "--parallel",
                                   parallel, *more), together=True)
    return losses_differ(alone.logs[precision, executor].result(), trainings.steps(name), precision)


def check_peaks(trainings, form):
    parallel, more, parts = form
    return peaks_agree(trainings.must(
        trainings.bench("--batch", str(trainings.batch // parts), "--precision", ",".join((*PRECISIONS, "fp8")),
                        "--fp8-products", "all", "--executor", "eager,compiled", "--parallel",
                        parallel, *more), together=True), trainings.ranks)


def check_shards(trainings):
    """A checkpoint in shards of all processes, continued by one."""
    common = ["--batch", str(trainings.batch), "--checkpoint", "shards", "--resume"]
    steps = ["--steps", str(STEPS)]
    trainings.must(trainings.train("two", *common, *steps, "--save", "two", "--parallel",
                                   f"dp={trainings.ranks},shard=3"), together=True)
    common += ["--parallel", "none"]  # and not as the checkpoint says
    trainings.must(trainings.train("one", *common, *steps, "--save", "one"))
    problems = []
    if (trainings.folder / "one").read_bytes() != (trainings.folder / "two").read_bytes():
        problems.append("one process resumed other weights than all had saved")
    trainings.must(trainings.train("further", *common, "--steps", str(STEPS + 2)))
    return problems


# --- how it ends ----------------------------------------------------------------------------------


def status_of(process):
    """What /proc says of a process, by name; empty when it is gone."""
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def is_alive(process):
    return status_of(process).get("State", "Z")[0] not in "ZX"


def ranks_below(launcher):
    """Its processes that have not ended, in the order of their start: that of the ranks."""
    everyone = (int(folder.name) for folder in pathlib.Path("/proc").glob("[0-9]*"))
    return sorted(one for one in everyone
                  if status_of(one).get("PPid") == str(launcher) and is_alive(one))


def hold(process):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(process)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if holder.stdout.readline().strip() != "held":
        raise Skipped(f"no thread can be held here: {holder.communicate()[1].strip()}")


def strike(trainings, name, act, options=()):
    """Trains without end; once it is under way calls act(launcher, its ranks). (status, output,
    seconds from then to the end)"""
    words = trainings.train(name, "--batch", str(trainings.batch), "--steps", "1000000", "--checkpoint",
                            name, "--checkpoint-every", "1", "--parallel", "dp=2")
    child = start([*trainings.launch(("--comm-timeout", str(TIMEOUT_S), *options)), *words],
                  {"TRACESTEP_LOG": "warn"}, trainings.folder)
    end = time.monotonic() + RUN_SECONDS
    while len(trainings.steps(name)) < STARTED_STEPS and child.poll() is None:
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    ranks = ranks_below(child.pid)
    try:
        if len(ranks) != 2:
            raise RuntimeError(f"{len(ranks)} ranks have started")
        act(child.pid, ranks)
    except (Skipped, RuntimeError):
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise
    struck = time.monotonic()
    status, output = finish(child, 2 * PATIENCE_S)
    seconds = time.monotonic() - struck
    time.sleep(1.0)  # mpirun does not wait for those that it has killed
    left = [rank for rank in ranks if is_alive(rank)]
    for rank in left:
        os.kill(rank, signal.SIGKILL)
    return status, output + "".join(f"rank {ranks.index(r)} is left\n" for r in left), seconds


def problems_of_end(trainings, name, outcome, words, most_seconds=PATIENCE_S, most_messages=1):
    status, output, seconds = outcome
    problems = []
    if status in (0, None):
        problems.append(f"exit status {status}")
    if seconds > most_seconds:
        problems.append(f"it took {seconds:.1f} s to end")
    if "is left" in output:
        problems.append("a rank is left")
    if not any(word in output for word in words):
        problems.append(f"no message with {' or '.join(words)}")
    if output.count("[rank ") > most_messages:
        problems.append("several messages")
    status, said = trainings.run(trainings.train(name + "-rest", "--batch", str(trainings.batch), "--steps",
                                                 "1", "--checkpoint", name, "--resume",
                                                 "--parallel", "none"))
    if status != 0:
        problems.append(f"the last checkpoint: {tail(said, 3)}")
    return [*problems, tail(output, 10)] if problems else []


def check_killed(trainings):
    outcome = strike(trainings, "killed", lambda _, ranks: os.kill(ranks[1], signal.SIGKILL))
    return problems_of_end(trainings, "killed", outcome, ["rank 1"])


def check_stopped(trainings):
    outcome = strike(trainings, "stopped", lambda _, ranks: os.kill(ranks[1], signal.SIGSTOP))
    return problems_of_end(trainings, "stopped", outcome, ["[rank 1]"])


def check_held(trainings):
    outcome = strike(trainings, "held", lambda _, ranks: hold(ranks[1]))
    return problems_of_end(trainings, "held", outcome,
                           ["[rank 0] it has waited for", "[rank 1] it did not come to",
                            "[rank 1] it told rank 0 nothing"])


def check_full_disk(trainings):
    """The first rank fails alone, between two steps, while the other is in a collective."""
    no_more = (1, 1)  # bytes in a file
    outcome = strike(trainings, "full", lambda _, ranks: resource.prlimit(
        ranks[0], resource.RLIMIT_FSIZE, no_more))
    return problems_of_end(trainings, "full", outcome, ["cannot be written"])


def check_told_to_stop_while_held(trainings):
    if trainings.device == "cpu":
        raise Skipped("mpirun ends ranks on CPUs")

    def act(launcher, ranks):
        hold(ranks[1])
        time.sleep(1.0)
        os.kill(launcher, signal.SIGTERM)

    outcome = strike(trainings, "told", act, ("--grace", "2"))
    return problems_of_end(trainings, "told", outcome, ["has not ended within 2 s"], 6.0,
                           most_messages=2)  # of both ranks: the other one waits for it


def check_different_programs(trainings):
    rates = ("0.001", "0.002")
    commands = [[trainings.program, *trainings.train("differ", "--steps", "2", "--parallel", "dp=2",
                                                     "--lr", rate)] for rate in rates]
    if trainings.device == "cpu":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        status, output = run(["mpirun", *root, "--oversubscribe", "-n", "1", *commands[0], ":",
                              "-n", "1", *commands[1]], RUN_SECONDS, None, trainings.folder)
        statuses = [status]
    else:
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(next(trainings.ports))}
        children = [start(command, {**variables, "RANK": str(r), "LOCAL_RANK": str(r)},
                          trainings.folder) for r, command in enumerate(commands)]
        outcomes = [finish(child, RUN_SECONDS) for child in children]
        statuses, output = [s for s, _ in outcomes], "".join(said for _, said in outcomes)
    problems = [] if all(statuses) else [f"exit statuses {statuses}"]
    if output.count("[rank 1] its command line differs from that of rank 0") != 1:
        problems.append(f"not one message that they differ\n{tail(output, 10)}")
    return problems


# --- all of it ------------------------------------------------------------------------------------


def checks_of(trainings, pool):
    """(name, function that returns problems); failures first, as they take longest."""
    alone = Alone(trainings, pool)
    yield "a rank is killed", lambda: check_killed(trainings)
    yield "a rank is stopped", lambda: check_stopped(trainings)
    yield "a rank hangs", lambda: check_held(trainings)
    yield "a rank cannot write", lambda: check_full_disk(trainings)
    yield "SIGTERM while a rank hangs", lambda: check_told_to_stop_while_held(trainings)
    yield "ranks differ", lambda: check_different_programs(trainings)
    yield "shards of all, resumed by one", lambda: check_shards(trainings)
    for form in forms_of(trainings.ranks):
        shown = " ".join([form[0], *form[1]])
        for precision, executor in itertools.product(PRECISIONS, ("compiled", "eager")):
            if executor == "eager" and (form[0] not in eager_too(trainings.ranks) or form[1]):
                continue
            yield (f"train {shown} {precision} {executor}",
                   lambda f=form, p=precision, e=executor: check_training(trainings, alone, f, p, e))
        yield f"peaks of {shown}", lambda f=form: check_peaks(trainings, f)


def judge(name, check, left):
    begin = time.monotonic()
    try:
        problems = check() if left() > 0 else ["no time was left"]
        verdict = "failed" if problems else "passed"
    except Skipped as why:
        verdict, problems = "skipped", [str(why)]
    except (RuntimeError, OSError, ValueError, KeyError) as why:
        verdict, problems = "failed", [str(why)]
    return Result(f"ranks/{name}", verdict, time.monotonic() - begin, "\n".join(problems))


def check_all(program, device, jobs, left, only="", ranks=2):
    """Yields a Result for each check whose name has one of the words of `only`, as they end."""
    with tempfile.TemporaryDirectory() as name, \
            concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        trainings = Trainings(pathlib.Path(program).resolve(), device, pathlib.Path(name), ranks)
        runs = [pool.submit(judge, what, check, left) for what, check in checks_of(trainings, pool)
                if any(word in what for word in only.split("|"))]
        for done in concurrent.futures.as_completed(runs):
            yield done.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/tracestep"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--ranks", type=int, default=2, help="processes of the forms; two where one of them fails")
    parser.add_argument("--only", default="", metavar="TEXT|TEXT", help="checks whose names have one of them")
    parser.add_argument("--jobs", type=int, default=max(1, min(5, (os.cpu_count() or 1) // 4)))
    parser.add_argument("--time-limit", type=float, default=600, metavar="SECONDS")
    options = parser.parse_args()
    begin = time.monotonic()
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for result in check_all(options.program, options.device, options.jobs,
                            lambda: options.time_limit - (time.monotonic() - begin), options.only, options.ranks):
        count[result.status] += 1
        print(f"{result.status:8} {result.seconds:6.1f} s  {result.name}", flush=True)
        if result.output:
            print(result.output, flush=True)
    print(json.dumps({"battery": "rank_checks", "runs": sum(count.values()),
                      "faults": count["failed"], **count,
                      "seconds": round(time.monotonic() - begin, 1)}))
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
