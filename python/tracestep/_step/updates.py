"""The user's optimizer: its groups are the program's, its moments the program's states, its rates of every step."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _library
from .._program import UsageError
from .storage import Leaf, in_blocks, placed

MOMENTS = {"adamw.m.": "exp_avg", "adamw.v.": "exp_avg_sq"}
OFF = ("amsgrad", "maximize", "nesterov", "momentum", "dampening", "differentiable")  # what groups may not ask for


def refuse(optimizer: Any, why: str) -> UsageError:
    """Makes the error for an optimizer that programs do not have."""
    return UsageError(f"[optimizer] {type(optimizer).__name__}: {why}; AdamW, Adam without decay and SGD without "
                      "momentum run inside of the step", 2)


class Updates:
    """Reads what a step needs from an optimizer, and writes its results back."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        kinds = {torch.optim.AdamW: _library.ADAMW, torch.optim.Adam: _library.ADAMW, torch.optim.SGD: _library.SGD}
        if type(optimizer) not in kinds:
            raise refuse(optimizer, "it is another rule")
        self.rule = kinds[type(optimizer)]
        self.check()
        self.moments: list[tuple[torch.nn.Parameter, str, torch.Tensor]] = []
        self.groups: list[tuple[dict[str, Any], list[torch.nn.Parameter]]] = []

    def check(self) -> None:
        """Raises for settings of groups that programs do not have."""
        for group in self.optimizer.param_groups:
            for name in OFF:
                if group.get(name):
                    raise refuse(self.optimizer, f"{name}={group[name]}")
            coupled = type(self.optimizer) is torch.optim.Adam and not group.get("decoupled_weight_decay")
            if coupled and group["weight_decay"]:
                raise refuse(self.optimizer, "weight_decay is added to the gradient")

    def signature(self) -> tuple[Any, ...]:
        """What the program depends on; another value means another program."""
        return tuple((len(g["params"]), g.get("betas"), g.get("eps"), g["weight_decay"],
                      *(g.get(name) for name in OFF)) for g in self.optimizer.param_groups)

    def rows(self, names: dict[int, str]) -> list[tuple[list[str], float, float, float, float]]:
        """The groups for a session, by parameter names; groups without trained parameters are left out.

        Parameters of one group that were not updated equally often, because some were frozen for a while, form rows of their own.
        """
        self.check()
        self.groups, rows = [], []
        for group in self.optimizer.param_groups:
            trained = [p for p in group["params"] if p.requires_grad and id(p) in names]
            beta1, beta2 = (float(b) for b in group.get("betas", (0.9, 0.999)))
            numbers = beta1, beta2, float(group.get("eps", 1e-8)), float(group["weight_decay"])
            for count in sorted({self._count(p) for p in trained}):
                own = [p for p in trained if self._count(p) == count]
                rows.append(([names[id(p)] for p in own], *numbers))
                self.groups.append((group, own))
        if not rows:
            raise UsageError("[optimizer] none of its parameters is one of the module that is trained", 2)
        return rows

    def _count(self, p: torch.nn.Parameter) -> int:
        """Updates of it so far."""
        if self.rule != _library.ADAMW or p not in self.optimizer.state:
            return 0
        return int(self.optimizer.state[p].get("step", 0))

    def count_alike(self) -> bool:
        """Whether the parameters of each row still do, so that they have one rate."""
        return all(len({self._count(p) for p in own}) < 2 for _, own in self.groups)

    def place(self, leaves: Sequence[Leaf], parameters: dict[str, torch.nn.Parameter], device: torch.device,
              lend: Callable[[Leaf, torch.Tensor], None]) -> None:
        """Makes the optimizer's moments the program's states, which share memory. `leaves`: those of a program that
        updates.
        """
        self.moments = []
        for prefix, key in MOMENTS.items():
            for group in in_blocks(leaf for leaf in leaves if leaf.name.startswith(prefix)):
                own = [parameters[leaf.name.removeprefix(prefix)] for leaf in group]
                views = placed(group, [self.optimizer.state[p].get(key) if p in self.optimizer.state else None
                                       for p in own], device)
                for leaf, p, view in zip(group, own, views):
                    self._state_of(p)[key] = view
                    self.moments.append((p, key, view))
                    lend(leaf, view)
        trained = {id(p) for p, *_ in self.moments}
        for _, own in self.groups:  # parameters that the loss does not reach are not updated
            own[:] = [p for p in own if id(p) in trained or self.rule == _library.SGD]

    def _state_of(self, p: torch.nn.Parameter) -> dict[str, Any]:
        state = self.optimizer.state[p]
        if "step" not in state:
            group = next(g for g in self.optimizer.param_groups if any(q is p for q in g["params"]))
            on_device = group.get("capturable") or group.get("fused")
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device if on_device else "cpu")
        return state

    def see(self) -> None:
        """Takes over moments that were loaded into the optimizer meanwhile."""
        for p, key, view in self.moments:
            now = self._state_of(p).get(key)
            if now is view:
                continue
            if now is None:
                view.zero_()
            elif now.data_ptr() != view.data_ptr():
                view.copy_(now)
            self.optimizer.state[p][key] = view

    def rates(self) -> list[tuple[float, int]]:
        """The learning rate of each row, and the number of its step."""
        return [(float(group["lr"]), (self._count(own[0]) if own else 0) + 1) for group, own in self.groups]

    def advance(self) -> None:
        """Counts a step, so that schedulers see it too."""
        if self.rule == _library.ADAMW:
            for _, own in self.groups:
                if own:
                    torch._foreach_add_([self.optimizer.state[p]["step"] for p in own], 1)
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # what schedulers ask
