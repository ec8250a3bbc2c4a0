#!/usr/bin/env python3
"""Ranks on two hosts, which are network namespaces with a cable between them.

Training by MPI must have the bits of threads. When the cable is cut, the processes on both sides must
end, the first one with a message that names the rank, and the last checkpoint must stay usable.
Processes with the variables of torchrun must find each other, name the one that differs, refuse one
with another secret, and give up in time where the other host does not answer. Does nothing where namespaces are not permitted.
Usage: hosts.py [--program PATH] [--count N] [--seed S]
"""
import itertools
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

from tiny_training import Battery, Training, resumed_from

NETWORK, ADDRESSES = "10.213.77.0/24", ("10.213.77.1", "10.213.77.2")
FORMS = ["dp=2", "dp=2,bucket=tensor", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3", "tp=2"]
SECRET, ANOTHER = "5a" * 32, "a5" * 32
TIMEOUT_S = 2
PATIENCE_S = 15
STEPS_BEFORE, ENDLESS = 5, 10**6


class Hosts:
    """Two namespaces, each with a host name of its own; gone at the end."""

    made = itertools.count()

    def __init__(self, folder):
        number = next(self.made)
        self.names = [f"tracestep-{os.getpid()}-{number}{side}" for side in "ab"]
        self.agent = folder / "agent"  # how mpirun starts its daemon on the other host
        self.agent.write_text("#!/bin/sh\nshift\nexec " +
                              shlex.join(self.on(1, "sh", "-c")) + ' "$*"\n')
        self.agent.chmod(0o755)

    def __enter__(self):
        for name in self.names:
            self.ip("netns", "add", name)
        ends = [f"ts{os.getpid() % 10**6}{side}" for side in "ab"]
        self.ip("link", "add", ends[0], "netns", self.names[0], "type", "veth", "peer", "name",
                ends[1], "netns", self.names[1])
        self.cable = ends[0]
        for name, end, address in zip(self.names, ends, ADDRESSES):
            self.ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            for link in ("lo", end):
                self.ip("-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True,
                                  check=False)
            for process in map(int, left.stdout.split()):
                os.kill(process, signal.SIGKILL)  # mpirun's daemon behind a cable that was cut
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def plug(self, is_in):
        self.ip("-n", self.names[0], "link", "set", self.cable, "up" if is_in else "down")

    def on(self, host, *command):
        """The command on a host."""
        return ["ip", "netns", "exec", self.names[host], "unshare", "--uts", "sh", "-c",
                f'hostname {self.names[host]}; exec "$@"', "sh", *command]

    def mpirun(self, *command):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        settings = {"plm_rsh_agent": str(self.agent), "btl": "self,tcp", "mpi_yield_when_idle": "1",
                    "oob_tcp_if_include": NETWORK, "btl_tcp_if_include": NETWORK}
        return self.on(0, "mpirun", *root, "--host", ",".join(ADDRESSES), "-n", "2", "-x",
                       "TRACESTEP_COMM_TIMEOUT",
                       *(word for name, value in settings.items() for word in ("--mca", name, value)),
                       *command)


def start(command, training, **variables):
    # In files: mpirun's daemons would keep pipes open.
    out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
    process = subprocess.Popen(command, cwd=training.folder, stdout=out, stderr=err,
                               env={**os.environ, "TRACESTEP_COMM_TIMEOUT": str(TIMEOUT_S),
                                    **variables})
    return process, out, err


def finish(job, seconds=PATIENCE_S):
    """(status, stdout, stderr); status None: it had to be killed."""
    process, *files = job
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        status = None
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read())
        file.close()
    return (status, *texts)


def ranks_of(folder):
    """The processes of the program that work in the folder."""
    out = []
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            is_there = os.readlink(status.parent / "cwd") == str(folder)
            if is_there and status.read_text().startswith("Name:\ttracestep\n"):
                out.append(int(status.parent.name))
        except OSError:
            pass
    return out


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.05)
    return condition()


# --- MPI ------------------------------------------------------------------------------------------


def check_bits(battery, hosts, training, form):
    steps = 5
    on_hosts = training.command(steps, "--parallel", form, "--save", "hosts")
    status, _, said = finish(start(hosts.mpirun(*on_hosts), training))
    battery.check(status == 0, f"{form} by MPI: {said}")
    threads = training.run(steps, "--parallel", form, "--save", "threads")
    battery.check(threads.returncode == 0, threads.stderr)
    if status == 0 and threads.returncode == 0:
        battery.check((training.folder / "hosts").read_bytes() ==
                      (training.folder / "threads").read_bytes(), f"{form}: other weights")


