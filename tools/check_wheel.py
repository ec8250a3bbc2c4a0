#!/usr/bin/env python3
"""Checks that a wheel runs where it says it does.

    tools/check_wheel.py out/dist/tracestep-*.whl

Of each program and library inside: no symbol of a newer C or C++ library than PLATFORM promises, no
library that is neither inside nor on every system; the program finds its libraries from its own place and
may be executed; each library's licence is there; no path of the machine that built it; and the wheel is no
larger than its limit. Prints what it found.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

PLATFORM = "manylinux_2_35_x86_64"
# A system of this name has these at least: Ubuntu 22.04's libraries.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1",
          "libstdc++.so.6", "ld-linux-x86-64.so.2"}
RPATH = "$ORIGIN/../lib/tracestep"
STEP = "libtracestep.so"
LIMIT_MB = 60


class Problem(Exception):
    """What is wrong with the wheel, in words."""


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], check=True, capture_output=True,
                          text=True).stdout


def newest_symbols(path):
    """Library -> the newest version of its symbols that the file asks for."""
    found = {}
    for name, version in re.findall(r"Name: ([A-Z]+)_([0-9.]+)\b", readelf(path, "--version-info")):
        number = tuple(int(part) for part in version.split("."))
        found[name] = max(found.get(name, ()), number)
    return found


def check_symbols(path, name):
    for library, version in newest_symbols(path).items():
        if library in NEWEST and version > NEWEST[library]:
            raise Problem(f"{name} needs {library}_{'.'.join(map(str, version))}; {PLATFORM} has "
                          f"at most {'.'.join(map(str, NEWEST[library]))}")


def check_libraries(path, name, inside):
    dynamic = readelf(path, "--dynamic")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    if lacking := needed - SYSTEM - inside:
        raise Problem(f"{name} needs {', '.join(sorted(lacking))}, which the wheel does not hold")
    if "(RUNPATH)" in dynamic:
        raise Problem(f"{name} has a RUNPATH, which hides the program's RPATH from its libraries")
    return re.findall(r"\(RPATH\).*\[(.*)\]", dynamic)


def check_licenses(folder, libraries):
    texts = [path.name for path in folder.glob("*.dist-info/licenses/*")]
    for library in sorted(libraries - {STEP}):  # that one is ours
        # libsentencepiece_train.so.0 belongs to the package libsentencepiece0; the kernels are ours,
        # and CUDA's runtime is linked into them.
        package = "cuda-runtime" if library.startswith("libtracestep_") else library
        if not any(package.startswith(re.sub(r"[0-9]*\.txt$", "", text)) for text in texts):
            raise Problem(f"{library} is inside, but no licence of it: {', '.join(sorted(texts))}")
    if "LICENSE" not in texts:
        raise Problem("the project's own LICENSE is not inside")


def is_elf(path):
    return path.is_file() and path.open("rb").read(4) == b"\x7fELF"


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
        modes = {info.filename: info.external_attr >> 16 for info in files.infolist()}
    program, = folder.glob("*.data/scripts/tracestep")
    if not modes[str(program.relative_to(folder))] & 0o111:
        raise Problem("the program may not be executed")
    return program


def check_files(wheel, folder):
    program = unpack(wheel, folder)
    libraries = {path.name for path in folder.glob("*.data/data/lib/tracestep/*.so*")}
    files = [path for path in folder.rglob("*") if is_elf(path)]
    for path in files:
        name = path.relative_to(folder)
        check_symbols(path, name)
        rpath = check_libraries(path, name, libraries)
        if path == program and rpath != [RPATH]:
            raise Problem(f"the program's RPATH is {rpath}, not {RPATH}")
        if str(pathlib.Path(__file__).resolve().parents[1]).encode() in path.read_bytes():
            raise Problem(f"{name} names the folder that it was built in")
    if STEP not in libraries:
        raise Problem(f"it lacks {STEP}, with which tracestep.step runs")
    check_licenses(folder, libraries)
    print(f"{len(files)} programs and libraries: {', '.join(sorted(libraries))}")
    newest = {}
    for path in files:
        for library, version in newest_symbols(path).items():
            newest[library] = max(newest.get(library, ()), version)
    print("newest symbols: " + ", ".join(f"{library}_{'.'.join(map(str, newest[library]))}"
                                         for library in NEWEST if library in newest))


def check_wheel(wheel):
    """Raises a Problem; prints what there is."""
    wheel = pathlib.Path(wheel)
    if not wheel.name.endswith(f"-py3-none-{PLATFORM}.whl"):
        raise Problem(f"{wheel.name} does not say py3-none-{PLATFORM}")
    with tempfile.TemporaryDirectory() as folder:
        check_files(wheel, pathlib.Path(folder))
    size = os.path.getsize(wheel) / 1e6
    print(f"{wheel.name}: {size:.1f} MB, at most {LIMIT_MB} MB are allowed")
    if size > LIMIT_MB:
        raise Problem(f"{wheel.name} is {size - LIMIT_MB:.1f} MB above its limit")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        check_wheel(sys.argv[1])
    except Problem as problem:
        print(f"[check_wheel] {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
