#!/usr/bin/env python3
"""Job arrays and trainings of two ranks in a Slurm cluster of this machine alone.

Starts munged, slurmctld and slurmd (Debian's munge, slurmctld, slurmd, slurm-client) with a
configuration, ports and keys of their own, as the user who runs this. Each round
- divides a grid of six cells into an array (--sbatch), kills one task at a random moment, submits
  again, and compares the merged result with the grid in one process: cells, bytes and launches;
- trains on two ranks of srun, to the weights that two threads reach and the loss of one rank, and
  joins two without MPI, which on CPUs is refused;
- kills a training of two ranks that --sbatch wrote and submits it again: the same weights;
- lets Slurm signal a training of one and of two ranks before its limit of time;
- measures two ranks whose cores OMP_NUM_THREADS counts, in a job submitted from a step of srun;
- asks Slurm whether it could place what scripts for GPUs, and the last of a long grid, request.
Usage: slurm.py [--program build/tracestep] [--count ROUNDS] [--seed S]
"""
import argparse
import getpass
import json
import os
import pathlib
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "scontrol")
MODEL = ["--d-model", "64", "--d-ff", "96", "--layers", "2", "--heads", "2", "--threads", "1"]
GRID = ["bench", *MODEL, "--batch", "4", "--context", "32,64,96", "--mode", "forward,step",
        "--warmup", "1", "--steps", "150", "--roof", "0"]
EXACT = ("cell", "status", "peak_bytes", "predicted_peak_bytes", "launches", "flops")
TRAINING = ["train", *MODEL, "--text", "text", "--context", "32", "--batch", "4", "--steps", "300"]
SECONDS = 240  # for what a round waits for
LOSS_TOLERANCE = 1e-5  # relative, of two ranks against one


