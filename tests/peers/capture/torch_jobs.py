"""Plain PyTorch steps, captured by the hook: those of tests/data/captures, from the same weights and data, and FSDP2.

    python torch_jobs.py OUT ddp-accumulation-right

It needs no framework. hook_test.py uses it, too."""
import contextlib
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import sumonce_capture_torch


def main():
    out, *names = sys.argv[1:]
    for name in names or CASES:
        made(name, Path(out) / name)


def made(name, out, **changes):
    """Runs the case on its ranks, in forked processes."""
    ranks, job, told = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("fork")
        processes = [context.Process(target=rank_of, args=(r, ranks, folder, job, out, told | changes)) for r in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(p.exitcode for p in processes):
            raise RuntimeError(f"{name}: exit codes {[p.exitcode for p in processes]}")


def rank_of(rank, ranks, folder, job, out, told):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    job(out, **told)
    dist.barrier()
    dist.destroy_process_group()


def set_weights(model):
    """From the names alone."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            generator, leaf = torch.Generator().manual_seed(zlib.crc32(name.encode())), name.split(".")[-1]
            x = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if "norm" in name and "weight" in leaf:
                x = 1 + 0.1 * x
            elif leaf == "bias":
                x = 0.05 * x
            elif "embedding" in name:
                x = 0.5 * x
            elif len(p.shape) > 1:
                x = x / p.shape[-1] ** 0.5
            p.copy_(x)
    return model


class Net(nn.Module):
    def __init__(self, hidden=16, vocabulary=32):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocabulary, hidden), nn.LayerNorm(hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        return self.head(x + self.fc2(F.gelu(self.fc1(self.norm(x)))))


def loss_of(model, step, micro, microbatches):
    generator = torch.Generator().manual_seed(7 + 100 * step + 10 * micro + dist.get_rank())
    ids = torch.randint(0, 32, (2, 17), generator=generator)
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) / microbatches


def data_parallel(out, unsynced, steps=1, clip=None, watched=True, **options):
    """unsynced(m): whether microbatch m of two runs under no_sync. Returns the model."""
    model = nn.parallel.DistributedDataParallel(set_weights(Net()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if watched:
        sumonce_capture_torch.watch(model, optimizer, out, **{"steps": range(1, steps + 1)} | options)
    for step in range(1, steps + 1):
        optimizer.zero_grad(set_to_none=True)
        for micro in (0, 1):
            with model.no_sync() if unsynced(micro) else contextlib.nullcontext():
                loss_of(model, step, micro, 2).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model


class Branches(nn.Module):
    """Each rank uses one of the two layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        return self.layers[dist.get_rank() % 2](x)


def unused_parameters(out):
    model = nn.parallel.DistributedDataParallel(set_weights(Branches()), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sumonce_capture_torch.watch(model, optimizer, out)
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()


class Block(nn.Module):
    def __init__(self, hidden=32, r=4):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.w1, self.w2 = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
        self.lora_A, self.lora_B = nn.Linear(hidden, r, bias=False), nn.Linear(r, hidden, bias=False)


PLAN = {"norm": SequenceParallel(sequence_dim=1), "w1": ColwiseParallel(input_layouts=Shard(1)),
        "w2": RowwiseParallel(output_layouts=Shard(1))}


def tensor_parallel(out, declared):
    """declared: the replicated adapter's local use says that its gradient is Partial."""
    mesh, blocks = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), set_weights(nn.ModuleList([Block(), Block()]))
    for block in blocks:
        parallelize_module(block, mesh, PLAN)
        for layer in (block.lora_A, block.lora_B):
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, [Replicate()]))
    generator = torch.Generator().manual_seed(3)
    x, goal = (torch.randn(2, 16, 32, generator=generator).chunk(2, 1)[dist.get_rank()] for _ in range(2))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    sumonce_capture_torch.watch(blocks, optimizer, out)
    how = {"grad_placements": [Partial()]} if declared else {}
    for block in blocks:
        normed = block.norm(x)
        y = as_local(block.w2(F.gelu(block.w1(normed))))
        a, b = (layer.weight.to_local(**how) for layer in (block.lora_A, block.lora_B))
        x = x + y + F.linear(F.linear(as_local(normed), a), b)
    (((x - goal) ** 2).sum() / 32).backward()
    optimizer.step()


def as_local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Stack(nn.Module):
    """Widths that two or three ranks do not divide, too."""

    def __init__(self, tensor_mesh=None):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6)) for _ in range(2)])
        self.scale = nn.Parameter(torch.ones(5))
        set_weights(self)
        for layer in self.layers if tensor_mesh else ():
            parallelize_module(layer, tensor_mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x.mean() * self.scale.sum()


def fully_sharded(out, sizes, names, sharded=(), steps=1, microbatches=1, clip=None, ignored=False):
    """sizes, names: of the device mesh. sharded: the names of the dimensions that FSDP2 takes; one called tp cuts the layers.
    ignored: FSDP2 leaves one parameter as it is."""
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    model = Stack(mesh["tp"] if "tp" in names else None)
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh[sharded], **({"ignored_params": {model.scale}} if ignored else {}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sumonce_capture_torch.watch(model, optimizer, out, steps=range(1, steps + 1))
    cell = mesh.get_coordinate()[:len(sharded)]  # ranks of one tp group are given the same
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        for micro in range(microbatches):
            model.set_requires_gradient_sync(micro == microbatches - 1)
            seed = sum(c * 10 ** i for i, c in enumerate([*cell, micro, step]))
            model(torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


CASES = {
    "ddp-accumulation-right": (2, data_parallel, dict(unsynced=lambda micro: micro == 0, steps=2)),
    "ddp-no-sync-on-last-bug": (2, data_parallel, dict(unsynced=lambda micro: micro == 1)),
    "ddp-never-synced-bug": (2, data_parallel, dict(unsynced=lambda micro: True, steps=2)),
    "ddp-unused-parameters": (2, unused_parameters, {}),
    "dtensor-tp2-right": (2, tensor_parallel, dict(declared=True)),
    "dtensor-tp2-adapter-unreduced-bug": (2, tensor_parallel, dict(declared=False)),
    "fsdp-dp3": (3, fully_sharded, dict(sizes=(3,), names=("dp",), sharded=("dp",), steps=2, microbatches=2,
                                         clip=0.1)),
    "fsdp-dp2-replicated-2": (4, fully_sharded, dict(sizes=(2, 2), names=("replicate", "shard"), sharded=("replicate", "shard"))),
    "fsdp-dp2-tp2": (4, fully_sharded, dict(sizes=(2, 2), names=("dp", "tp"), sharded=("dp",))),
}

if __name__ == "__main__":
    main()
