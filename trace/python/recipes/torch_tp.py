"""Plain PyTorch tensor parallelism: DTensor's parallelize_module, sequence parallel, with a LoRA adapter (tried with 2.15).

    python -m sumonce_trace recipes/torch_tp.py:right --tp 2,4 --real --out traces/torch-tp-right

The sequence is the first dimension, so that a reduce-scatter of it needs no copies. In `right` the adapter's local gradients
are declared partial, and DTensor sums them. What can go wrong, and `prove --trace` names the cure: in `unreduced` they are
not declared, and each rank keeps its own tokens' part; in `left_partial` nobody redistributes them; in `plain_norm` the norm
is none of the plan's; in `summed_twice` the gradients of what every rank has whole are declared partial, too. --real: a
device mesh reads numbers."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import sumonce_trace

BATCH, SEQUENCE, HIDDEN, RANK = 2, 16, 32, 8


def right(tp_size):
    step(tp_size, [Partial()])


def unreduced(tp_size):
    step(tp_size, None)


def left_partial(tp_size):
    step(tp_size, [Partial()], finalize=False)


def plain_norm(tp_size):
    step(tp_size, [Partial()], plain="norm")


def summed_twice(tp_size):
    step(tp_size, [Partial()], whole_head=True)


class Block(nn.Module):
    # x: [s/tp, b, h]
    def __init__(self, adapter_gradients):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.w1, self.w2 = (nn.Linear(*size, bias=False) for size in ((HIDDEN, 2 * HIDDEN), (2 * HIDDEN, HIDDEN)))
        self.lora_A, self.lora_B = nn.Linear(HIDDEN, RANK, bias=False), nn.Linear(RANK, HIDDEN, bias=False)
        self.adapter_gradients = adapter_gradients

    def forward(self, x):
        h = self.norm(x)
        y = local(self.w2(F.gelu(self.w1(h))))
        A, B = (local(m.weight, self.adapter_gradients) for m in (self.lora_A, self.lora_B))
        return x + y + F.linear(F.linear(local(h), A), B)


def local(tensor, gradients=None):
    return tensor.to_local(grad_placements=gradients) if isinstance(tensor, DTensor) else tensor


class Model(nn.Module):
    def __init__(self, adapter_gradients, whole_head):
        super().__init__()
        self.blocks = nn.Sequential(Block(adapter_gradients), Block(adapter_gradients))
        self.head = nn.Linear(HIDDEN, HIDDEN, bias=False) if whole_head else None

    def forward(self, x, goal):  # both [s, b, h], the same on every rank, which takes its part of s
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        x, goal = (t.narrow(0, rank * SEQUENCE // size, SEQUENCE // size) for t in (x, goal))
        loss = (self.blocks(x) - goal).pow(2).sum() / (BATCH * SEQUENCE * HIDDEN)
        if self.head is None:
            return loss
        # Every rank has the whole of it: the gradient of `head` is complete.
        return loss + local(self.head.weight, self.blocks[0].adapter_gradients).pow(2).sum()


def step(tp_size, adapter_gradients, plain="", finalize=True, whole_head=False):
    model = Model(adapter_gradients, whole_head)
    if tp_size > 1:
        mesh = init_device_mesh("cpu", (tp_size,), mesh_dim_names=("tp",))
        plan = {"norm": SequenceParallel(sequence_dim=0), "w1": ColwiseParallel(input_layouts=Shard(0)),
                "w2": RowwiseParallel(output_layouts=Shard(0))}
        for block in model.blocks:
            parallelize_module(block, mesh, {name: style for name, style in plan.items() if name != plain})
        for linear in [adapter for block in model.blocks for adapter in (block.lora_A, block.lora_B)] + [model.head] * whole_head:
            linear.weight = nn.Parameter(distribute_tensor(linear.weight.data, mesh, [Replicate()]))
    x, goal = (torch.zeros(SEQUENCE, BATCH, HIDDEN) for _ in range(2))
    with sumonce_trace.trace(model):
        model(x, goal).backward()
        for parameter in model.parameters():  # the finalizer: DTensor's gradients as their parameters are laid out
            if finalize and isinstance(parameter, DTensor):
                parameter.grad = parameter.grad.redistribute(parameter.device_mesh, parameter.placements)
