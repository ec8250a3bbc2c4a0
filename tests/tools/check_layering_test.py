"""Plants one broken rule per case and expects tools/check_layering.py to name the line."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layering  # found in that folder


def run_check(files):
    """Output and exit status of the check over a repository of `files` (path -> text)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder, path if path.startswith("docs/") else f"src/{path}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = check_layering.main(folder)
        return said.getvalue(), status


class CheckLayeringTest(unittest.TestCase):
    def expect_broken(self, path, include, words, target=None):
        files = {path: f"// head\n#include {include}\n"}
        if target:
            files[target] = ""
        output, status = run_check(files)
        self.assertEqual(status, 1, output)
        self.assertIn(f"src/{path}:2: ", output)
        self.assertIn(words, output)

    def test_transitive_rows_and_libraries_are_allowed(self):
        output, status = run_check({
            "lab/report/a.cpp": '#include "base/a.h"\n#include "passes/a.h"\n#include <vector>\n',
            "capi/a.cpp": '#include "backends/cpu/a.h"\n',
            "backends/cpu/a.h": "#include <hwy/highway.h>\n",
            "base/a.h": "", "passes/a.h": ""})
        self.assertEqual(status, 0, output)

    def test_an_arrow_against_the_rows_is_found(self):
        self.expect_broken("ir/a.h", '"ops/a.h"', "ir/ may include base", "ops/a.h")

    def test_a_back_end_does_not_see_another(self):
        self.expect_broken("backends/cpu/a.h", '"backends/null/a.h"', "not backends/null/",
                           "backends/null/a.h")

    def test_the_groups_of_a_back_end_have_an_order(self):
        for path, include in (("cuda/attention/a.cuh", "cuda/numbers.cuh"),
                              ("cuda/numbers.cuh", "cuda/kernels.h"),
                              ("cuda/toolkit/check.cpp", "cuda/launch.cuh"),
                              ("cuda/softmax.cu", "cuda/cuda_device.h"),
                              ("cpu/operand.h", "cpu/tiles-inl.h"),
                              ("cpu/softmax.cpp", "cpu/cpu_device.h")):
            self.expect_broken(f"backends/{path}", f'"backends/{include}"', "stand below",
                               f"backends/{include}")

    def test_what_stands_lower_in_a_back_end_is_allowed(self):
        output, status = run_check({
            "backends/cuda/attention.cpp": '#include "backends/cuda/attention/attention.h"\n',
            "backends/cuda/attention/attention.h": "", "backends/cpu/cpu_device.cpp":
            '#include "backends/cpu/kernels.h"\n', "backends/cpu/kernels.h": ""})
        self.assertEqual(status, 0, output)

    def test_concrete_back_ends_are_named_only_at_the_edge(self):
        self.expect_broken("lab/time/a.h", '"backends/cpu/a.h"', "not backends/cpu/",
                           "backends/cpu/a.h")

    def test_the_oracle_does_not_see_the_scalar_functors(self):
        self.expect_broken("backends/reference/a.h", '"ops/scalar/a.h"', "oracle",
                           "ops/scalar/a.h")

    def test_flags_are_named_by_the_command_line_alone(self):
        for path, literal in (("train/a.cpp", '"leave " // why\n  "--lr out"'),
                              ("spec/a.cpp", '"with --lr"'), ("lab/time/a.cpp", '"--steps"')):
            output, status = run_check({path: f"// of --lr\nconst char* a =\n  {literal};\n"})
            self.assertEqual(status, 1, output)
            self.assertIn(f"src/{path}:3: ", output)
            self.assertIn("names a flag", output)

    def test_tables_of_fields_and_command_lines_may_name_flags(self):
        output, status = run_check({
            "cli/a.cpp": 'const char* a = "leave --lr out";\n',
            "spec/a.cpp": 'const char* a = "--max-noise";  // the flag --x\n',
            "lab/time/a.cpp": 'const char* a = "tracestep bench "\n  "--size tiny";\n'})
        self.assertEqual(status, 0, output)

    def test_only_the_table_of_run_fields_lists_them(self):
        table = ('rows.add({.name = "size"});\nplace("device");\nadd(\n    "layers");\n'
                 'rows.add({.name = "mode"}, {"size", "mode", "layers"});\n')
        for listed, status in (('{"size", "mode",\n  "layers"}', 1), ('"x", "size", "mode"', 0),
                               ('Array{"device", "kernel", "mode", "size"}', 1),
                               ('{{"size", 1}, {"mode", 2}, {"layers", 3}}', 0)):
            output, found = run_check({"spec/fields.cpp": table,
                                       "lab/time/a.cpp": f"// a\nauto a = {listed};\n"})
            self.assertEqual(found, status, output)
            self.assertEqual("src/lab/time/a.cpp:2: a list of run fields" in output, status == 1)
        fields = check_layering.run_fields(ROOT)
        self.assertLessEqual({"size", "d_model", "context", "precision", "parallel", "device",
                              "threads", "tune_file"}, fields)

    def test_devices_are_asked_what_they_can_do(self):
        for test, status in (('place.device == "cuda"', 1), ('"cpu" == x || y != "cpu"', 1),
                             ('row.text("device").starts_with("cuda")', 1),
                             ('device != "null"', 1), ("kind == DeviceKind::kCpu", 1),
                             ("traits.has_own_memory()", 0), ('json == "null"', 0),
                             ('Place{.device = "cuda"}', 0), ('name.starts_with("cuda")', 0)):
            for path in ("lab/time/a.cpp", "cli/a.cpp"):
                output, found = run_check({path: f"// a\nbool a = {test};\n"})
                self.assertEqual(found, status, output)
                self.assertEqual(f"src/{path}:2: " in output, status == 1)
        for path in ("planning/a.cpp", "backends/cpu/a.cpp", "cli/devices.cpp"):
            self.assertEqual(run_check({path: 'bool a = x == "cuda";\n'})[1], 0)

    def test_the_engine_parses_no_users_text(self):
        for path, call, status in (("passes/a.cpp", "parse_int(where, text)", 1),
                                   ("backends/cuda/a.cu", 'parse_precision("x", "bf16")', 1),
                                   ("run/a.cpp", "checked_parts(where, text, known)", 1),
                                   ("passes/a.cpp", "parse_program(text)", 0),
                                   ("passes/a.cpp", "f();  // parse_int(x)", 0),
                                   ("spec/a.cpp", "parse_int(where, text)", 0)):
            output, found = run_check({path: f"// a\nauto a = {call};\n"})
            self.assertEqual(found, status, output)
            self.assertEqual(f"src/{path}:2: " in output, status == 1)

    def test_a_column_of_several_tables_is_declared_once(self):
        known = ('inline constexpr KnownText op{"op"}, part{"part", "", "of it"};\n'
                 'inline constexpr KnownReal ms{"ms", "time", "", "ms", 3};\n')
        for column, status in (('text_column("op")', 1), ('text_column(\n  "part", "title")', 1),
                               ('int_column("op")', 0), ('text_column("other")', 0),
                               ('real_column("ms", "time", "us", 3)', 0), ("col::op", 0)):
            output, found = run_check({"lab/report/known_columns.h": known,
                                       "lab/time/a.cpp": f"// a\nauto a = {column};\n"})
            self.assertEqual(found, status, output)
            self.assertEqual("src/lab/time/a.cpp:2: the column" in output, status == 1)

    def test_nothing_is_decided_by_words(self):
        for test, status in (('note.starts_with("doubt: ")', 1), ('text.find(" vocab of") != npos', 1),
                             ('x == "some words"', 1), ('error.where() == "heads"', 1),
                             ('"x" == e.message()', 1), ('e.hint().starts_with(y)', 1),
                             ('text.starts_with("--")', 0), ('name == "max-steps"', 0),
                             ('log("{}", error.message())', 0), ("row.text(a) == b", 0)):
            output, found = run_check({"lab/time/a.cpp": f"// a\nbool a = {test};\n"})
            self.assertEqual(found, status, f"{test}: {output}")
            self.assertEqual("src/lab/time/a.cpp:2: " in output, status == 1)

    def test_options_are_marked_and_exist(self):
        for text, status in (('"give option size"', 1), ('"give options "\n "d_model and more"', 1),
                             ('"give " TRACESTEP_OPTION(size)', 0), ('TRACESTEP_OPTION(sise)', 1),
                             ('fail("d_model"_field)', 0), ('fail("dmodel"_field)', 1),
                             ('"the same options, or others"', 0)):
            output, found = run_check({"docs/cli.md": "--size NAME\n--d-model N\n",
                                       "nn/a.cpp": f"// a\nauto a = {text};\n"})
            self.assertEqual(found, status, f"{text}: {output}")
            self.assertEqual("src/nn/a.cpp:2: " in output, status == 1)

    def test_a_type_of_two_files_is_found(self):
        first = "namespace tracestep {\n// struct Event {\nstruct Event final : Base<int> {};\n}\n"
        for second, status in (("namespace tracestep {\nclass Event {\n};\n}", 1),
                               ("namespace tracestep {\nenum class Event : int { kA };\n}", 1),
                               ("namespace tracestep {\nnamespace {\nstruct Event {};\n}\n}", 0),
                               ("namespace tracestep::cuda {\nstruct Event {};\n}", 0),
                               ("namespace tracestep {\nstruct Event;\nstruct A { struct Event {}; };\n}", 0),
                               ("namespace tracestep {\nauto f(struct Event& x) { return 1; }\n}", 0),
                               ('namespace tracestep {\nauto a = R"(\nstruct Event {)";\n}', 0)):
            output, found = run_check({"base/a.h": first, "base/b.h": second})
            self.assertEqual(found, status, f"{second}: {output}")
            self.assertEqual("src/base/b.h:2: tracestep::Event is a type of base/a.h" in output,
                             status == 1)

    def test_scalar_functors_include_nothing(self):
        self.expect_broken("ops/scalar/a.h", "<cmath>", "include nothing")

    def test_libraries_stay_in_their_folders(self):
        for header in ("cuda_runtime.h", "cublasLt.h", "nccl.h", "mpi.h", "hwy/highway.h",
                       "nlohmann/json.hpp", "sentencepiece_trainer.h"):
            self.expect_broken("runtime/a.h", f"<{header}>", "may be included only in")

    def test_a_kernel_that_may_be_launched_early_waits_first(self):
        kernel = ("template <class T>\n__global__ void __launch_bounds__(256)\n"
                  "    a_kernel(Predecessors before, const T* x, T* y) {\n%s  y[0] = x[0];\n}\n")
        for first, status in (("  before.wait();\n", 0), ("#ifdef CODE\n  before.wait();\n", 0),
                              ("  before.let_next_begin();\n  prefetch(x);\n  before.wait();\n", 0),
                              ("  before.let_next_begin();\n", 1),
                              ("", 1), ("  y[1] = 0;\n  before.wait();\n", 1)):
            output, found = run_check({"backends/cuda/a.cu": kernel % first})
            self.assertEqual(found, status, output)
            self.assertEqual("src/backends/cuda/a.cu:4: a kernel that" in output, status == 1)

    def test_a_missing_file_and_a_way_upwards_are_found(self):
        self.expect_broken("ir/a.h", '"ir/none.h"', "no file src/ir/none.h")
        self.expect_broken("ir/a.h", '"../base/a.h"', "without '..'", "base/a.h")

    def test_a_folder_without_a_row_is_found(self):
        output, status = run_check({"extras/a.h": ""})
        self.assertEqual(status, 1)
        self.assertIn("no row in the layering table", output)


if __name__ == "__main__":
    unittest.main()
