"""Lets Megatron-Core build and step a model where there is no GPU, Transformer Engine or flash-linear-attention.

Import it before Megatron. With a GPU, Transformer Engine and its fusions off, none of it is needed. It changes no
communication and no mark: device names, streams and random states of CUDA become those of the CPU, `dist.all_reduce` by AVG
becomes a sum and a division (gloo has no AVG), and `standins/` holds the little of the two packages that Megatron-Core's
wrappers and GatedDeltaNet call."""
import contextlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils import cpp_extension

FACTORIES = ("tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "zeros_like", "empty_like", "ones_like")


def apply():
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    sys.path.insert(0, str(Path(__file__).parent / "standins"))
    for name in FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    for name in ("synchronize", "set_device"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    for name in ("Stream", "Event", "stream", "current_stream", "get_device_properties"):
        setattr(torch.cuda, name, _Nothing)
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    cpp_extension.load_inline = _no_compiler  # Megatron-Core 0.15 compiles for the GPU while it is imported, and lives without
    dist.all_reduce = _with_average(dist.all_reduce)
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()


def _on_cpu(factory):
    def make(*args, device=None, pin_memory=None, **kwargs):
        cuda = isinstance(device, int) or str(device).startswith("cuda")
        return factory(*args, **kwargs, **({} if device is None else {"device": "cpu" if cuda else device}))
    return make


def _with_average(all_reduce):
    def average_or_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if op != dist.ReduceOp.AVG:
            return all_reduce(tensor, op=op, group=group, async_op=async_op)
        all_reduce(tensor, group=group)
        tensor.div_(dist.get_world_size(group))
    return average_or_reduce


def _no_compiler(*args, **kwargs):
    raise RuntimeError("there is no GPU to compile for")


class _Nothing:
    """A stream, an event, a device's properties: whatever is asked of it does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


apply()
