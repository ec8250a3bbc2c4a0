#!/usr/bin/env python3
"""tools/check_wheel.py refuses wheels with planted faults, and takes the one without."""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "tracestep-1-py3-none-manylinux_2_35_x86_64.whl"
RPATH = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib/tracestep"
PROGRAM = "tracestep-1.data/scripts/tracestep"
LIBRARY = "tracestep-1.data/data/lib/tracestep/libplanted.so.1"
STEP = "tracestep-1.data/data/lib/tracestep/libtracestep.so"
LICENSES = "tracestep-1.dist-info/licenses/"


def compiled(folder, text, *options):
    (folder / "code.c").write_text(text)
    subprocess.run(["cc", folder / "code.c", "-o", folder / "out", *options], check=True)
    return (folder / "out").read_bytes()


def words_about(folder, files, name=NAME, mode=0o755):
    """What the check says of a wheel with these files; empty: nothing is wrong."""
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, content in files.items():
            info = zipfile.ZipInfo(path)
            info.external_attr = (mode if path == PROGRAM else 0o644) << 16
            wheel.writestr(info, content)
    run = subprocess.run([sys.executable, ROOT / "tools/check_wheel.py", folder / name],
                         capture_output=True, text=True, check=False)
    assert (run.returncode == 0) == (run.stderr == ""), run.stderr
    return run.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = compiled(folder, "int planted(void) { return 1; }", "-shared", "-fPIC",
                           "-Wl,-soname,libplanted.so.1")
        (folder / "libplanted.so.1").write_bytes(library)
        text, link = "int planted(void); int main(void) { return planted(); }", folder / "libplanted.so.1"
        good = {PROGRAM: compiled(folder, text, link, RPATH), LIBRARY: library, STEP: library,
                LICENSES + "LICENSE": "ours", LICENSES + "libplanted1.txt": "theirs"}
        without = lambda path: {name: content for name, content in good.items() if name != path}
        lost = good | {PROGRAM: compiled(folder, text, link)}
        newer = good | {PROGRAM: compiled(folder, text, link, RPATH.replace("disable", "enable"))}
        told = good | {PROGRAM: compiled(folder, f'const char* place = "{ROOT}"; ' + text, link, RPATH)}
        (folder / "map").write_text("GLIBC_2.99 { global: planted; };")
        future = good | {LIBRARY: compiled(folder, "int planted(void) { return 1; }", "-shared", "-fPIC",
                                           f"-Wl,--version-script={folder / 'map'}")}
        cases = [(future, {}, "needs GLIBC_2.99"),
                 (good, {}, ""), (good, {"name": NAME.replace("2_35", "2_17")}, "does not say"),
                 (good, {"mode": 0o644}, "may not be executed"),
                 (without(LIBRARY), {}, "needs libplanted.so.1, which the wheel does not hold"),
                 (without(STEP), {}, "lacks libtracestep.so"),
                 (without(LICENSES + "libplanted1.txt"), {}, "no licence of it"),
                 (without(LICENSES + "LICENSE"), {}, "own LICENSE"), (lost, {}, "the program's RPATH"),
                 (newer, {}, "RUNPATH"), (told, {}, "names the folder that it was built in")]
        for files, options, wanted in cases:
            said = words_about(folder, files, **options)
            assert wanted in said and (wanted or not said), f"{wanted!r} is not in {said!r}"
    print(f"{len(cases)} wheels judged")


if __name__ == "__main__":
    main()
