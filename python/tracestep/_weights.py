"""A model of Hugging Face's transformers as files that the program reads."""
from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ._commands import call


@dataclass
class Model:
    """Files of a model: `config`, its config.json, for `model=`, and `weights`, their folder, for `init=`.

    Those in a temporary folder go with this object.
    """

    config: Path
    weights: Path


def _write(file: BinaryIO, tensors: dict[str, Any]) -> None:
    """safetensors: a header in JSON, then the tensors as float32, one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, x in tensors.items():
        begin, end = end, end + 4 * x.numel()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for x in tensors.values():
        whole = x.detach().cpu().float().contiguous()
        file.write(ctypes.string_at(whole.data_ptr(), 4 * whole.numel()))


def from_module(model: Any, folder: str | os.PathLike[str] | None = None) -> Model:
    """Reads a causal language model of transformers: its config and its weights, as float32.

    Writes config.json and model.safetensors, with the model's own names, to `folder`, or to a temporary one.
    The families are those of docs/models.md. Errors: those of the program, for a model that it has not, and
    for names or shapes of weights that do not fit the config as soon as it reads them.
    """
    place = Path(tempfile.mkdtemp(prefix="tracestep-") if folder is None else folder)
    place.mkdir(parents=True, exist_ok=True)
    found = Model(place / "config.json", place)
    if folder is None:
        weakref.finalize(found, shutil.rmtree, place, ignore_errors=True)
    found.config.write_text(model.config.to_json_string(use_diff=False), encoding="utf-8")
    call("fit", (), {"model": found.config, "batch": 1, "context": 1, "memory_limit": "1TiB"}, False)
    tensors = {id(x): (name, x) for name, x in reversed(model.state_dict(keep_vars=True).items())}  # tied once
    with (place / "model.safetensors").open("wb") as file:
        _write(file, dict(tensors.values()))
    return found
