#!/usr/bin/env python3
"""What a person does with the Python module, on the program that is named.

    tests/python/module_test.py build/tracestep [-k PATTERN]

Tests that need pandas, polars or mypy are skipped where they are not; packages_test.py has them installed.
"""
import ast
import importlib.util
import inspect
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stderr

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(sys.argv.pop(1)) if __name__ == "__main__" else ""
sys.path.insert(0, str(ROOT / "python"))

import tracestep  # noqa: E402
from tracestep import _stub  # noqa: E402
from tracestep._commands import COMMANDS, LEFT_OUT, keyword_of, options_of, words_of  # noqa: E402

# A parser or a shell could take these for something else.
HOSTILE = ["--save=PWNED", "--overwrite", "--help", "-h", "-x", "--", "-", "=", "--run=touch PWNED; cat z #",
           "$(touch PWNED)", "a b", "a\nb", "%s", "{}", "[a]", "@file", "é"]
TINY = {"size": "tiny", "vocab": 256, "batch": 1, "threads": 1}
MODEL = {"layers": 1, "d_model": 32, "heads": 2, "d_ff": 64, "context": 16}
has = importlib.util.find_spec


def help_of(command):
    """Flag -> default as `--help` shows it, None where it shows none; what a person reads."""
    said = lambda *words: subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout
    text = said(command, "--help")
    if ": tracestep help architecture" in text:  # one line there stands for all of these
        text = text.rstrip() + "\n\n" + said("help", "architecture").split("\n\n", 2)[2]
    found = {}
    for entry in re.split(r"\n(?=  --)", text)[1:]:
        words = " ".join(re.split(r"\n\n|\n(?=  \d)", entry)[0].split())
        default = re.search(r"\[default: ([^\]]*)\]", words)
        found[words.split()[0]] = default[1].replace(" ", "") if default else None
    return found


