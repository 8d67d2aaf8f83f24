"""Small jobs for tracer_test.py: each function is a step(tp_size), as `python -m sumonce_trace` calls it."""
import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import sumonce_trace

TOKENS, HIDDEN = 8, 8


class Reduce(torch.autograd.Function):
    """All-reduce; identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Row(nn.Module):
    """y = x W^T summed over the ranks. x: [tokens, hidden/tp], W: [hidden, hidden/tp]."""

    def __init__(self, tp_size):
        super().__init__()
        self.tp_size = tp_size
        self.weight = nn.Parameter(torch.ones(HIDDEN, HIDDEN // tp_size))

    def forward(self, x):
        y = x @ self.weight.t()
        return Reduce.apply(y) if self.tp_size > 1 else y


class Model(nn.Module):
    def __init__(self, tp_size):
        super().__init__()
        self.column, self.row = nn.Linear(HIDDEN, HIDDEN // tp_size, bias=False), Row(tp_size)
        self.scale = torch.full((HIDDEN,), 2.0)  # no buffer: from outside

    def forward(self, x):
        return self.row(torch.tanh(self.column(x))) * self.scale


def built(tp_size):
    model = Model(tp_size)
    model.row.weight.partition_dim = 1
    return model, torch.ones(TOKENS, HIDDEN)


def right(tp_size):
    model, x = built(tp_size)
    with sumonce_trace.trace(model):
        model(x).sum().backward()
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
    model.row.weight.late = True


def converted(tp_size):
    """The model is moved to another type, which swaps parameters."""
    model, x = built(tp_size)
    model = model.to(torch.bfloat16)
    assert model.row.weight.partition_dim == 1 and model.row.weight.dtype == torch.bfloat16
    with sumonce_trace.trace(model):
        model(x.bfloat16()).sum().backward()


def coalesced(tp_size):
    model, x = built(tp_size)
    with sumonce_trace.trace(model):
        model(x).sum().backward()
        if tp_size > 1:
            with dist._coalescing_manager(async_ops=True) as work:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
            work.wait()


def reads_a_number(tp_size):
    model, x = built(tp_size)
    with sumonce_trace.trace(model):
        loss = model(x).sum()
        (loss * loss.item()).backward()


def dirty_gradients(tp_size):
    model, x = built(tp_size)
    model(x).sum().backward()
    with sumonce_trace.trace(model):
        model(x).sum().backward()


def hides_a_write(tp_size):
    """A kernel that the dispatcher does not see changes an activation."""
    model, x = built(tp_size)
    with sumonce_trace.trace(model):
        y = model(x)
        ctypes.memset(y.data_ptr(), 0, 4 * TOKENS)
        y.sum().backward()


def traces_nothing(tp_size):
    built(tp_size)


def traces_twice(tp_size):
    right(tp_size)
    right(tp_size)


def fails(tp_size):
    raise ValueError("no such layer")


def exits(tp_size):
    sys.exit(0)


def exits_at_once(tp_size):
    os._exit(0)


def new_gradients(tp_size):
    """The finalizer leaves other tensors than the backward pass."""
    model, x = built(tp_size)
    with sumonce_trace.trace(model):
        model(x).sum().backward()
        for parameter in model.parameters():
            parameter.grad = parameter.grad * 2


def own_ranks(out):
    """Under a process group of the job's own."""
    model, x = built(dist.get_world_size())
    with sumonce_trace.trace(model, out):
        model(x).sum().backward()
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)


def reduce_scatters(out):
    """gloo makes a reduce-scatter of pieces that the dispatcher sees."""
    model = nn.Linear(HIDDEN, HIDDEN)
    with sumonce_trace.trace(model, out):
        y = model(torch.ones(TOKENS, HIDDEN)).detach()
        part = torch.empty(TOKENS // dist.get_world_size(), HIDDEN)
        work = dist.reduce_scatter_tensor(part, y, async_op=True)
        work.wait()
        part.mul_(2.0)