class Fault(Exception):
    pass


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(what, condition, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Fault(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class Cluster:
    """The daemons, for as long as a `with` lasts."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        host = socket.gethostname().split(".")[0]
        user, ports = getpass.getuser(), free_ports(2)
        (folder / "slurm.conf").write_text("\n".join((
            "ClusterName=soak", f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmUser={user}", f"SlurmdUser={user}", "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/socket", "CredType=cred/munge",
            f"SlurmctldPort={ports[0]}", f"SlurmdPort={ports[1]}",
            f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool",
            f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmdPidFile={folder}/slurmd.pid",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory",
            "JobAcctGatherType=jobacct_gather/none", "SwitchType=switch/none", "MpiDefault=none",
            "ReturnToService=2", "KillWait=2", "MinJobAge=300", "GresTypes=gpu",
            "SlurmdParameters=config_overrides",  # a node may be larger than the machine
            f"NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:2 "
            "State=UNKNOWN",
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP", "")))
        for gpu in ("gpu0", "gpu1"):  # names without cards
            (folder / gpu).touch()
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons = []

    def start(self, *command):
        log = (self.folder / f"{command[0]}.log").open("w")
        self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def __enter__(self):
        try:
            munge = self.folder / "munge"
            munge.chmod(0o711)
            self.start("munged", "--foreground", "--force",
                       f"--key-file={self.folder}/munge.key", f"--socket={munge}/socket",
                       f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                       f"--seed-file={munge}/seed")
            wait_for("munged", (munge / "socket").exists, 20)
            self.start("slurmctld", "-D")
            self.start("slurmd", "-D")
            wait_for("an idle node",
                     lambda: "idle" in self.run("sinfo", "--noheader", check=False), 60)
        except BaseException:
            for log in self.folder.glob("*.log"):
                print(log.read_text(), end="")
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.run("scancel", f"--user={getpass.getuser()}", "--signal=KILL", check=False)
        self.stop()

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def run(self, *command, folder=None, check=True):
        done = subprocess.run([str(word) for word in command], cwd=folder, env=self.environment,
                              capture_output=True, text=True)
        if check and done.returncode != 0:
            raise Fault(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout

    def states(self, job):
        """{task: state} of an array, by Slurm's own record of it."""
        out = {}
        for line in self.run("scontrol", "--oneliner", "show", "job", job).splitlines():
            facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
            out[facts.get("ArrayTaskId", "")] = facts["JobState"]
        return out

    def submit(self, folder, *options):
        """(the array, the merge), as numbers of jobs."""
        merge = self.run("bash", folder / "submit.sh", *options).strip()
        for line in self.run("scontrol", "--oneliner", "show", "job").splitlines():
            facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if facts["JobId"] == merge:
                dependency = facts["Dependency"]
                return dependency.split(":")[1].split("_")[0], merge
        raise Fault(f"job {merge} is not there")

    def finish(self, job):
        running = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        wait_for(f"job {job}", lambda: not set(self.states(job).values()) & set(running))
        return self.states(job)

    def kill(self, job, task, after):
        """Kills a task so many seconds after it began to run; False when it had ended."""
        wait_for(f"task {task}", lambda: self.states(job).get(task, "PENDING") != "PENDING")
        time.sleep(after)
        self.run("scancel", "--signal=KILL", "--full", f"{job}_{task}", check=False)
        return self.finish(job)[task] != "COMPLETED"


def check_cores(cluster, program, folder, _):
    """Ranks have the threads that were planned, whatever the step says that submits their job."""
    jobs, cores = folder / "ranks", 4
    cluster.run("env", f"OMP_NUM_THREADS={cores}", program, "bench", *MODEL[:-2], "--batch", "4",
                "--context", "32", "--mode", "step", "--steps", "3", "--roof", "0", "--parallel",
                "dp=2", "--sbatch", jobs, folder=folder)
    cluster.run("srun", "--ntasks=2", "bash", "-c", "[ $SLURM_PROCID != 0 ] || ranks/submit.sh",
                folder=folder)
    wait_for("the result of two ranks", (jobs / "result.json").exists)
    threads = json.loads((jobs / "result.json").read_text())["rows"][0]["cell"]["threads"]
    if threads != cores // 2:
        raise Fault(f"{threads} threads for each of two ranks on {cores} cores")


def check_requests(cluster, program, folder, _):
    """Slurm can place what is requested. GPUs are names without cards here."""
    contexts = ",".join(str(n + 1) for n in range(1003))
    for name, placed, command in (
            ("gpus", True, "bench --size small,xl --context 128 --published A100"),
            ("pair", True, "train --text text --size small --batch 4 --parallel dp=2"),
            ("long", True, f"memory --predict --d-model 2 --d-ff 2 --layers 1 --heads 1 --vocab 2 "
             f"--mode inference --context {contexts}"),
            ("too many", False, "comm --collective all_reduce --bytes 1MiB --ranks 4")):
        cluster.run(program, *command.split(), "--device", "cuda", "--sbatch", folder / name,
                    folder=folder)
        script = max((folder / name).glob("tasks-*.sh"))
        done = subprocess.run(["sbatch", "--test-only", script.name], cwd=folder / name,
                              env=cluster.environment, capture_output=True, text=True)
        if (done.returncode == 0) != placed:
            raise Fault(f"{command[:99]}: {done.stderr.strip()}")


def exact(path):
    return [[row[column] for column in EXACT] for row in json.loads(path.read_text())["rows"]]


def check_grid(cluster, program, folder, dice):
    jobs = folder / "grid of six"
    cluster.run(program, *GRID, "--sbatch", jobs, folder=folder)
    array, merge = cluster.submit(jobs)
    task = str(dice.randrange(6))
    was_killed = cluster.kill(array, task, dice.uniform(0, 0.7))
    state = cluster.finish(merge)[""]
    rows = len(exact(jobs / "result.json"))
    if was_killed and (state, rows) != ("FAILED", 5):
        raise Fault(f"task {task} was killed, and merge {state} with {rows} rows")
    cluster.finish(cluster.submit(jobs)[1])
    cluster.run(program, *GRID, "--format", "json", "--output", "whole.json", folder=folder)
    if exact(jobs / "result.json") != exact(folder / "whole.json"):
        raise Fault("the merged rows are not those of the grid in one process")
    return was_killed


def loss(output):
    return json.loads(output)["rows"][0]["loss"]


def check_ranks(cluster, program, folder, dice):
    two = [*TRAINING, "--parallel", "dp=2", "--format", "json"]
    step = cluster.run("srun", "--ntasks=2", "--mpi=pmix", program, *two, "--save", "step",
                       folder=folder)
    threads = cluster.run(program, *two, "--save", "threads", folder=folder)
    alone = cluster.run(program, *TRAINING, "--format", "json", folder=folder)
    weights = (folder / "threads").read_bytes()
    if (folder / "step").read_bytes() != weights or loss(step) != loss(threads):
        raise Fault("two ranks of srun trained to other weights than two threads")
    if abs(loss(step) - loss(alone)) > LOSS_TOLERANCE * loss(alone):
        raise Fault(f"a loss of {loss(step)}, and {loss(alone)} of one rank")
    # Without MPI the two join by the step's variables, and have nothing that carries tensors.
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32))
    bare = subprocess.run(["srun", "--ntasks=2", "--mpi=none", program, *two], cwd=folder,
                          env={**cluster.environment, "TRACESTEP_COMM_SECRET_FILE": str(secret)},
                          capture_output=True, text=True)
    if "nothing connects cpu devices of processes without MPI" not in bare.stderr:
        raise Fault(f"srun --mpi=none: {bare.stderr.strip()}")
    jobs = folder / "training"
    cluster.run(program, *two, "--save", "job", "--checkpoint", "run", "--checkpoint-every", "20",
                "--sbatch", jobs, folder=folder)
    array, merge = cluster.submit(jobs)
    was_killed = cluster.kill(array, "0", dice.uniform(0.5, 3))
    cluster.finish(merge)
    again = cluster.submit(jobs)
    if cluster.finish(again[0])["0"] != "COMPLETED":
        raise Fault("the training did not go on")
    cluster.finish(again[1])
    if (folder / "job").read_bytes() != weights:
        raise Fault("a training that went on has other weights")
    return was_killed


