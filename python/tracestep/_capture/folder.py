"""The folder of a captured module: the program's text, its tensors and an index; nothing in it is executed."""
from __future__ import annotations

import ctypes
import json
import os
import struct
from pathlib import Path
from typing import Any

import torch

from .._program import OutputError
from .export import Exported

FORMAT = 1
RECORDING = "pytorch-step.json"  # what a step of PyTorch allocates (recorded_step.py)
FILES = ("program.txt", "capture.json", "weights.safetensors", "constants.safetensors", "inputs.safetensors", RECORDING)
NAMES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16",
         torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Writes a safetensors file: a header in JSON, then the tensors, one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, x in tensors.items():
        begin, end = end, end + x.element_size() * x.numel()
        header[name] = {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            whole = x.detach().cpu().contiguous()
            size = whole.element_size() * whole.numel()
            file.write((ctypes.c_char * size).from_address(whole.data_ptr()) if size else b"")


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Reads the tensors in a safetensors file that the program wrote."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    dtypes = {name: dtype for dtype, name in NAMES.items()}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            raw = bytearray(data[8 + size + begin:8 + size + end])
            x = torch.frombuffer(raw, dtype=dtypes[entry["dtype"]]) if raw else torch.empty(0)
            tensors[name] = x.reshape(entry["shape"])
    return tensors


def prepare(folder: Path, overwrite: bool) -> None:
    """Makes the folder; files of another capture in it are removed if that is allowed."""
    found = [name for name in FILES if (folder / name).exists()]
    if found and not overwrite:
        raise OutputError(f"[folder] {folder} has {found[0]} of another capture; overwrite=True replaces it", 5)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"[folder] {problem}", 5) from None
    for name in found:
        os.unlink(folder / name)


def write(folder: Path, step: Exported, module: str, check: dict[str, Any] | None, weights: bool = True,
          moves: dict[str, Any] | None = None) -> None:
    """Writes all files, and capture.json last, because a folder without it does not count. `moves`: its entry about an
    optimizer.
    """
    (folder / "program.txt").write_text(step.program.text(), encoding="utf-8")
    if step.weights and weights:
        write_tensors(folder / "weights.safetensors", step.weights)
    if step.constants:
        write_tensors(folder / "constants.safetensors", step.constants)
    if step.examples:
        write_tensors(folder / "inputs.safetensors", step.examples)
    index = {"format": FORMAT, "module": module, "torch": torch.__version__.partition("+")[0], "inputs": step.inputs,
             "tied": step.tied, "frozen": step.frozen, "buffers": step.buffers, "check": check,
             "patterns": step.lifted, **(moves or {})}
    (folder / "capture.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
