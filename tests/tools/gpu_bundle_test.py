"""Packs small builds with planted faults and expects tools/gpu_bundle to refuse them by name."""
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

PACK = Path(__file__).resolve().parents[2] / "tools" / "gpu_bundle"
COMPILER = os.environ.get("CXX", "c++")


def device_code(text):
    """A translation unit's section as nvcc leaves it: header, length, body."""
    body = text.encode().ljust(64)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


class GpuBundleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = Path(self.folder.name, "build")
        (self.build / "lib").mkdir(parents=True)

    def compile(self, name, units, *flags, text="void f() {}"):
        """An ELF file build/NAME that holds the device code of `units`."""
        bits = Path(self.folder.name, "bits")
        bits.write_bytes(b"".join(device_code(unit) + bytes(8) for unit in units))
        section = f'asm(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{bits}\\"\\n.text");'
        subprocess.run([COMPILER, "-x", "c++", "-", "-o", self.build / name, *flags,
                        "-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib"],
                       input=(section if units else "") + text, text=True, check=True)

    def make_build(self, units_of_program=(), text="void f(); int main() { f(); }"):
        self.compile("lib/libkernels.so", ["softmax", "gather"], "-shared", "-fPIC")
        self.compile("libtracestep_attention.so", ["attention"], "-shared", "-fPIC")
        self.compile("tracestep", units_of_program, f"-L{self.build / 'lib'}", "-lkernels",
                     text=text)

    def pack(self, *arguments):
        self.archive = Path(self.folder.name, "out", "bundle.tar.xz")
        self.archive.parent.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, PACK, "--build", self.build, "--output",
                               self.archive, *arguments], capture_output=True, text=True,
                              check=False)
        return done.stdout + done.stderr, done.returncode

    def test_an_archive_runs_where_it_is_unpacked(self):
        self.make_build()
        output, status = self.pack()
        self.assertEqual(status, 0, output)
        self.assertIn("in lib/libkernels.so, nowhere else", output)
        self.assertIn("MiB, at most 40 MiB are allowed", output)
        elsewhere = Path(self.folder.name, "elsewhere")
        with tarfile.open(self.archive) as archive:
            archive.extractall(elsewhere)
        self.build.rename(Path(self.folder.name, "gone"))
        subprocess.run([elsewhere / "tracestep-gpu/tracestep"], check=True)

    def test_device_code_in_two_files_is_refused_by_their_names(self):
        self.make_build(units_of_program=["gather"])
        for arguments in ([], ["--check"]):
            output, status = self.pack(*arguments)
            self.assertEqual(status, 1, output)
            self.assertIn("the same device code is in lib/libkernels.so and tracestep", output)
            self.assertFalse(self.archive.exists())

    def test_a_build_without_device_code_is_refused(self):
        self.compile("tracestep", [], text="int main() {}")
        output, status = self.pack("--check")
        self.assertEqual(status, 1, output)
        self.assertIn("this is no CUDA build", output)

    def test_an_archive_above_its_limit_is_refused_with_the_largest_files(self):
        noise = Path(self.folder.name, "noise")
        noise.write_bytes(os.urandom(2**21))
        self.make_build(text=f'asm(".data\\n.incbin \\"{noise}\\"\\n.text");'
                             "void f(); int main() { f(); }")
        output, status = self.pack("--limit", "1")
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"is [1-9]\.\d MiB above its limit")
        self.assertRegex(output, r"unpacked:\n +2\.0 MiB  tracestep\n")


if __name__ == "__main__":
    unittest.main()