def check_cut(battery, hosts, training, form, seconds):
    """The cable is cut so long after some steps. (Not inside a save: with MPI a rank that waits for
    what the first one does alone has no time limit.)"""
    shutil.rmtree(training.folder / "c", ignore_errors=True)
    saves, log = ["--checkpoint", "c", "--resume"], training.folder / "log"
    whole = training.run(STEPS_BEFORE, *saves)
    battery.check(whole.returncode == 0, whole.stderr)
    log.unlink(missing_ok=True)
    job = start(hosts.mpirun(*training.command(ENDLESS, "--parallel", form, "--log", "log", *saves)),
                training)
    battery.check(wait_until(lambda: log.exists() and log.stat().st_size > 0, PATIENCE_S), "no step")
    time.sleep(seconds)
    hosts.plug(False)
    is_over = wait_until(lambda: not ranks_of(training.folder), PATIENCE_S)
    battery.check(is_over, f"ranks are left {PATIENCE_S} s after the cut")
    for rank in ranks_of(training.folder):
        os.kill(rank, signal.SIGKILL)
    job[0].terminate()  # mpirun waits for its daemon on the other host
    status, _, said = finish(job)
    battery.check(status not in (0, None), f"status {status} of mpirun")
    battery.check("[rank 1] it did not come to" in said, f"the message of the cut: {said}")
    hosts.plug(True)
    rest = training.run(STEPS_BEFORE + 1, *saves)
    battery.check(rest.returncode == 0, f"resumed: {rest.stderr}")
    battery.check(rest.returncode != 0 or resumed_from(rest) == STEPS_BEFORE, "another checkpoint")


# --- variables of torchrun ------------------------------------------------------------------------


def start_joined(hosts, training, host, port, *more, secret=SECRET):
    """A process that joins the others and then predicts bytes, which needs no device."""
    command = [training.program, "memory", "--predict", "--size", "tiny", "--mode", "step",
               "--parallel", "dp=2", "--format", "csv", *more]
    return start(hosts.on(host, *command), training, RANK=str(host), LOCAL_RANK="0", WORLD_SIZE="2",
                 MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(port), TRACESTEP_COMM_SECRET=secret)


def check_variables(battery, hosts, training, port):
    joined = [start_joined(hosts, training, host, port) for host in (0, 1)]
    (first, table, said), (second, nothing, also) = map(finish, joined)
    battery.check(first == 0 and second == 0, f"two hosts: {said} {also}")
    battery.check("predicted_peak_bytes" in table and nothing == "", "the first one alone writes")
    differing = [start_joined(hosts, training, host, port + 1, "--context", str(64 * (host + 1)))
                 for host in (0, 1)]
    (first, _, said), (second, _, also) = map(finish, differing)
    words = "[rank 1] its command line differs from that of rank 0"
    battery.check(first == 1 and second == 1, f"statuses {first}, {second} of ranks that differ")
    battery.check((said + also).count(words) == 1, f"ranks that differ: {said} {also}")


def check_secrets(battery, hosts, training, port):
    strangers = [start_joined(hosts, training, host, port, secret=secret)
                 for host, secret in enumerate((SECRET, ANOTHER))]
    for (status, _, said), words in zip(map(finish, strangers), ("1 of 2 processes", "of this run")):
        battery.check(status == 1 and words in said, f"two secrets: {status} {said}")
    (status, _, said), = map(finish, [start_joined(hosts, training, 0, port, secret="")])
    battery.check(status == 2 and "strangers could join" in said, f"no secret: {status} {said}")


def check_no_answer(battery, hosts, training, port):
    hosts.ip("-n", hosts.names[1], "neighbour", "replace", ADDRESSES[0], "lladdr",
             "02:00:00:00:00:01", "dev", hosts.cable[:-1] + "b", "nud", "permanent")
    begin = time.monotonic()
    alone = [start_joined(hosts, training, host, port) for host in (0, 1)]
    (first, _, said), (second, _, also) = map(finish, alone)
    seconds = time.monotonic() - begin
    battery.check(first == 1 and "1 of 2 processes have come" in said, f"rank 0: {first} {said}")
    battery.check(second == 1 and "does not listen" in also, f"rank 1: {second} {also}")
    battery.check(seconds < TIMEOUT_S + 3, f"they gave up after {seconds:.1f} s")


def main():
    battery = Battery("hosts", __doc__, 20)
    dice = random.Random(battery.options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        training = Training(battery.options.program, folder, battery.options.seed)
        for run in range(battery.options.count):
            try:
                with Hosts(folder) as hosts:
                    battery.add("runs")
                    check_bits(battery, hosts, training, dice.choice(FORMS))
                    check_cut(battery, hosts, training, dice.choice(FORMS), dice.uniform(0.0, 1.0))
                    check_variables(battery, hosts, training, 29500)
                    check_secrets(battery, hosts, training, 29500)
                    check_no_answer(battery, hosts, training, 29500)
            except (subprocess.CalledProcessError, FileNotFoundError) as why:
                print(f"no namespaces here: {str(getattr(why, 'stderr', why)).strip()}")
                break
    battery.finish()


if __name__ == "__main__":
    main()
