"""The loss scale of float16: the program's states, and a GradScaler of PyTorch that shows them."""
from __future__ import annotations

import ctypes
from typing import Any

from .._library import Run
from .._program import UsageError

STATES = ("loss_scale", "loss_scale.good_steps", "loss_scale.skipped_steps")


class LossScale:
    """The scale, the number of good steps in a row and of skipped steps, which are kept between steps."""

    def __init__(self, scaler: Any, precision: str) -> None:
        self.is_on = precision == "fp16"
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if self.scaler is not None and not self.is_on:
            raise UsageError('[scaler] the loss is scaled with precision="fp16"', 2)
        self.values: list[float] | None = None  # as the session has them; None: as it begins
        self._kept: list[float] | None = None  # for the next session

    def numbers(self) -> tuple[float, float, int]:
        """Growth, backoff and interval of the scaler; zeros stand for PyTorch's defaults."""
        if self.scaler is None:
            return 0.0, 0.0, 0
        return self.scaler.get_growth_factor(), self.scaler.get_backoff_factor(), self.scaler.get_growth_interval()

    def begin(self) -> None:
        """Begins a new session, which takes over the values of the last one."""
        self.values, self._kept = None, self.values or self._kept

    def give(self, run: Run) -> None:
        """Sets the session's values to the scaler's, or to those of the session before. `run`: the one that updates."""
        wanted = self.values or self._kept
        if self.scaler is not None:
            now = self.scaler.state_dict()
            wanted = [float(now["scale"]), float(now["_growth_tracker"]), wanted[2] if wanted else 0.0]
        if self.is_on and wanted is not None and wanted != self.values:
            for name, value in zip(STATES, wanted):
                run.set(name, (ctypes.c_float * 1)(value))
            self.values = wanted

    def take(self, run: Run) -> bool:
        """Reads the values after an update; returns False if it was skipped because gradients overflowed."""
        if not self.is_on:
            return True
        before = self.values[2] if self.values else 0.0
        found = (ctypes.c_float * 1)()
        self.values = []
        for name in STATES:
            run.get(name, found)
            self.values.append(float(found[0]))
        if self.scaler is not None:
            self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": self.values[0],
                                         "_growth_tracker": int(self.values[1])})
        return self.values[2] == before
