"""Lets bench/peers/scaling.py and proposals.py run a planted program, and reads their tables."""
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "bench" / "peers"

# A step takes 10 ms a row of a rank, and 5 more on several, 1 more where NCCL has one channel. FAULT: a rank's bytes differ.
PROGRAM = f"""#!{sys.executable}
import json, os, sys
words, fault = sys.argv[1:], os.environ.get("FAULT", "")
def value(flag, other=""): return words[words.index(flag) + 1] if flag in words else other
how = value("--parallel", "none")
ranks = int(value("-n", "1"))
if "fit" in words:
    print(json.dumps(dict(rows=[dict(flags="--parallel dp=2", peak_bytes=64, tokens_per_s=1000.0,
                                     command="tracestep bench --size tiny --batch 4 --parallel dp=2 --device cuda")])))
    sys.exit()
rows = int(value("--batch")) / (ranks if "dp=" in how else 1)
ms = 10 * rows / (ranks if "tp=" in how else 1) + (0 if ranks == 1 else 1 if "NCCL_MAX_NCHANNELS" in os.environ else 5)
print(json.dumps(dict(rows=[dict(status="ok", samples_ms=[ms], median_ms=ms, peak_bytes=64, predicted_peak_bytes=64, launches=7,
                                 tokens_per_s=1050.0, ranks_as_predicted=ranks - (fault == "rank") if ranks > 1 else None)])))
"""


class ScalingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = Path(folder.name, "tracestep")
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def run_peer(self, name, *words, fault=""):
        done = subprocess.run([sys.executable, "-B", str(PEERS / name), "--tracestep", str(self.program), *words],
                              capture_output=True, text=True, env={**os.environ, "FAULT": fault})
        return done.returncode, done.stdout + done.stderr

    def row(self, said, cell):
        line = next(line for line in said.splitlines() if line.startswith(f"| {cell} "))
        return [part.strip() for part in line.strip("|").split("|")]

    def test_shares_are_of_one_card_with_a_ranks_rows_or_all_of_them(self):
        cells = "tiny 4; tiny 8; tiny 8 dp=2,sums=low; tiny 8 dp=2 NCCL_MAX_NCHANNELS=1; tiny 8 tp=2"
        status, said = self.run_peer("scaling.py", "--rounds", "1", "--cells", cells)
        self.assertEqual(status, 0, said)
        for cell, ratio in (("tiny 8 dp=2,sums=low", 45 / 40), ("tiny 8 dp=2 NCCL_MAX_NCHANNELS=1", 41 / 40),
                            ("tiny 8 tp=2", 45 / 40)):
            self.assertEqual(self.row(said, cell)[6], f"{ratio:.3f}", said)

    def test_a_rank_with_other_bytes_is_wrong(self):
        status, said = self.run_peer("scaling.py", "--rounds", "1", "--cells", "tiny 8 dp=2", fault="rank")
        self.assertEqual(status, 1)
        self.assertIn("WRONG  tiny 8 dp=2: bytes of 1 of 2 ranks are as predicted", said)

    def test_four_cards_have_weak_and_strong_cells(self):
        status, said = self.run_peer("scaling.py", "--rounds", "1", "--gpus", "4", "--sizes", "tiny")
        self.assertEqual(status, 0, said)
        for cell in ("tiny 4 one", "tiny 16 one", "tiny 8 dp=2,sums=low", "tiny 16 dp=2,sums=low", "tiny 16 dp=4,sums=low",
                     "tiny 16 dp=4,shard=3,sums=low", "tiny 16 tp=4"):
            self.row(said, cell)

    def test_a_proposal_runs_as_it_was_told(self):
        status, said = self.run_peer("proposals.py", "--models", "tiny", "--gpus", "2")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.row(said, "tiny")[6], "+5.0", said)
        status, said = self.run_peer("proposals.py", "--models", "tiny", "--gpus", "2", fault="rank")
        self.assertEqual(status, 1)
        self.assertIn("bytes of 1 of 2 ranks", said)


if __name__ == "__main__":
    unittest.main()
