"""Composites that a program was written in parts of, found by what the nodes compute."""
from __future__ import annotations

from .lower import Lowering
from .program import Program

NAMES = ("attention", "cross_entropy", "layer_norm", "rms_norm", "rope", "softmax", "swiglu")


def lift(program: Program, w: Lowering) -> None:
    """Replaces nodes by the composites that are wanted."""
