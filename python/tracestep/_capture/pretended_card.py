"""Fake tensors of a card that need not be there: what Python and C++ ask of it is answered."""
from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.optim.optimizer import _foreach_supported_types
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

IS_PRETENDED = torch.backends.cuda.is_built() and not torch.cuda.is_available()


@functools.cache
def _replace_accelerator() -> None:
    """Replaces the accelerator that backward asks for its streams; this fails if PyTorch is built for CUDA and there
    is no card.
    """
    class Hooks(torch._C._acc.PrivateUse1Hooks):
        def is_available(self) -> bool:
            return False

        def has_primary_context(self, _: int) -> bool:
            return False

        def is_built(self) -> bool:
            return False

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.PrivateUse1

    class Module:
        """An accelerator module without devices, for steps that run on the CPU afterwards."""

        is_initialized = is_available = _is_in_bad_fork = staticmethod(lambda: False)
        device_count = current_device = staticmethod(lambda: 0)
        manual_seed_all = staticmethod(lambda _: None)
        get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])

    _setup_privateuseone_for_python_backend(rename="pretended", backend_module=Module(), hook=Hooks(), device_guard=Guard())


@contextlib.contextmanager
def pretended_card() -> Iterator[fake_tensor.FakeTensorMode]:
    """Fake tensors of a card that need not be there, while Python's own questions about it are answered with yes."""
    if IS_PRETENDED:
        torch._C._ensureCUDADeviceGuardSet()
        _replace_accelerator()
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": (9, 0),
               "is_bf16_supported": True, "synchronize": None, "empty_cache": None, "is_current_stream_capturing": False}
    found = [(torch.cuda, name, getattr(torch.cuda, name)) for name in answers]
    found.append((torch.cuda, "_initialized", torch.cuda._initialized))  # states of random numbers are not kept
    found.append((fake_tensor, "init_gpu_context", getattr(fake_tensor, "init_gpu_context", None)))
    asks = sys.modules.get("transformers.utils.import_utils")  # makes masks of tensors without values that it leaves out else
    if hasattr(asks, "is_fake_tensor"):
        found.append((asks, "is_fake_tensor", asks.is_fake_tensor))
    with mode:
        for name, answer in answers.items():
            setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
        if hasattr(asks, "is_fake_tensor"):
            asks.is_fake_tensor = lambda _: False
        torch.cuda._initialized = False
        fake_tensor.init_gpu_context = lambda _: None
        _foreach_supported_types.append(fake_tensor.FakeTensor)
        try:
            yield mode
        finally:
            _foreach_supported_types.remove(fake_tensor.FakeTensor)
            for of, name, old in found:
                setattr(of, name, old)
