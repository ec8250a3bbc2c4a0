"""Plants one mistake per case and expects tools/check_docs.py to name the page and the line."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_docs  # found in that folder
MAP = "docs/architecture.md"
LONG = "x\n" * 1000  # lines of a source file


def run_check(files, *flags):
    """Output, exit status and the map after the check of a repository of `files` (path -> text)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = check_docs.main([*flags, folder])
        page = Path(folder, MAP)
        return said.getvalue(), status, page.read_text() if page.exists() else ""


def a_map(base="1,000", ops="1,000", includes="ir", total="2,000"):
    return (f"`src/` has {total} lines in all; `ops/` ({ops}).\n"
            f"| `base/` | {base} | errors | nothing |\n"
            f"| `ops/` | {ops} | records | {includes} |\n")


SOURCES = {"src/base/a.h": LONG, "src/ops/a.cpp": LONG}


class CheckDocsTest(unittest.TestCase):
    def expect_broken(self, files, place, words):
        output, status, _ = run_check(files)
        self.assertEqual(status, 1, output)
        self.assertIn(place, output)
        self.assertIn(words, output)

    def test_links_files_and_sizes_that_are_right_pass(self):
        page = a_map() + ("[here](#a-heading), [there](page.md#two-words), [web](https://a.b/c#d)\n"
                          "| asked | `base/a.h`, `ops/`, `ops/a.cpp`, `NAME.cpp` |\n# A heading\n"
                          "```\n[code](none.md)\n```\n`[code](none.md)`\n")
        output, status, _ = run_check({**SOURCES, MAP: page, "docs/page.md": "## Two `words`\n"})
        self.assertEqual(status, 0, output)

    def test_a_link_to_nothing_is_found(self):
        self.expect_broken({"README.md": "\n[a](docs/none.md)\n"}, "README.md:2: ", "no docs/none.md")
        self.expect_broken({"docs/a.md": "![a](none.svg)\n"}, "docs/a.md:1: ", "no none.svg")

    def test_a_link_to_a_heading_that_is_not_there_is_found(self):
        for target in ("b.md#old", "#old"):
            self.expect_broken({"docs/a.md": f"# New\n[a]({target})\n", "docs/b.md": "# New\n"},
                               "docs/a.md:2: ", "no heading #old")

    def test_a_file_that_is_not_there_is_found(self):
        for row in ("in `base/none.h`", "in `none/`", "| a | `base/a.h`, `none.h` |",
                    "in `base/none_NAME.h`"):
            self.expect_broken({**SOURCES, MAP: a_map() + row + "\n"}, f"{MAP}:4: ", "there is no ")

    def test_sizes_that_are_off_are_found(self):
        for page, words in ((a_map(base="880"), "src/base/ has 1,000 lines, not 880"),
                            (a_map(base="1,120"), "src/base/ has 1,000 lines, not 1,120"),
                            (a_map(ops="880"), "src/ops/ has 1,000 lines, not 880"),
                            (a_map(total="1,000"), "src/ has 2,000 lines, not 1,000")):
            self.expect_broken({**SOURCES, MAP: page}, f"{MAP}:", words)

    def test_a_size_within_a_tenth_is_right(self):
        output, status, _ = run_check({**SOURCES, MAP: a_map(base="910", ops="1,090")})
        self.assertEqual(status, 0, output)

    def test_sizes_can_be_written(self):
        output, status, page = run_check({**SOURCES, MAP: a_map("1", "2", total="3")}, "--write")
        self.assertEqual(status, 0, output)
        self.assertEqual(page, a_map())

    def test_a_folder_that_is_missing_or_includes_others_is_found(self):
        self.expect_broken({**SOURCES, "src/ir/a.h": LONG, MAP: a_map(total="3,000")},
                           f"{MAP}:1: ", "src/ir/ is not in the table")
        self.expect_broken({**SOURCES, MAP: a_map(includes="base")}, f"{MAP}:3: ",
                           "src/ops/ may include ir")

    def test_a_map_has_few_short_lines(self):
        self.expect_broken({**SOURCES, MAP: a_map() + "\n" * 160}, f"{MAP}:163: ", "at most 110")
        self.expect_broken({**SOURCES, MAP: a_map() + "x" * 111 + "\n"}, f"{MAP}:4: ", "111 columns")

    def test_the_table_of_passes_is_that_of_the_pipeline(self):
        code = ('  return {\n      {"split", "a doc", always},\n      {.name = "shadow",\n'
                '       .doc = "",\n      {"fuse", "", always},\n')
        head = "| `old` | a table before |\n\n| pass | does |\n|---|---|\n"
        for rows, status in (("| `split` | a |\n| `shadow` | b |\n| `fuse` | c |\n", 0),
                             ("| `shadow` | a |\n| `split` | b |\n| `fuse` | c |\n", 1),
                             ("| `split` | a |\n| `shadow` | b |\n", 1)):
            output, found, _ = run_check({"src/passes/pipeline.cpp": code,
                                          "docs/decisions/passes.md": head + rows})
            self.assertEqual(found, status, output)
            self.assertEqual("docs/decisions/passes.md:1: row" in output, status == 1)


if __name__ == "__main__":
    unittest.main()
