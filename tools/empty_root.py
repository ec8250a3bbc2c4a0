"""A bare Debian in a folder of its own, for tools that follow instructions where nothing is installed.

Needs root, debootstrap and a Debian mirror. What is mounted goes with the process: a tool calls
in_own_mounts() first of all.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

# A kernel gives these to any machine, by kind of file system.
MOUNTS = {"proc": "proc", "devpts": "dev/pts", "tmpfs": "dev/shm"}
INSIDE = "TRACESTEP_IN_OWN_MOUNTS"
ENVIRONMENT = {"HOME": "/root",
               "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def in_own_mounts():
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable,
                              *sys.argv])


@contextlib.contextmanager
def empty_root(mirror=None, packages=()):
    """The folder of debootstrap's smallest variant, where not even make is, with `packages`."""
    root = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
    more = [f"--include={','.join(packages)}"] if packages else []
    try:
        subprocess.run(["debootstrap", "--variant=minbase", *more, "bookworm", root,
                        *([mirror] if mirror else [])], check=True, stdout=subprocess.DEVNULL)
        for kind, place in MOUNTS.items():
            (root / place).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", kind, kind, root / place], check=True)
        yield root
    finally:  # never into what is mounted there
        mounted = [line.split()[1] for line in open("/proc/self/mounts", encoding="utf-8")]
        for place in reversed([place for place in mounted if place.startswith(f"{root}/")]):
            subprocess.run(["umount", "-l", place], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", root], check=False)


def run_inside(root, command, **environment):
    """A finished process; its output and errors together are text."""
    return subprocess.run(["chroot", root, "sh", "-c", command], text=True, check=False,
                          env=ENVIRONMENT | environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
