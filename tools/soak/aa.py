#!/usr/bin/env python3
"""The A/A battery: how often `compare` calls one build faster or slower than itself, and how often
it finds a planted slowdown.

    tools/soak/aa.py [--processes 60] [--comparisons 300] [--live 30] [--bench 300] [--percent 3]
                     [--output out/aa.md]

Records so many rounds of three processes of build/tests/aa_step, two as it is and one with the
slowdown, in an order drawn by lot, under three conditions: nothing else runs; a neighbour computes
for random seconds on a random number of cores; the clock steps. Then draws sides from the rounds,
without replacement, and asks the program about each comparison twice: with the processes of a round
as pairs (`--pairs`), and with those of different rounds, apart. Some comparisons are measured live
with `compare --run`, and with --bench N one cell is measured N times as two (`bench --rounds 9
--repeat 2`) where nothing else runs and beside a neighbour. Ends with 1 when more than 1 % of the verdicts of equal sides are wrong, or less
than 90 % of the slowdowns are found in pairs where nothing else runs. Needs a machine on which
nothing else runs: minutes. What was recorded is kept beside the output, as JSON; --from reads it.
"""
import argparse
import json
import math
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


# --- conditions -----------------------------------------------------------------------------------

class Quiet:
    name = "quiet"
    how = "nothing else runs"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def adopt(self, process):
        """Called with each measured process when it has started."""


