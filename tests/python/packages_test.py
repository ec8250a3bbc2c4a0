#!/usr/bin/env python3
"""The tests of module_test.py that need packages, in an environment of their own.

    tests/python/packages_test.py PROGRAM FOLDER

Makes the environment in FOLDER by pip, or takes the one that is there. Ends with status 77, which ctest
calls skipped, where pip cannot have them: on a machine without a network.
"""
import pathlib
import subprocess
import sys

PACKAGES = ("mypy==2.4.1", "pandas==3.1.1", "polars==2.1.0")
TESTS = ("SignatureTest.test_mypy_accepts_the_module_and_its_use_and_no_wrong_use",
         "ResultTest.test_tables_become_frames")


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    python = folder / "bin/python"
    installed = folder / "installed"
    if not installed.exists() or installed.read_text().split() != list(PACKAGES):
        steps = ([sys.executable, "-m", "venv", folder],
                 [python, "-m", "pip", "install", "--quiet", "--retries", "1", *PACKAGES])
        for step in steps:
            made = subprocess.run(step, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                print(f"skipped: {' '.join(PACKAGES)} cannot be installed:\n{made.stderr[-600:]}")
                return 77
        installed.write_text("\n".join(PACKAGES))
    test = pathlib.Path(__file__).with_name("module_test.py")
    return subprocess.run([python, test, program, *TESTS], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
