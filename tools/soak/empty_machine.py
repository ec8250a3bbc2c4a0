#!/usr/bin/env python3
"""Follows README.md on an empty machine: its quick start, word by word, in a bare Debian 12.

    tools/soak/empty_machine.py --count 10 [--mirror URL] [--ccache DIR]

Needs root, debootstrap and a Debian mirror (debootstrap's own choice unless --mirror names one).
Makes a root folder with debootstrap's smallest variant, where not even make is, clones HEAD into
it at /root/tracestep, and runs the lines of the blocks below "## Quick start" one after the other,
--count of them. Each must end with status 0; behind those that write pages the pages must be there,
behind `make wheel` a wheel and an archive, behind `make install` the program must answer from its
place, and `make uninstall` must leave nothing of it. `make wheel` asks pip's index for what builds
wheels. --ccache lends the machine a compiler cache, to save time. Prints one line per command, with its
time and the processor time in it, and a summary in JSON; status 1 when there was a fault.
"""
import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from empty_root import empty_root, in_own_mounts, run_inside  # noqa: E402

PLACE, CACHE = "root/tracestep", "root/.cache/ccache"
# Each must hold behind its command; they run in the folder of the source.
CHECKS = {
    "build/tracestep fit": "test -s plan.html",
    "build/tracestep study": "test -s out/study.html",
    "make wheel": "test -s out/dist/*.whl && test -s out/dist/tracestep-x86_64-linux.tar.xz",
    "make study": "test -s out/study.html && test -s out/study.md && test -s out/study.json",
    "make install": "cd / && tracestep version && test -s /usr/local/share/man/man1/tracestep.1",
}
LAST = "make uninstall && ! command -v tracestep"


def quick_start():
    text = (ROOT / "README.md").read_text().split("## Quick start", 1)[1]
    blocks = re.findall(r"```sh\n(.*?)```", text.split("\n## ", 1)[0], re.DOTALL)
    lines = "".join(blocks).splitlines()
    return [line.split("#")[0].strip() for line in lines if line.strip()]


def check_behind(command):
    return next((CHECKS[begin] for begin in CHECKS if command.startswith(begin)), None)


def clone_source(root, ccache):
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", root / PLACE],
                   check=True)
    if ccache:
        place = root / CACHE
        place.mkdir(parents=True)
        subprocess.run(["mount", "--bind", ccache, place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)


def processor_seconds():
    """Of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def follow_command(root, command):
    begin, used = time.monotonic(), processor_seconds()
    run = run_inside(root, f"cd /{PLACE} && {command}", CCACHE_READONLY="true",
                     CCACHE_TEMPDIR="/tmp")
    print(f"{command}: status {run.returncode}, {time.monotonic() - begin:.0f} s, of processors "
          f"{processor_seconds() - used:.0f} s", flush=True)
    if run.returncode != 0:
        print("\n".join(run.stdout.splitlines()[-30:]))
    return run.returncode == 0


def follow(options, root):
    """(commands, faults)"""
    clone_source(root, options.ccache)
    commands = quick_start()[:options.count]
    steps = [step for command in commands for step in (command, check_behind(command)) if step]
    if "make install" in commands:
        steps.append(LAST)
    for step in steps:  # each needs those before it
        if not follow_command(root, step):
            return len(commands), 1
    return len(commands), 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10, help="commands, of those there are")
    parser.add_argument("--seed", type=int, default=1, help="1: the only one that does anything")
    parser.add_argument("--mirror", help="a Debian mirror; without it, debootstrap's own choice")
    parser.add_argument("--ccache", type=pathlib.Path, help="a compiler cache to lend")
    options = parser.parse_args()
    in_own_mounts()
    runs = faults = 0
    if options.seed == 1:
        with empty_root(options.mirror) as root:
            runs, faults = follow(options, root)
    print(json.dumps({"runs": runs, "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