class Turns(Quiet):
    """Something that changes at random moments, in a thread of its own."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Neighbour(Turns):
    name = "neighbour"
    how = "another program computes for 0.2 to 3 s on one core up to all, then rests as long"

    def run(self):
        while not self.over.is_set():
            working = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                       for _ in range(self.random.randint(1, len(os.sched_getaffinity(0))))]
            self.over.wait(self.random.uniform(0.2, 3))
            for process in working:
                process.kill()
                process.wait()
            self.over.wait(self.random.uniform(0.2, 3))


STEPS = (1.0, 0.8, 0.6)  # of the full clock


class Frequency(Turns):
    name = "stepping clock"
    how = "the frequency driver's upper limit steps between 100, 80 and 60 % every 0.5 to 3 s"

    def __init__(self, seed):
        super().__init__(seed)
        cpus = Path("/sys/devices/system/cpu")
        self.files = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_max_freq"))
        self.full = [file.read_text() for file in self.files]

    @staticmethod
    def works():
        file = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq")
        return file.exists() and os.access(file, os.W_OK)

    def run(self):
        while not self.over.is_set():
            share = self.random.choice(STEPS)
            for file, full in zip(self.files, self.full):
                file.write_text(str(int(int(full) * share)))
            self.over.wait(self.random.uniform(0.5, 3))
        for file, full in zip(self.files, self.full):
            file.write_text(full)


class Quota(Turns):
    name = "stepping quota"
    how = ("instead of the clock, which cannot be set here: a CPU quota of a control group, in "
           "periods of 5 ms, steps between 100, 80 and 60 % of a core every 0.5 to 3 s")
    period_us = 5000

    def __init__(self, seed):
        super().__init__(seed)
        self.group = self.parent() / f"tracestep-aa-{os.getpid()}"

    @staticmethod
    def parent():
        """A folder of version 1 or 2 in which groups with a CPU quota can be made."""
        for folder in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
            if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
                return folder
        return None

    @classmethod
    def works(cls):
        parent = cls.parent()
        if parent is None:
            return False
        probe = parent / f"tracestep-aa-probe-{os.getpid()}"
        try:
            probe.mkdir()
            return (probe / "cpu.cfs_quota_us").exists() or (probe / "cpu.max").exists()
        except OSError:
            return False
        finally:
            if probe.exists():
                probe.rmdir()

    def set_share(self, share):
        quota = int(self.period_us * share) if share < 1 else -1
        if (self.group / "cpu.max").exists():
            (self.group / "cpu.max").write_text(f"{'max' if quota < 0 else quota} {self.period_us}")
        else:
            (self.group / "cpu.cfs_period_us").write_text(str(self.period_us))
            (self.group / "cpu.cfs_quota_us").write_text(str(quota))

    def __enter__(self):
        self.group.mkdir()
        return super().__enter__()

    def __exit__(self, *_):
        super().__exit__()
        self.group.rmdir()

    def run(self):
        while not self.over.is_set():
            self.set_share(self.random.choice(STEPS))
            self.over.wait(self.random.uniform(0.5, 3))

    def adopt(self, process):
        try:
            (self.group / "cgroup.procs").write_text(str(process.pid))
        except OSError:
            pass  # it has ended


class Pauses(Turns):
    name = "stepping pauses"
    how = ("instead of the clock, which cannot be set here: the process is stopped for 0, 20 or "
           "40 % of every 10 ms, another share every 0.5 to 3 s")

    def __init__(self, seed):
        super().__init__(seed)
        self.process = None

    def run(self):
        share, until = 1.0, 0.0
        while not self.over.is_set():
            if time.monotonic() > until:
                share = self.random.choice(STEPS)
                until = time.monotonic() + self.random.uniform(0.5, 3)
            process = self.process
            if share < 1 and process is not None and process.poll() is None:
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(0.01 * (1 - share))
                os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.01 * share)

    def adopt(self, process):
        self.process = process


def clock_condition(seed):
    for kind in (Frequency, Quota):
        if kind.works():
            return kind(seed)
    return Pauses(seed)


# --- recording ------------------------------------------------------------------------------------

def command_of(options, is_slower):
    step = str(options.step)
    return [step, "--slower", str(options.percent)] if is_slower else [step]


KINDS = ("plain", "again", "slower")  # the last one with the slowdown


def samples_of(options, condition, is_slower):
    process = subprocess.Popen(command_of(options, is_slower), text=True, stdout=subprocess.PIPE)
    condition.adopt(process)
    text = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{options.step} ended with {process.returncode}")
    return json.loads(text)["rows"][0]["samples_ms"]


def recorded(options, condition, lots, progress):
    """Rounds of one process of each kind, in an order drawn by lot: [{kind: its samples}]."""
    out = []
    for i in range(options.processes):
        order = lots.sample(KINDS, len(KINDS))
        out.append({kind: samples_of(options, condition, kind == "slower") for kind in order})
        progress(f"{condition.name}: {i + 1}/{options.processes} rounds")
    return out


def medians(rounds, kind):
    return [statistics.median(one[kind]) for one in rounds]


def merged(samples):
    """One side of a comparison: the row of several processes, as `bench --processes` writes it."""
    row = {"size": "custom", "context": 64, "batch": 2, "vocab": 256, "mode": "step",
           "precision": "fp32", "status": "ok", "samples_ms": sum(samples, []),
           "process_samples": [len(list_) for list_ in samples]}
    return {"schema": "tracestep.bench/1", "environment": {}, "rows": [row]}


# --- verdicts -------------------------------------------------------------------------------------

def verdict_of(arguments, program):
    done = subprocess.run([program, "compare", *arguments, "--format", "json"], text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["tables"]["compare"]["rows"][0]["verdict"]


def drawn_verdicts(options, rounds, second, in_pairs, numbers):
    """How often each verdict comes out over sides drawn from the rounds: "plain" against `second`,
    in pairs of one round or all of different rounds."""
    sides = []
    for _ in range(options.comparisons):
        drawn = numbers.sample(rounds, options.side if in_pairs else 2 * options.side)
        others = drawn if in_pairs else drawn[options.side:]
        sides.append(([one["plain"] for one in drawn[:options.side]],
                      [one[second] for one in others]))
    how = ["--pairs", str(options.side)] if in_pairs else []

    def ask(both):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, side in zip("ab", both):
                paths.append(Path(folder) / f"{name}.json")
                paths[-1].write_text(json.dumps(merged(side)))
            return verdict_of([*map(str, paths), *how], options.program)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return count(pool.map(ask, sides))


def count(verdicts):
    out = dict.fromkeys(("same", "unclear", "faster", "slower"), 0)
    for verdict in verdicts:
        out[verdict] += 1
    return out


def live_verdicts(options, progress):
    out = []
    plain = " ".join(command_of(options, False))
    for i in range(options.live):
        out.append(verdict_of(["--run", plain, "--run", plain, "--processes", str(options.side)],
                              options.program))
        progress(f"live: {i + 1}/{options.live} comparisons")
    return count(out)


BENCH = ("bench --size tiny --vocab 64 --batch 1 --context 32 --mode step --steps 5 --warmup 1 "
         "--rounds 9 --repeat 2 --roof 0 --threads 1 --format json").split()


def bench_verdicts(options, condition, progress):
    """Of one cell measured as two in one process, so many times; and the ratios of the two."""
    out, ratios = [], []
    with condition:
        for i in range(options.bench):
            process = subprocess.Popen([options.program, *BENCH], text=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL)
            condition.adopt(process)
            text = process.communicate()[0]
            if process.returncode != 0:
                sys.exit(f"bench ended with {process.returncode}")
            row = json.loads(text)["tables"]["beside"]["rows"][0]
            ratios.append(row["ratio"])
            words = row["is"].split()
            out.append(next((v for v in ("faster", "slower", "same") if v in words), "unclear"))
            wrong = out.count("faster") + out.count("slower")
            progress(f"bench, {condition.name}: {i + 1}/{options.bench}, {wrong} wrong")
    return count(out), ratios


# --- the table ------------------------------------------------------------------------------------

def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def row_of(name, what, sides, spread, ratio, verdicts, right):
    total = sum(verdicts.values())
    wrong = sum(verdicts[v] for v in ("faster", "slower") if v != right)
    found = percent(verdicts[right], total) if right else "-"
    return (f"| {name} | {what} | {sides} | {spread} | {ratio} | {total} | {wrong} "
            f"({percent(wrong, total)}) | {found} | {percent(verdicts['unclear'], total)} "
            f"| {percent(verdicts['same'], total)} |")


def spread_of(rounds, second, in_pairs):
    """The standard deviation in percent of what is compared: the ratio of two processes of one round
    or of two that have nothing to do with each other."""
    first, other = medians(rounds, "plain"), medians(rounds, second)
    if in_pairs:
        return f"{100 * statistics.stdev(math.log(b / a) for a, b in zip(first, other)):.2f} %"
    return f"{100 * math.hypot(*(statistics.stdev(map(math.log, m)) for m in (first, other))):.2f} %"


def parsed_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tracestep"))
    parser.add_argument("--step", default=str(ROOT / "build" / "tests" / "aa_step"))
    parser.add_argument("--processes", type=int, default=60, help="recorded of each kind; 60")
    parser.add_argument("--comparisons", type=int, default=300,
                        help="drawn under each condition; 300")
    parser.add_argument("--live", type=int, default=30, help="comparisons measured live; 30")
    parser.add_argument("--bench", type=int, default=0,
                        help="cells measured as two, quiet and beside a neighbour; 0")
    parser.add_argument("--side", type=int, default=20, help="processes of each side; 20")
    parser.add_argument("--percent", type=float, default=3.0, help="the planted slowdown; 3")
    parser.add_argument("--only", default="", help="conditions, separated by commas: quiet, "
                        "neighbour, stepping")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; 1")
    parser.add_argument("--output", default="out/aa.md")
    parser.add_argument("--from", dest="source", help="rounds recorded before: no new ones")
    options = parser.parse_args()
    if options.processes < 2 * options.side:
        parser.error("--processes must be at least twice --side")
    return options


class Battery:
    """The rows of the table, and what is wrong with them."""

    def __init__(self, options):
        self.options = options
        self.numbers = random.Random(options.seed)
        self.lines, self.hows, self.faults = [], [], []
        self.rounds = {}  # by condition

    def progress(self, text):
        if sys.stderr.isatty():
            print(f"\r{text}   ", end="", file=sys.stderr, flush=True)

    def add(self, condition):
        options = self.options
        self.hows.append(f"- {condition.name}: {condition.how}.")
        if options.source:
            rounds = json.loads(Path(options.source).read_text())[condition.name]
        else:
            with condition:
                rounds = recorded(options, condition, self.numbers, self.progress)
        self.rounds[condition.name] = rounds
        for in_pairs in (True, False):
            self.add_design(condition.name, rounds, in_pairs)

    def add_design(self, name, rounds, in_pairs):
        options = self.options
        design = "pairs" if in_pairs else "apart"
        for second, what in (("again", "equal"), ("slower", f"{options.percent:g} % planted")):
            right = "slower" if second == "slower" else None
            verdicts = drawn_verdicts(options, rounds, second, in_pairs, self.numbers)
            ratio = statistics.median(b / a for a, b in zip(medians(rounds, "plain"),
                                                            medians(rounds, second)))
            self.lines.append(row_of(name, f"{what}, {design}", f"{options.side} of {len(rounds)}",
                                     spread_of(rounds, second, in_pairs), f"{ratio:.4f}", verdicts,
                                     right))
            if not right and verdicts["faster"] + verdicts["slower"] > 0.01 * options.comparisons:
                self.faults.append(f"{name}, {design}: more than 1 % of equal sides called different")
            if right and in_pairs and name == "quiet" and (
                    verdicts["slower"] < 0.9 * options.comparisons):
                self.faults.append("quiet: less than 90 % of the planted slowdowns were found")

    def add_live(self):
        live = live_verdicts(self.options, self.progress)
        self.lines.append(row_of("live", "equal, pairs", str(self.options.side), "", "1", live,
                                 None))
        if live["faster"] + live["slower"] > max(1, 0.01 * self.options.live):
            self.faults.append("live: equal sides called different")

    def add_bench(self, condition):
        verdicts, ratios = bench_verdicts(self.options, condition, self.progress)
        spread = 100 * statistics.stdev(map(math.log, ratios))
        self.lines.append(row_of(condition.name, "equal, bench --repeat 2", "1", f"{spread:.2f} %",
                                 f"{statistics.median(ratios):.4f}", verdicts, None))
        if verdicts["faster"] + verdicts["slower"] > 0.01 * self.options.bench:
            self.faults.append(f"bench, {condition.name}: more than 1 % of equal cells called "
                               "different")

    def keep(self):
        """Writes what is known so far: the battery takes long, and may be stopped."""
        output = Path(self.options.output)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(self.text())
        if self.rounds and not self.options.source:
            output.with_suffix(".json").write_text(json.dumps(self.rounds))

    def text(self):
        o = self.options
        return "\n".join([
            "# A build against itself", "",
            f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}; "
            f"`tools/soak/aa.py --processes {o.processes} --comparisons {o.comparisons} --live {o.live} "
            f"--bench {o.bench} --side {o.side} --percent {o.percent:g}`.", "",
            *self.hows, "",
            "| condition | sides | processes | noise | ratio | comparisons | wrong | found "
            "| unclear | same |", "|---|---|---|---|---|---|---|---|---|---|", *self.lines, "",
            "Sides are drawn without replacement from the recorded rounds: *pairs* of processes of "
            "one round, or *apart*, no two of the same. *Noise* is the standard deviation of the "
            "ratio of two such processes, *ratio* the median over all rounds. *Wrong* is every faster "
            "or slower of equal sides, and every faster of the others.", ""])


def main():
    options = parsed_options()
    only = tuple(filter(None, options.only.split(",")))
    battery = Battery(options)
    for condition in (Quiet(), Neighbour(options.seed), clock_condition(options.seed)):
        if options.processes and (not only or condition.name.startswith(only)):
            battery.add(condition)
            battery.keep()
    if options.live:
        battery.add_live()
        battery.keep()
    for condition in (Quiet(), Neighbour(options.seed)):
        if options.bench and (not only or condition.name.startswith(only)):
            battery.add_bench(condition)
            battery.keep()
    print(battery.text())
    for fault in battery.faults:
        print(f"fault: {fault}")
    return 1 if battery.faults else 0


if __name__ == "__main__":
    sys.exit(main())