def check_signals(cluster, program, folder, _):
    """A training saves when Slurm signals it before its limit of time, and goes on."""
    for parallel in ("none", "dp=2"):
        jobs, run = folder / f"long {parallel}", folder / f"run {parallel}"
        endless = [*TRAINING[:-1], "100000000", "--parallel", parallel, "--checkpoint", run]
        cluster.run(program, *endless, "--sbatch", jobs, folder=folder)
        array, merge = cluster.submit(jobs, "--time=2")  # minutes: the signal comes at once
        wait_for("a checkpoint before the limit", (run / "latest").exists)
        if cluster.states(array)["0"] != "RUNNING":
            raise Fault("a signal to save ended a training")
        cluster.run("scancel", array)
        cluster.finish(array)
        cluster.finish(merge)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/tracestep")
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}; apt-get install munge slurmctld slurmd "
                 "slurm-client")
    program, dice = pathlib.Path(args.program).resolve(), random.Random(args.seed)
    faults = kills = 0
    with tempfile.TemporaryDirectory() as name, Cluster(pathlib.Path(name)) as cluster:
        for i in range(args.count):
            folder = pathlib.Path(name) / f"round {i}"
            folder.mkdir()
            (folder / "text").write_text("".join(f"{n * n} " for n in range(3000)))
            for check in (check_grid, check_ranks, check_cores, check_requests, check_signals):
                try:
                    kills += check(cluster, program, folder, dice) or 0
                except Fault as fault:
                    faults += 1
                    print(f"round {i}: {fault}", flush=True)
    print(json.dumps({"battery": "slurm", "runs": args.count, "kills": kills, "faults": faults,
                      "ok": faults == 0}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
