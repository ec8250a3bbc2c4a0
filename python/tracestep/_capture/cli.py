"""python -m tracestep capture: a script's module, or a folder of Hugging Face's, as a program."""
from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._commands import call
from .._program import Error, InputError, UsageError

EXAMPLE = """
SCRIPT.py:FUNCTION   the function takes nothing and returns the module and its inputs (a tensor, a tuple of
                     them or a dict of keywords), and if need be a dict of options of tracestep.capture, as
                     {"loss": function, "targets": ids}
DIR                  a folder with the config.json of a model of transformers: a causal language model, with its
                     weights where there are some; dropout is set to 0. One of an architecture that tracestep has a
                     program of is not captured: --model DIR takes that program
"""


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    out = argparse.ArgumentParser(prog="python -m tracestep capture", epilog=EXAMPLE, description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("what", metavar="SCRIPT.py:FUNCTION|DIR")
    out.add_argument("--folder", type=Path, help="where the program is written [default: the name, captured-NAME]")
    out.add_argument("--overwrite", action="store_true", help="replace a capture that is there")
    out.add_argument("--patterns", default="all", help="composites that are looked for: all, none, or names joined by +")
    out.add_argument("--no-check", action="store_true", help="leave out the comparison with the module")
    out.add_argument("--no-step", action="store_true", help="do not record what a step of eager PyTorch allocates")
    out.add_argument("--autocast", choices=("bf16", "fp16"), help="of that step, where the script has none of its own")
    out.add_argument("--batch", type=int, default=1, help="of DIR: rows [default: 1]")
    out.add_argument("--context", type=int, default=128, help="of DIR: tokens of a row [default: 128]")
    out.add_argument("--native", choices=("on", "off"), default="on",
                     help="of DIR: off captures what tracestep has a program of its own for, too [default: on]")
    out.add_argument("--plan", action="store_true", help="of DIR: without weights and check, for models of any size")
    return out


def from_script(what: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Runs the script, and the function in it that makes the module."""
    path, _, function = what.rpartition(":")
    if not Path(path).is_file():
        raise InputError(f"[capture] there is no script {path!r}", 3)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec.loader.exec_module(script)
    build = getattr(script, function, None)
    if not callable(build):
        raise UsageError(f"[capture] {path} has no function {function!r}", 2)
    built = build()
    if not isinstance(built, tuple) or len(built) not in (2, 3):
        raise UsageError(f"[capture] {function} returns a {type(built).__name__}; a module and its inputs, and perhaps "
                         "options, are expected", 2)
    module, inputs, options = (*built, {})[:3]
    if isinstance(inputs, dict):
        return module, (), {**inputs, **options}
    return module, inputs if isinstance(inputs, tuple) else (inputs,), options


def has_own_program(folder: Path) -> bool:
    """True if the option --model of the commands accepts the folder, so that nothing need be captured."""
    try:
        call("show", (), {"model": folder, "mode": "forward", "passes": True, "batch": 1, "context": 1}, False)
    except Error:
        return False
    return True


def from_transformers(folder: Path, batch: int, context: int, is_plan: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Makes a causal language model from its config.json, offline. Its labels are its tokens, which it shifts itself.
    """
    try:
        import torch
        import transformers
    except ImportError as problem:
        raise UsageError(f"[capture] a folder of transformers needs that package: {problem}", 2) from None
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        for key, value in list(vars(config).items()):
            if "drop" in key and isinstance(value, float):
                setattr(config, key, 0.0)
        config.use_cache = False
        model = transformers.AutoModelForCausalLM
        if is_plan:
            try:
                from transformers.initialization import no_init_weights
            except ImportError:  # before transformers 5
                from transformers.modeling_utils import no_init_weights
            with no_init_weights():
                module = model.from_config(config)
            module.tie_weights()  # which is left out along with the values
        elif any(folder.glob("*.safetensors")):
            module = model.from_pretrained(folder, config=config, local_files_only=True)
        else:
            module = model.from_config(config)
    except (OSError, ValueError) as problem:
        raise InputError(f"[capture] {str(problem).splitlines()[0]}", 3) from None
    ids = torch.randint(0, config.vocab_size, (batch, context), generator=torch.Generator().manual_seed(0))
    return module.train(), (), {"input_ids": ids, "labels": ids, "weights": not is_plan}


def main(words: Sequence[str]) -> int:
    """Captures a module, prints what was found, and returns the exit status."""
    options = parser().parse_args(words)
    try:
        from . import capture
    except ImportError as problem:
        print(f"tracestep: [capture] PyTorch is needed: {problem}", file=sys.stderr)
        return 2
    try:
        folder = Path(options.what)
        is_folder = folder.is_dir()
        if is_folder and options.native == "on" and has_own_program(folder):
            print(f"tracestep has a program of its own for this architecture, so nothing is captured: it is --model {folder} "
                  f"--batch {options.batch} --context {options.context}; --native off captures the module")
            return 0
        module, inputs, more = (from_transformers(folder, options.batch, options.context, options.plan) if is_folder
                                else from_script(options.what))
        name = folder.resolve().name if is_folder else options.what.rpartition(":")[2]
        print(capture(module, *inputs, **{"folder": options.folder or f"captured-{name}", "patterns": options.patterns,
                                          "check": not options.no_check, "step": not options.no_step,
                                          "autocast": options.autocast,
                                          "overwrite": options.overwrite, **more}))
    except Error as problem:
        print(f"tracestep: {problem}", file=sys.stderr)
        return problem.status
    return 0