class SignatureTest(unittest.TestCase):
    def test_keywords_and_defaults_are_those_of_the_help(self):
        for command in COMMANDS:
            parameters = inspect.signature(getattr(tracestep, command)).parameters
            shown = {keyword_of(flag): default for flag, default in help_of(command).items()
                     if flag not in LEFT_OUT}
            keywords = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
            more = {"progress", "on_step"} if command == "train" else {"progress"}
            self.assertEqual(keywords, {*shown, *more}, command)
            for name, default in shown.items():
                ours = parameters[name].default
                text = None if ours is None or ours is False else str(ours).replace(" ", "")
                if default is not None and default != text:
                    self.assertEqual(float(default), float(ours), f"{command} {name}")
                elif default is None:
                    self.assertIn(ours, (None, False), f"{command} {name}")

    def test_the_types_of_a_wheel_have_the_same_and_say_what_each_is(self):
        tree = ast.parse(_stub.HEAD + "".join(_stub.text_of(command) for command in COMMANDS))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.assertEqual(set(functions), set(COMMANDS))
        for name, node in functions.items():
            parameters = inspect.signature(getattr(tracestep, name)).parameters
            arguments = node.args.posonlyargs + node.args.kwonlyargs
            self.assertEqual([a.arg for a in arguments], list(parameters))
            self.assertTrue(all(a.annotation for a in arguments) and node.returns, name)
            defaults = node.args.defaults + node.args.kw_defaults
            for argument, default in zip(arguments, defaults):
                self.assertEqual(ast.literal_eval(default), parameters[argument.arg].default)
                if argument in node.args.kwonlyargs:
                    self.assertIn(f"{argument.arg}: ", ast.get_docstring(node))

    def test_everything_public_is_documented_and_annotated(self):
        for name in tracestep.__all__:
            thing = getattr(tracestep, name)
            self.assertGreater(len(inspect.getdoc(thing) or ""), 10, name)
            if not inspect.isclass(thing):
                continue
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                ours = str(ROOT / "python") in function.__code__.co_filename  # not what dataclass writes
                if not ours or method == "__init__":
                    continue
                self.assertTrue(inspect.getdoc(function), f"{name}.{method}")
                self.assertIn("return", function.__annotations__, f"{name}.{method}")

    @unittest.skipUnless(has("mypy"), "mypy is not installed")
    def test_mypy_accepts_the_module_and_its_use_and_no_wrong_use(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            stubs = _stub.HEAD + "".join(_stub.text_of(command) for command in COMMANDS)
            for path in (ROOT / "python/tracestep").glob("*.py*"):
                (folder / "tracestep" / path.name).parent.mkdir(exist_ok=True)
                (folder / "tracestep" / path.name).write_text(path.read_text())
            (folder / "right.py").write_text("import tracestep\n"
                                             "found: tracestep.Result = tracestep.fit(batch=4, size='xl')\n"
                                             "print(found.table['peak_bytes'], found.answer)\n")
            (folder / "wrong.py").write_text("import tracestep\ntracestep.fit(bathc=4)\n"
                                             "tracestep.fit(largest='bach')\n")
            python = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports"]
            sources = subprocess.run([*python, "tracestep"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(sources.returncode, 0, sources.stdout)
            (folder / "tracestep/__init__.pyi").write_text(stubs)
            right = subprocess.run([*python, "right.py"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(right.returncode, 0, right.stdout)
            wrong = subprocess.run([*python, "wrong.py"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(wrong.stdout.count("error:"), 2, wrong.stdout)


class ResultTest(unittest.TestCase):
    def test_a_plan_has_the_sentence_and_rows_of_the_program(self):
        found = tracestep.fit(size="small", memory_limit=2**33)
        said = subprocess.run([PROGRAM, "fit", "--size", "small", "--memory-limit", "8GiB"], check=True,
                              capture_output=True, text=True).stdout
        self.assertEqual(found.answer, said.splitlines()[0])
        self.assertEqual(found.table["status"], ["ok"])
        self.assertEqual(found.table["limit_bytes"], [2**33])
        self.assertIn(found.answer, repr(found))
        self.assertIn("GiB", found.table._repr_html_())
        self.assertEqual(found.environment["command_line"][0], "fit")

    def test_a_measured_grid_has_rows_and_charts_and_can_be_compared(self):
        found = tracestep.bench(context=[16, 32], steps=3, warmup=1, roof=0, **TINY, progress=False)
        self.assertEqual(found.table["context"], [16, 32])
        self.assertGreater(min(found.table["median_ms"]), 0)
        self.assertTrue(found.pictures)
        self.assertIn("mean (ms)", repr(found))
        self.assertIn("mean (ms)", found.table._repr_html_())
        for picture in found.pictures.values():
            self.assertIn("<svg", picture)
            self.assertIn(picture, found._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "bench.json"
            found.save(file)
            self.assertEqual(tracestep.load(file).data, found.data)
            both = tracestep.compare(found, file, progress=False)
        self.assertEqual(both.schema.split("/")[0], "tracestep.compare")

    def test_a_recording_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            snapshot = os.path.join(folder, "step.pickle")
            tracestep.memory(predict=True, context=16, snapshot=snapshot, **TINY, progress=False)
            found = tracestep.read(snapshot, progress=False)
        self.assertEqual(found.schema.split("/")[0], "tracestep.read")
        self.assertIn("peak", found.answer)
        self.assertIn("holders", found.tables)

    def test_a_training_has_its_steps_which_come_one_by_one(self):
        lines, rows = [], []
        found = tracestep.train(text=[ROOT / "README.md"], steps=3, progress=lines.append,
                                on_step=rows.append, **MODEL)
        self.assertEqual(found["steps"]["step"], [1, 2, 3])
        self.assertEqual(rows, found["steps"].rows)
        self.assertEqual(found["steps"]["loss"][0], found.table["first_loss"][0])
        self.assertEqual(sum("step " in line for line in lines), 3, lines)

    def test_weights_are_trained_exported_and_read_back_as_a_published_model(self):
        quiet = {"progress": False, "token_dtype": "uint16", "batch": 2, "context": 16}
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "tokens").write_bytes(bytes(n % 50 * (n % 2 == 0) for n in range(800)))
            tracestep.train(tokens=place / "tokens", steps=20, lr=0.01, vocab=64, save=place / "w.safetensors",
                            threads=1, **MODEL | quiet)
            written = tracestep.export(place / "w.safetensors", place / "mine", progress=False)
            self.assertIn("mine is written", written.answer)
            self.assertEqual(repr(written), written.answer)
            again = tracestep.train(model=place / "mine", tokens=place / "tokens", steps=1, threads=1, **quiet,
                                    checkpoint=place / "run")
            handed_back = tracestep.export(place / "run", place / "tuned", progress=False)
            self.assertIn("tuned is written", handed_back.answer)
            self.assertTrue((place / "tuned/model.safetensors").exists())
            losses = [tracestep.eval(tokens=place / "tokens", threads=1, **how, **quiet).table["loss"]
                      for how in ({"init": place / "w.safetensors"}, {"model": place / "mine"})]
            self.assertEqual(*losses)
            self.assertLess(again.table["first_loss"][0], 3.5)  # of new weights: about ln 64, 4.16
            with self.assertRaises(tracestep.OutputError):
                tracestep.export(place / "w.safetensors", place / "mine", progress=False)

    def test_a_stored_study_is_read_with_its_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            study = next((ROOT / "bench/results").glob("study-*/study.html"))
            found = tracestep.study(from_=study, output_dir=folder, progress=False)
            self.assertTrue((pathlib.Path(folder) / "study.html").exists())
        self.assertGreater(len(found.tables), 10)
        self.assertTrue(found.answer)

    @unittest.skipUnless(has("pandas") and has("polars"), "pandas or polars is not installed")
    def test_tables_become_frames(self):
        found = tracestep.memory(predict=True, context=[16, 32], **TINY, progress=False)
        for table in found.tables.values():
            frame = table.to_pandas()
            self.assertEqual(set(frame.columns), set(table.columns))
            self.assertEqual(len(frame), len(table))
            self.assertEqual(table.to_polars().shape, frame.shape)
        first = list(found.to_pandas().columns)
        self.assertEqual(first, list(found.to_polars().columns))
        self.assertEqual(first[0], "context")
        self.assertIn("predicted_peak_bytes", first[:10])
        self.assertIn("by_category", first[10:])
        peaks = found.table["peak_bytes"]
        self.assertEqual(found.to_pandas()["peak_bytes"].tolist(), peaks)
        self.assertEqual(found.to_polars()["peak_bytes"].to_list(), peaks)


class EndTest(unittest.TestCase):
    def test_mistakes_are_exceptions_with_the_words_of_the_program(self):
        quiet = {"progress": False}
        with self.assertRaises(tracestep.UsageError) as caught:
            tracestep.fit(batch=-3, **quiet)
        self.assertEqual((caught.exception.where, caught.exception.status), ("--batch", 2))
        self.assertIn("give a whole number from 1", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(tracestep.InputError):
            tracestep.compare("no such file", "neither", **quiet)
        with self.assertRaisesRegex(TypeError, "no option 'bathc'"):
            tracestep.fit(bathc=3)
        with self.assertRaisesRegex(TypeError, "True or False"):
            tracestep.fit(tune="yes")
        with self.assertRaisesRegex(TypeError, "wants a value"):
            tracestep.fit(size=True)
        with self.assertRaises(tracestep.DeviceError if "cuda" not in PROGRAM else tracestep.Error):
            tracestep.bench(device="cuda:99", **TINY, **quiet)
        with self.assertRaises(AttributeError):
            tracestep.launch

    def test_the_module_run_by_python_is_the_program(self):
        path = f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"
        words = [sys.executable, "-m", "tracestep", "fit", "--size", "tiny", "--memory-limit", "8GiB"]
        run = subprocess.run(words, cwd=ROOT / "python", env={**os.environ, "PATH": path},
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("fits", run.stdout)
        run = subprocess.run([*words[:3], "no-such"], cwd=ROOT / "python",
                             env={**os.environ, "PATH": path}, capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)

    def test_messages_go_to_stderr_unless_they_are_not_wanted(self):
        for progress, wanted in ((True, "step 1/1"), (False, "")):
            shown = io.StringIO()
            with redirect_stderr(shown):
                tracestep.train(text=[ROOT / "README.md"], steps=1, progress=progress, **MODEL)
            self.assertIn(wanted, shown.getvalue())
            self.assertEqual(bool(shown.getvalue()), progress)

    def test_a_program_that_dies_is_an_exception(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tracestep"
            file.write_text("#!/bin/sh\nkill -SEGV $$\n")
            file.chmod(0o755)
            try:
                tracestep.use(file)
                with self.assertRaisesRegex(tracestep.Error, "SIGSEGV"):
                    tracestep.fit()
            finally:
                tracestep.use(PROGRAM)
        with self.assertRaises(FileNotFoundError):
            tracestep.use("/no/such/program")

    def test_ctrl_c_ends_behind_the_step_under_way_with_what_there_is(self):
        script = (f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import tracestep\n"
                  f"tracestep.use({PROGRAM!r})\n"
                  "def tell(row):\n"
                  "  if row['step'] == 1: print('stepped', file=sys.stderr, flush=True)\n"
                  "try:\n"
                  f"  tracestep.train(text=[{str(ROOT / 'README.md')!r}], steps=1000000, on_step=tell,\n"
                  f"                  progress=False, **{MODEL!r})\n"
                  "except KeyboardInterrupt as stop:\n"
                  "  print(type(stop).__name__, len(stop.result['steps']) if stop.result else None)\n")
        process = subprocess.Popen([sys.executable, "-c", script], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.assertEqual(process.stderr.readline(), "stepped\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        kind, steps = out.split()
        self.assertEqual(kind, "Interrupted")
        self.assertGreaterEqual(int(steps), 1)


class AttentionTest(unittest.TestCase):
    def test_a_last_axis_that_is_not_contiguous_is_refused_without_assertions_too(self):
        script = ("import sys, types\n"
                  f"sys.path.insert(0, {str(ROOT / 'python')!r})\n"
                  "sys.modules['torch'] = types.SimpleNamespace(float32=0, bfloat16=1, float16=2)\n"
                  "from tracestep._attention_library import strides_of\n"
                  "strides_of(types.SimpleNamespace(stride=lambda axis: 2, size=lambda axis: 8))\n")
        run = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True)
        self.assertIn("ValueError: the last axis has a stride of 2; it has to be contiguous", run.stderr)


class NameTest(unittest.TestCase):
    """No name, element of a list or text is taken for anything but itself."""

    def setUp(self):
        self.before, self.folder = os.getcwd(), tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        pathlib.Path("t.txt").write_text("some text to train on\n" * 60)

    def tearDown(self):
        os.chdir(self.before)
        self.folder.cleanup()

    def test_files_that_are_named_like_options_are_files(self):
        found = tracestep.bench(steps=6, warmup=0, roof=0, device="null", **MODEL, progress=False)
        for name in ("#1.json", "#2.json"):
            found.save(f"--run=touch PWNED; cat z {name}")
        for name in ("-x", "--", "é %s\n"):
            found.save(name)
        found.save("z")
        for name in sorted(os.listdir()):
            if name != "t.txt":
                both = tracestep.compare(name, "z", progress=False)
                self.assertEqual(both.schema.split("/")[0], "tracestep.compare", name)
        tracestep.compare(*sorted(name for name in os.listdir() if name.endswith(".json")), progress=False)
        self.assertFalse(os.path.exists("PWNED"))
        with self.assertRaisesRegex(tracestep.InputError, "--model=x"):
            tracestep.export("--model=x", "out", progress=False)

    def test_elements_of_lists_are_no_options(self):
        with self.assertRaisesRegex(tracestep.InputError, "--save=PWNED"):
            tracestep.train(text=["t.txt", "--save=PWNED"], steps=1, **MODEL, progress=False)
        self.assertEqual(os.listdir(), ["t.txt"])
        pathlib.Path("--overwrite").write_text("more text to train on\n" * 60)
        found = tracestep.train(text=["t.txt", "--overwrite"], save="--log=x", steps=1, **MODEL, progress=False)
        self.assertEqual(len(found["steps"]), 1)
        self.assertTrue(os.path.exists("--log=x"))

    def test_what_is_empty_is_refused(self):
        for call in (lambda: tracestep.train(text="t.txt", save="", log_every=1, **MODEL, progress=False),
                     lambda: tracestep.train(text=["t.txt", ""], **MODEL, progress=False),
                     lambda: tracestep.train(text=[], **MODEL, progress=False),
                     lambda: tracestep.bench(context=[], progress=False),
                     lambda: tracestep.export("", "x", progress=False),
                     lambda: tracestep.compare("z", "", progress=False)):
            with self.assertRaisesRegex(tracestep.UsageError, "the value is empty"):
                call()
        with self.assertRaisesRegex(TypeError, "None"):
            tracestep.compare(None, "z")
        self.assertEqual(os.listdir(), ["t.txt"])

    def test_every_value_stands_in_one_word_with_its_flag(self):
        for command in COMMANDS:
            for option in options_of(command).values():
                if not option["value"]:
                    continue
                for value in HOSTILE:
                    self.assertEqual(words_of(option, value), [f"{option['flag']}={value}"])
                    for word in words_of(option, [value, value]):
                        self.assertTrue(word.startswith(option["flag"] + "="), word)

    def test_a_folder_is_no_program(self):
        self.addCleanup(tracestep.use, PROGRAM)
        with self.assertRaises(FileNotFoundError):
            tracestep.use(self.folder.name)

    def test_names_are_those_of_utf8_in_every_locale(self):
        script = (f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import tracestep\n"
                  f"tracestep.use({PROGRAM!r})\n"
                  "try: tracestep.compare(b'\\xc3\\xa9.json', 'z')\n"
                  "except tracestep.InputError as error: print(ascii(str(error)))\n")
        odd = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        run = subprocess.run([sys.executable, "-c", script], env={**os.environ, **odd}, capture_output=True,
                             text=True)
        self.assertIn("\\xe9.json", run.stdout, run.stderr)

    def test_an_option_of_other_programs_is_answered_with_ours(self):
        for name, ours in (("dtype", "precision"), ("batch_size", "batch"), ("seq_len", "context"),
                           ("vocab_size", "vocab"), ("contxt", "context")):
            with self.assertRaisesRegex(TypeError, f"no option '{name}'; .*did you mean {ours}\\?"):
                tracestep.memory(**{name: 1})
        with self.assertRaisesRegex(TypeError, "no option 'shards'; it is .* of train"):
            tracestep.memory(shards=2)
        for name in ("output", "format", "help", "no such name"):  # the program is not asked to do that
            with self.assertRaisesRegex(TypeError, "--help lists them"):
                tracestep.fit(**{name: "new"})
        with self.assertRaisesRegex(TypeError, "takes no files, not 1; say fit\\(model='llama-3.1-8b'\\)"):
            tracestep.fit("llama-3.1-8b")
        with self.assertRaisesRegex(TypeError, "say train\\(text='t.txt'\\)"):
            tracestep.train("t.txt")
        with self.assertRaisesRegex(TypeError, "takes no files, not 1$"):
            tracestep.fit(5)
        self.assertEqual(os.listdir(), ["t.txt"])


class BrokenTest(unittest.TestCase):
    """What fails on the way is an exception of the caller, or tracestep.Error."""

    def answers(self, script):
        """What fit says of a program that is a script of the shell."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tracestep"
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
            try:
                tracestep.use(file)
                return tracestep.fit(progress=False)
            finally:
                tracestep.use(PROGRAM)

    def test_the_first_exception_of_a_function_ends_the_run_and_reaches_the_caller(self):
        class Mine(Exception):
            pass

        def fail(seen):
            calls.append(seen)
            raise Mine("enough")

        for kind in (Mine, SystemExit):
            for how in ("on_step", "progress"):
                calls = []
                how = {"progress": False, how: fail} if kind is Mine else {"progress": sys.exit}
                shown = io.StringIO()
                with redirect_stderr(shown), self.assertRaises(kind):
                    tracestep.train(text=ROOT / "README.md", steps=10_000_000, **MODEL, **how)
                self.assertEqual(shown.getvalue(), "")
                self.assertLess(len(calls), 2)

    def test_answers_that_are_broken_are_errors(self):
        tracestep.fit(size="tiny", memory_limit=2**33, progress=False)  # what options there are is known
        for script in ("echo '{\"schema\": \"tracestep.fit/1\", '", "true", "echo '[1]'", "echo 5",
                       "echo '{\"columns\": [\"a\"]}'", "printf '\\377'", "exit 77", "kill -KILL $$",
                       "echo '{\"rows\": [1]}'", "head -c 100000 /dev/zero | tr '\\0' '['"):
            with self.assertRaises(tracestep.Error, msg=script):
                self.answers(script)

    def test_files_that_hold_no_result_are_errors(self):
        whole = {"schema": "tracestep.x/1", "columns": {"a": {"kind": "int"}}, "rows": [{"a": 1}]}
        broken = [b"", b"5", b"[1]", b"\xff\xfe", b"null", b"[" * 100000, b"{}", b'{"columns":["a"]}', b'"x"']
        for member, value in (("columns", ["a"]), ("columns", {"a": None}), ("columns", {"a": {"title": 5}}),
                              ("columns", {"a": {"description": None}}), ("columns", {"a": {"words": []}}),
                              ("rows", {}), ("rows", [1]), ("rows", [None]), ("notes", [1]), ("notes", "x"),
                              ("tables", {"t": 1}), ("tables", []), ("table", 4), ("answer", None),
                              ("environment", []), ("schema", None)):
            broken.append(json.dumps({**whole, member: value}).encode())
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file"
            for content in broken:
                file.write_bytes(content)
                with self.assertRaises(tracestep.Error, msg=content[:80]):
                    tracestep.load(file)
            file.write_text(json.dumps({**whole, "table": "no such"}))
            self.assertEqual(tracestep.load(file).table["a"], [1])
            self.assertIn("<table", tracestep.load(file)._repr_html_())
        with self.assertRaises(FileNotFoundError):
            tracestep.load("/no/such/file")

    def test_an_error_is_raised_and_not_printed_as_well(self):
        shown = io.StringIO()
        with redirect_stderr(shown), self.assertRaisesRegex(tracestep.InputError, "missing.txt"):
            tracestep.train(text="missing.txt", **MODEL)
        self.assertNotIn("missing.txt", shown.getvalue())


class NotebookTest(unittest.TestCase):
    def test_every_cell_of_the_notebook_runs_and_shows_what_it_says(self):
        book = json.loads((ROOT / "examples/notebook.ipynb").read_text())
        cells = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
        self.assertGreater(len(cells), 4)
        names, shown = {}, []
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            here = os.getcwd()
            os.chdir(folder)
            try:
                for source in cells:
                    *body, last = ast.parse(source).body
                    exec(compile(ast.Module(body, []), "cell", "exec"), names)
                    if isinstance(last, ast.Expr):
                        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
                        shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
                    else:
                        exec(compile(ast.Module([last], []), "cell", "exec"), names)
            finally:
                os.chdir(here)
        self.assertGreater(sum("<table" in text for text in shown), 2)
        self.assertGreater(sum("<svg" in text for text in shown), 1)


if __name__ == "__main__":
    tracestep.use(PROGRAM)
    unittest.main(verbosity=1)
