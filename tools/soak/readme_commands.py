#!/usr/bin/env python3
"""Runs the commands of README.md's table as they are printed.

    tools/soak/readme_commands.py --count 40          those with *, which take minutes
    tools/soak/readme_commands.py --quick             all others; a test of the suite

What capitals stand for is there under that very name, in a folder of its own: FILE a text, FOLDER a
published model, MODULE a captured one, A.json and B.json results, DIR a finished job array where merge reads one, TRACE.json and
SNAPSHOT.pickle recordings, CHATS.jsonl conversations, CMD a program. Commands run in the order of the table, since some read
what others wrote. Each must end with status 0. Prints one line per command, with its time, and a summary in JSON; status 1 when there was a fault.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = "--d-model 16 --d-ff 32 --layers 2 --heads 2 --context 8 --batch 2 --threads 1"
STEP = f"bench {SMALL} --vocab 64 --steps 2 --warmup 1 --roof 0"


def commands_of(page):
    """[(command, whether it is marked as long)]"""
    table = page.split("## From task to command", 1)[1].split("\n\n`tracestep help", 1)[0]
    out = []
    for line in table.splitlines():
        cells = line.split("|")
        if len(cells) > 3 and "`" in cells[2]:
            out += [(command, bool(mark)) for command, mark in
                    re.findall(r"`([^`]+)`( ?\*)?", cells[2])]
    return out


class Machine:
    """A folder with all that the commands name."""

    def __init__(self, program, folder):
        self.folder = folder
        self.environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}",
                                         "XDG_CACHE_HOME": str(folder / "cache")}
        (folder / "bin").mkdir()
        (folder / "bin/tracestep").symlink_to(program)
        self.write_program("CMD", "sleep 0.01")
        shutil.copytree(ROOT / "tests/captured/tiny", folder / "MODULE")
        shutil.copy(ROOT / "README.md", folder)  # a study trains on it
        (folder / "FILE").write_text((ROOT / "README.md").read_text()[:3000])
        turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello, too"}]
        (folder / "CHATS.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 40)
        for result in ("A.json", "B.json"):
            self.must_run(f"{STEP} --output {result}")
        self.must_run(f"train {SMALL} --text FILE --steps 1 --save own.safetensors")
        self.must_run("export own.safetensors FOLDER")
        self.must_run(f"memory --predict {SMALL} --vocab 64 --snapshot SNAPSHOT.pickle")
        self.must_run(f"profile {SMALL} --vocab 64 --mode step --no-ceilings --trace TRACE.json")

    def write_program(self, name, line):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def run(self, command):
        return subprocess.run(["sh", "-c", f"tracestep {command}"], cwd=self.folder, text=True,
                              env=self.environment, capture_output=True, check=False)

    def must_run(self, command):
        done = self.run(command)
        if done.returncode != 0:
            sys.exit(f"[readme_commands] {command}: status {done.returncode}\n{done.stderr}")

    def finish_job_array(self):
        self.must_run(f"{STEP} --mode forward,step --sbatch DIR")
        for task in range(2):
            subprocess.run(["bash", "tasks-1.sh"], cwd=self.folder / "DIR", check=True,
                           env=self.environment | {"SLURM_ARRAY_TASK_ID": str(task)},
                           capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tracestep")
    parser.add_argument("--quick", action="store_true", help="those without a *")
    parser.add_argument("--count", type=int, default=1000, help="commands, of those there are")
    parser.add_argument("--seed", type=int, default=1, help="from which on, one seed a share")
    options = parser.parse_args()
    every = commands_of((ROOT / "README.md").read_text())
    first = (options.seed - 1) * options.count
    chosen = [command for command, is_long in every if is_long != options.quick]
    chosen = chosen[first:first + options.count]
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(options.program.resolve(), pathlib.Path(folder))
        for command in chosen:
            shutil.rmtree(machine.folder / "DIR", ignore_errors=True)  # that of another command
            if command.startswith("merge "):
                machine.finish_job_array()
            begin = time.monotonic()
            done = machine.run(command)
            print(f"{command}: status {done.returncode}, {time.monotonic() - begin:.1f} s",
                  flush=True)
            if done.returncode != 0 or (not done.stdout.strip() and not done.stderr.strip()):
                faults += 1
                print(done.stderr)
    if options.quick and len(every) < 30:
        sys.exit(f"[readme_commands] the table has {len(every)} commands, where more than 30 were")
    print(json.dumps({"runs": len(chosen), "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
