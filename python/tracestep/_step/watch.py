"""What of a module decides its program, beside shapes: its parts, modes, buffers, hooks and plain attributes."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(value: Any) -> bool:
    """A value that cannot change but by being replaced."""
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(is_plain, value)))


def _nothing(_: dict[str, Any]) -> tuple[()]:
    return ()


def _plain_of(owner: dict[str, Any]) -> tuple[tuple[str, ...], Callable[[dict[str, Any]], Any]]:
    """The names of plain attributes, and a look-up of all of them."""
    names = tuple(sorted(name for name, value in owner.items() if name != "training" and is_plain(value)))
    return names, operator.itemgetter(*names) if names else _nothing


def _held(module: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """The attributes of what a part holds that is no part, tensor or function: its configuration, most often."""
    for value in vars(module).values():
        if not isinstance(value, (torch.nn.Module, torch.Tensor, type)) and not callable(value):
            attributes = getattr(value, "__dict__", None)
            if type(attributes) is dict:
                yield attributes


class Watched:
    """A module, as its steps see it.

    Attributes are seen that are numbers, texts, dtypes or tuples of such, of the parts and of objects that parts hold.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.parts = list(model.modules())
        self._structure = [(part, tuple(part._modules.values()), tuple(part._parameters.values()))
                           for part in self.parts if part._modules or part._parameters]
        self._with_buffers = [part._buffers for part in self.parts if part._buffers]
        self._hooks = [getattr(part, name) for part in self.parts for name in HOOKS]
        self._numbers: dict[Any, int] = {}  # of snapshots of all attributes
        self._scan()
        self._number = self._numbers.setdefault(self._snapshot, 0)

    def _scan(self) -> None:
        owners = {id(vars(part)): vars(part) for part in self.parts}
        for part in self.parts:
            owners.update((id(held), held) for held in _held(part))
        self._plain: list[tuple[dict[str, Any], int, Callable[[dict[str, Any]], Any], Any]] = []
        snapshot = []
        for owner in owners.values():
            names, get = _plain_of(owner)
            self._plain.append((owner, len(owner), get, get(owner)))
            snapshot.append((names, get(owner)))
        self._snapshot = tuple(snapshot)

    def _is_same(self) -> bool:
        """Whether no attribute has another value, is new or is gone."""
        try:
            for owner, count, get, values in self._plain:
                if get(owner) != values or len(owner) != count:
                    return False
        except KeyError:
            return False
        return True

    def has_other_parts(self) -> bool:
        """Whether a part or a parameter has been replaced, added or taken away."""
        return any(tuple(part._modules.values()) != parts or len(part._parameters) != len(own)
                   or any(p is not q for p, q in zip(part._parameters.values(), own))
                   for part, parts, own in self._structure)

    def key(self) -> Any:
        """The same as long as the program of the same inputs is the same."""
        if not self._is_same():
            self._scan()
            self._number = self._numbers.setdefault(self._snapshot, len(self._numbers))
        # A program holds the values of buffers.
        buffers = tuple((b.data_ptr(), b._version) for own in self._with_buffers for b in own.values() if b is not None)
        return tuple(part.training for part in self.parts), buffers, self._number, sum(map(len, self._hooks))

    def settle(self) -> None:
        """What a call of the module itself has changed, as a counter of calls, makes no other program."""
        if not self._is_same():
            self._scan()
            self._numbers[self._snapshot] = self._number
