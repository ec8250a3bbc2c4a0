#!/usr/bin/env python3
"""Follows README.md on an empty machine: its quick start, word by word, in a bare Debian 12.

    tools/soak/empty_machine.py --count 4 [--mirror URL] [--ccache DIR]

Needs root, debootstrap and a Debian mirror (debootstrap's own choice unless --mirror names one).
Makes a root folder with debootstrap's smallest variant, where not even make is, unpacks HEAD into
it at /root/tracestep, and runs the lines of the block below "## Quick start" one after the other,
--count of them. Each must end with status 0; behind `make study` there must be a report, behind
`make install` the program must answer from its place, and `make uninstall` must leave nothing of
it. --ccache lends the machine a compiler cache, to save time. Prints one line per command, with its
time and the processor time in it, and a summary in JSON; status 1 when there was a fault.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE, CACHE = "root/tracestep", "root/.cache/ccache"
# What a kernel gives any machine, by kind of file system.
MOUNTS = {"proc": "proc", "devpts": "dev/pts", "tmpfs": "dev/shm"}
# What must hold behind a command; run in the folder of the source.
CHECKS = {
    "make study": "test -s out/study.html && test -s out/study.md && test -s out/study.json",
    "make install": "cd / && tracestep version && test -s /usr/local/share/man/man1/tracestep.1",
}
LAST = "make uninstall && ! command -v tracestep"


def quick_start():
    text = (ROOT / "README.md").read_text().split("## Quick start", 1)[1]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
    return [line.split("#")[0].strip() for line in block.splitlines() if line.strip()]


def make_root(root, mirror, ccache):
    chosen = [mirror] if mirror else []
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, *chosen], check=True,
                   stdout=subprocess.DEVNULL)
    source = root / PLACE
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    for kind, place in MOUNTS.items():
        (root / place).mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", kind, kind, root / place], check=True)
    if ccache:
        place = root / CACHE
        place.mkdir(parents=True)
        subprocess.run(["mount", "--bind", ccache, place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)


def processor_seconds():
    """Of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_inside(root, command):
    begin, used = time.monotonic(), processor_seconds()
    environment = {"HOME": "/root", "CCACHE_READONLY": "true", "CCACHE_TEMPDIR": "/tmp",
                   "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    run = subprocess.run(["chroot", root, "sh", "-c", f"cd /{PLACE} && {command}"], text=True,
                         env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"{command}: status {run.returncode}, {time.monotonic() - begin:.0f} s, of processors "
          f"{processor_seconds() - used:.0f} s", flush=True)
    if run.returncode != 0:
        print("\n".join(run.stdout.splitlines()[-30:]))
    return run.returncode == 0


def follow(options, root):
    """(commands, faults)"""
    make_root(root, options.mirror, options.ccache)
    commands = quick_start()[:options.count]
    steps = [step for command in commands for step in (command, CHECKS.get(command)) if step]
    if "make install" in commands:
        steps.append(LAST)
    for step in steps:  # each needs those before it
        if not run_inside(root, step):
            return len(commands), 1
    return len(commands), 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=4, help="commands, of those there are")
    parser.add_argument("--seed", type=int, default=1, help="1: the only one that does anything")
    parser.add_argument("--mirror", help="a Debian mirror; without it, debootstrap's own choice")
    parser.add_argument("--ccache", type=pathlib.Path, help="a compiler cache to lend")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:  # what is mounted goes with this process
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable,
                              *sys.argv, "--inside"])
    runs = faults = 0
    if options.seed == 1:
        root = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
        try:
            runs, faults = follow(options, root)
        finally:  # never into what is mounted there
            for mounted in (CACHE, *MOUNTS.values()):
                subprocess.run(["umount", "-l", root / mounted], stderr=subprocess.DEVNULL)
            subprocess.run(["rm", "-rf", "--one-file-system", root], check=False)
    print(json.dumps({"runs": runs, "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
