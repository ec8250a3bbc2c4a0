"""Lets tools/rank_checks.py judge a program with planted faults, and expects it to find each."""
import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True
import rank_checks  # noqa: E402

# Answers as the program does; FAULT says how it is wrong in two processes.
PROGRAM = f"""#!{sys.executable}
import json, os, sys, time
words, fault = sys.argv[1:], os.environ.get("FAULT", "")
in_two = words[0] == "launch"
if in_two: words = words[words.index("--") + 1:]
if in_two and fault == "fails": sys.exit("tracestep: [rank 1] planted")
if in_two and fault == "hangs": time.sleep(60)
def value(flag): return words[words.index(flag) + 1]
if words[0] == "train":
    factor = 1 + (float(fault) if in_two and fault[:1].isdigit() else 0)
    with open(value("--log"), "w") as log:
        for step in range(1, int(value("--steps")) + 1 - (in_two and fault == "short")):
            log.write(json.dumps(dict(step=step, loss=4.0, grad_norm=0.5 * factor)) + "\\n")
    if "--save" in words:
        open(value("--save"), "w").write(value("--save") if fault == "weights" else "")
else:
    print(json.dumps(dict(rows=[dict(mode="step", precision="fp32", ops="fused", executor="eager",
                                     status="ok", peak_bytes=8, ranks_as_predicted=2 - (fault == "rank"),
                                     predicted_peak_bytes=8 + (fault == "peaks"))])))
"""


class RankChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = Path(folder.name, "tracestep")
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.addCleanup(os.environ.pop, "FAULT", None)
        self.addCleanup(setattr, rank_checks, "RUN_SECONDS", rank_checks.RUN_SECONDS)

    def results(self, fault, only, seconds=60):
        os.environ["FAULT"] = fault
        results = list(rank_checks.check_all(self.program, "cpu", 2, lambda: seconds, only))
        self.assertTrue(results, only)
        return results

    def expect_found(self, fault, only, words):
        for result in self.results(fault, only):
            self.assertEqual(result.status, "failed", f"{fault}: {result.name}")
            self.assertIn(words, result.output)

    def test_a_program_without_faults_passes(self):
        for only in ("train tp=2", "peaks of tp", "shards of all"):
            results = self.results("", only)
            self.assertEqual({r.status for r in results}, {"passed"}, results[0].output)

    def test_every_form_is_trained_in_both_precisions(self):
        names = [r.name for r in self.results("", "train ", seconds=0)]
        for parallel, more, _ in rank_checks.forms_of(2):
            for precision in rank_checks.PRECISIONS:
                shown = " ".join([parallel, *more, precision, "compiled"])
                self.assertEqual(names.count(f"ranks/train {shown}"), 1)

    def test_more_ranks_have_products_of_forms(self):
        forms = [parallel for parallel, _, _ in rank_checks.forms_of(8)]
        for wanted in ("dp=8,shard=3", "tp=8,sp", "dp=4,tp=2,sp", "dp=2,tp=4,shard=3"):
            self.assertIn(wanted, forms)

    def test_faults_are_found_and_named(self):
        self.expect_found("1", "train dp=2 ", "grad_norm 1.0, of one device 0.5")
        self.expect_found("0.001", "train dp=2 fp32", "0.0001 is allowed")
        self.expect_found("short", "train dp=2 fp32", "20 and 19 of 20 steps")
        self.expect_found("fails", "train dp=2 fp32", "tracestep: [rank 1] planted")
        self.expect_found("peaks", "peaks of dp=2,shard=1", "peak 8, predicted 9")
        self.expect_found("rank", "peaks of dp=2,shard=1", "bytes of 1 of 2 ranks are as predicted")
        self.expect_found("weights", "shards of all", "other weights")

    def test_narrow_sums_may_differ_a_little(self):
        self.assertEqual(self.results("0.001", "train dp=2 bf16 eager")[0].status, "passed")

    def test_a_program_that_hangs_is_ended(self):
        rank_checks.RUN_SECONDS = 1
        self.expect_found("hangs", "train dp=2 fp32 eager", "status None")

    def test_what_has_no_time_left_has_failed(self):
        results = self.results("", "peaks of tp", seconds=0)
        self.assertEqual({(r.status, r.output) for r in results}, {("failed", "no time was left")})

    def test_an_end_needs_its_message_once_and_in_time(self):
        trainings = rank_checks.Trainings(self.program, "cpu", self.program.parent)
        os.environ["FAULT"] = ""

        def problems(status, output, seconds):
            return "\n".join(rank_checks.problems_of_end(trainings, "x", (status, output, seconds),
                                                         ["[rank 1]"]))

        said = "tracestep: [rank 1] it hangs"
        self.assertEqual(problems(1, said, 1.0), "")
        self.assertIn("exit status 0", problems(0, said, 1.0))
        self.assertIn("exit status None", problems(None, said, 1.0))
        self.assertIn("it took", problems(1, said, 100.0))
        self.assertIn("no message", problems(1, "", 1.0))
        self.assertIn("several", problems(1, said + "\n" + said, 1.0))
        self.assertIn("a rank is left", problems(1, said + "\nrank 0 is left\n", 1.0))


if __name__ == "__main__":
    unittest.main()
