"""What of a module decides its program, beside shapes: its parts, modes, buffers, hooks and plain attributes."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(value: Any) -> bool:
    """True for a value that can only change by being replaced."""
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(is_plain, value)))


def _nothing(_: dict[str, Any]) -> tuple[()]:
    return ()


def _plain_of(owner: dict[str, Any]) -> tuple[tuple[str, ...], Callable[[dict[str, Any]], Any]]:
    """The names of plain attributes, and a function that reads all of them."""
    names = tuple(sorted(name for name, value in owner.items() if name != "training" and is_plain(value)))
    return names, operator.itemgetter(*names) if names else _nothing


def _held(module: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """The attributes of objects that a part holds and that are no part, tensor or function, such as its configuration.
    """
    for value in vars(module).values():
        if not isinstance(value, (torch.nn.Module, torch.Tensor, type)) and not callable(value):
            attributes = getattr(value, "__dict__", None)
            if type(attributes) is dict:
                yield attributes


class Watched:
    """Watches a module for changes. It sees attributes that are numbers, texts, dtypes or tuples of these, of parts and of objects that parts hold.

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
        """True if no attribute has changed, is new or is gone."""
        try:
            for owner, count, get, values in self._plain:
                if get(owner) != values or len(owner) != count:
                    return False
        except KeyError:
            return False
        return True

    def has_other_parts(self) -> bool:
        """True if a part or parameter was replaced, added or removed."""
        return any(tuple(part._modules.values()) != parts or len(part._parameters) != len(own)
                   or any(p is not q for p, q in zip(part._parameters.values(), own))
                   for part, parts, own in self._structure)

    def key(self) -> Any:
        """A key that stays the same as long as the same inputs have the same program."""
        if not self._is_same():
            self._scan()
            self._number = self._numbers.setdefault(self._snapshot, len(self._numbers))
        # A program holds the values of buffers.
        buffers = tuple((b.data_ptr(), b._version) for own in self._with_buffers for b in own.values() if b is not None)
        return tuple(part.training for part in self.parts), buffers, self._number, sum(map(len, self._hooks))

    def settle(self) -> None:
        """Ignores changes that a call of the module itself made, such as a counter of calls."""
        if not self._is_same():
            self._scan()
            self._numbers[self._snapshot] = self._number
