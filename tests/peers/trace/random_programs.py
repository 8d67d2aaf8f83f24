"""Random SPMD programs, right and wrong, with the numerical truth of every gradient, for the prover's soundness.

    python tests/peers/trace/random_programs.py --count 10000 --seed 7 --out random_programs.jsonl.gz

A program is a stack of blocks (MLP, gated MLP, attention, LoRA, whole-sequence regions, tied norms) over x [s, b, h] in
float64, with or without sequence parallelism. Each place that communicates takes a right or a wrong pair of
collectives, each replicated parameter a right or a wrong finalizer. Two gloo ranks run it and are traced; their
gradients are compared with the unsharded program's. A third process, of a group whose collectives do nothing, traces
sizes 4 and 1.

Out, as tests/data/traces/random_programs.jsonl.gz: {"program", "truth"}, then each trace behind {"trace_of", "size",
"rank"}. Truth of a parameter, to a relative 1e-8: `right`; `every_rank_times` a: each rank has a times its part of the
reference; `sum_of_ranks_times` a: the ranks' sum is a times the reference, of replicated parameters; `zero`: the
reference is zero, so numbers say nothing. The same seed gives the same bytes."""
import argparse
import gzip
import json
import multiprocessing
import random
import sys
import tempfile
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "trace" / "python"))
import sumonce_trace  # noqa: E402

S, B, H, FFN, HEADS, HEAD, R = 16, 2, 8, 16, 8, 2, 8
TOLERANCE = 1e-8


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, gzip.GzipFile("", "wb", fileobj=open(options.out, "wb"), mtime=0) as out:
        pipes, workers = [], []
        for work, rank in (gloo_rank, 0), (gloo_rank, 1), (other_sizes, 0):
            receive, send = context.Pipe(duplex=False)
            workers.append(context.Process(target=work, args=(options, rank, f"{folder}/store", send), daemon=True))
            workers[-1].start()
            send.close()
            pipes.append(receive)
        for number in range(options.count):
            ranks, (whole, twice) = [pipes[r].recv() for r in (0, 1)], pipes[2].recv()
            truth = truth_of(whole.gradients, [r.gradients for r in ranks], whole.cuts)
            write(out, {"program": number, "truth": truth})
            for run in (whole, *ranks, twice):
                write(out, {"trace_of": number, "size": run.size, "rank": run.rank}, *run.records)
        for worker in workers:
            worker.join()


def write(out, *records):
    for record in records:
        out.write(json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n")


# ---- truth ---------------------------------------------------------------------------------------------------------------


def truth_of(whole, ranks, cuts):
    """name -> what the numbers say. whole: name -> gradient; ranks: the same of each rank; cuts: name -> Cut or None."""
    truth = {}
    for name, numbers in whole.items():
        reference, found, cut = torch.tensor(numbers), torch.tensor([r[name] for r in ranks]), cuts[name]
        parts = [part_of(reference, cut, len(ranks), r) for r in range(len(ranks))]
        every = factor(found, torch.stack(parts))
        total = factor(found.sum(0), reference) if cut is None else None
        truth[name] = {"right": every is not None and abs(every - 1) <= TOLERANCE}
        truth[name] |= {k: v for k, v in (("every_rank_times", every), ("sum_of_ranks_times", total)) if v is not None}
        truth[name]["zero"] = not bool(reference.abs().max() > 1e-12)
    return truth


Cut = namedtuple("Cut", "dim sections")  # each of the sections is cut for itself, as by a rank that cuts its block apart


def part_of(whole, cut, size, rank):
    if cut is None:
        return whole
    sections = whole.chunk(cut.sections, cut.dim)
    return torch.cat([section.chunk(size, cut.dim)[rank] for section in sections], cut.dim)


def factor(found, reference):
    """a, if found is a * reference; None otherwise. Numbers next to whole ones or halves are those."""
    square = (reference * reference).sum()
    if square == 0:
        return None
    a = float((found * reference).sum() / square)
    if (found - a * reference).abs().max() > TOLERANCE * reference.abs().max() * max(1, abs(a)):
        return None
    return round(a * 64) / 64 if abs(a * 64 - round(a * 64)) < 1e-6 else a


# ---- the processes -------------------------------------------------------------------------------------------------------


def gloo_rank(options, rank, store, send):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for number in range(options.count):
        send.send(run(options.seed, number, 2, rank))
    dist.destroy_process_group()


def other_sizes(options, rank, store, send):
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    for number in range(options.count):
        send.send([run(options.seed, number, size, 0) for size in (1, 4)])


def run(seed, number, size, rank):
    """One rank of one program: trace, gradients, layouts."""
    model = Program(random.Random(f"{seed} {number}"), World(size, rank), f"{seed} {number}")
    for parameter in model.parameters():
        parameter.main_grad = torch.zeros_like(parameter)
        parameter.register_post_accumulate_grad_hook(accumulate)
    x = torch.randn(S, B, H, generator=generator(f"{seed} {number} x"))
    target = SimpleNamespace(size=size, rank=rank, group=list(range(size)))
    recorder = sumonce_trace.Recorder(model, str, audit=False)
    recorder.name_tensors({"x": x})
    with recorder.places.followed(), recorder:
        model(x).backward()
        model.finalize()
    recorder.finish()
    return SimpleNamespace(
        size=size, rank=rank, records=sumonce_trace.records(recorder, target),
        gradients={n: p.main_grad.tolist() for n, p in model.named_parameters()},
        cuts={n: p.cut for n, p in model.named_parameters()})


def accumulate(parameter):
    parameter.main_grad.add_(parameter.grad)
    parameter.grad = None


def generator(key):
    return torch.Generator().manual_seed(random.Random(key).getrandbits(63))


# ---- communication -------------------------------------------------------------------------------------------------------


class World:
    """One rank's collectives along dimension 0; at size 1 there are none."""

    def __init__(self, size, rank):
        self.size, self.rank = size, rank

    def move(self, x, forward, backward):
        return x if self.size == 1 else Move.apply(x, self, forward, backward)

    def identity(self, x):
        return x.clone()

    def all_reduce(self, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    def average(self, x):
        return self.all_reduce(x) / self.size

    def gather(self, x):
        whole = x.new_empty(x.shape[0] * self.size, *x.shape[1:])
        dist.all_gather_into_tensor(whole, x.contiguous())
        return whole

    def reduce_scatter(self, x):
        part = x.new_empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(part, x.contiguous())
        return part

    def reduce_scatter_mean(self, x):
        return self.reduce_scatter(x) / self.size

    def split(self, x):
        rows = x.shape[0] // self.size
        return x[self.rank * rows:(self.rank + 1) * rows].clone()

    def pad(self, x):
        whole = x.new_zeros(x.shape[0] * self.size, *x.shape[1:])
        whole[self.rank * x.shape[0]:(self.rank + 1) * x.shape[0]] = x
        return whole


class Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, world, forward, backward):
        ctx.world, ctx.how = world, backward
        return getattr(world, forward)(x)

    @staticmethod
    def backward(ctx, gradient):
        return getattr(ctx.world, ctx.how)(gradient), None, None, None


# Pairs forward, backward of each place; the first ones are right where the place is used as the blocks below do.
PAIRS = {
    # into a column-parallel layer from sequence shards; the layer's dgrad is a term of each rank
    "enter_shards": (1, [("gather", "reduce_scatter"), ("gather", "split"), ("gather", "reduce_scatter_mean")]),
    "enter_whole": (1, [("identity", "all_reduce"), ("identity", "identity"), ("identity", "average")]),
    # out of a row-parallel layer, whose result is a term of each rank
    "leave_shards": (1, [("reduce_scatter", "gather"), ("split", "gather"), ("reduce_scatter_mean", "gather"),
                         ("reduce_scatter", "pad")]),
    "leave_whole": (1, [("all_reduce", "identity"), ("all_reduce", "all_reduce"), ("identity", "identity"),
                        ("average", "identity")]),
    # into and out of a region that every rank computes alike
    "open_region": (2, [("gather", "split"), ("gather", "reduce_scatter_mean"), ("gather", "reduce_scatter")]),
    "close_region": (2, [("split", "gather"), ("reduce_scatter_mean", "gather"), ("split", "pad"),
                         ("reduce_scatter", "gather")]),
}


# ---- programs ------------------------------------------------------------------------------------------------------------


class Program(nn.Module):
    """x [s, b, h], the same on every rank -> the loss, or this rank's term of it."""

    def __init__(self, choice, world, key):
        super().__init__()
        self.choice, self.world, self.key = choice, world, key
        self.sequence_parallel = choice.random() < 0.6
        self.wrong = choice.choice((0, 0.1, 0.3))  # of each choice
        self.marks = []
        kinds = [Mlp, Mlp, Glu, Attention, Lora, Tied] + ([Region] if self.sequence_parallel else [])
        self.blocks = []
        for i in range(choice.randint(1, 2)):
            kind = choice.choice(kinds)
            self.blocks.append(kind(self))
            self.add_module(f"{kind.__name__.lower()}{i}", self.blocks[-1])
        self.final = Norm(self, self.sequence_parallel)

    def forward(self, x):
        if self.sequence_parallel:
            x = self.world.move(x, "split", "gather")
        for block in self.blocks:
            x = block(x)
        y = self.final(x)
        return y.pow(2).sum() / 32 + 0.1 * torch.tanh(x).sum()

    def pair(self, place):
        count, pairs = PAIRS[place]
        right = self.choice.random() >= self.wrong
        return self.choice.choice(pairs[:count] if right else pairs[count:])

    def parameter(self, name, *shape, cut=None, partial=None):
        """partial: whether each rank's gradient is a term of the sum, of a replicated one."""
        whole = torch.randn(*shape, generator=generator(f"{self.key} {name}")) * 0.5 / shape[-1] ** 0.5
        whole = whole + 1 if len(shape) == 1 else whole
        parameter = nn.Parameter(part_of(whole, cut, self.world.size, self.world.rank).contiguous())
        parameter.cut = cut
        if cut is None:
            right = ("sum",) if partial else ("none", "none", "average")
            self.marks.append((parameter, self.choice.choice(
                right if self.choice.random() >= self.wrong else ("none", "sum", "average"))))
        return parameter

    def finalize(self):
        for parameter, mark in self.marks if self.world.size > 1 else ():
            if mark != "none":
                dist.all_reduce(parameter.main_grad)
            if mark == "average":
                parameter.main_grad.div_(self.world.size)


class Norm(nn.Module):
    def __init__(self, program, partial, size=H):
        super().__init__()
        self.g = program.parameter(f"{len(program.marks)}.g", size, partial=partial)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.g


class Parallel(nn.Module):
    """norm, a column-parallel and a row-parallel layer, around what `inner` does with the rank's own part."""

    sections = 1

    def __init__(self, program, width, inner_width):
        super().__init__()
        choice, form = program.choice, "shards" if program.sequence_parallel else "whole"
        self.name, self.world = f"{type(self).__name__}{len(program.blocks)}", program.world
        self.norm = Norm(program, program.sequence_parallel)
        rows = Cut(0, self.sections)
        self.column = program.parameter(f"{self.name}.column", width, H, cut=rows)
        self.row = program.parameter(f"{self.name}.row", H, inner_width, cut=Cut(1, 1))
        self.enter, self.leave = program.pair(f"enter_{form}"), program.pair(f"leave_{form}")
        self.column_bias = program.parameter(f"{self.name}.cb", width, cut=rows) if choice.random() < 0.3 else None
        partial = program.sequence_parallel
        self.row_bias = program.parameter(f"{self.name}.rb", H, partial=partial) if choice.random() < 0.3 else None
        # Each rank adds its n-th of it before the sum, or all of it.
        self.term_bias = program.parameter(f"{self.name}.tb", H, partial=True) if choice.random() < 0.2 else None
        self.term_share = 1 if choice.random() < program.wrong else self.world.size

    def forward(self, x):
        y = self.world.move(self.norm(x), *self.enter)
        y = self.after_column(y, F.linear(y, self.column, self.column_bias))
        y = self.inner(y)
        y = self.after_row(y, F.linear(y, self.row))
        if self.term_bias is not None:
            y = y + self.term_bias / self.term_share
        y = self.world.move(y, *self.leave)
        return x + (y if self.row_bias is None else y + self.row_bias)

    def after_column(self, x, y):
        return y

    def after_row(self, x, y):
        return y


class Mlp(Parallel):
    def __init__(self, program):
        super().__init__(program, FFN, FFN)
        self.activation = program.choice.choice((F.gelu, F.silu, torch.tanh, torch.sigmoid))

    def inner(self, y):
        return self.activation(y)


class Glu(Parallel):
    """The rank's rows are cut in two: its gate, its up projection."""

    sections = 2

    def __init__(self, program):
        super().__init__(program, 2 * FFN, FFN)

    def inner(self, y):
        gate, up = y.chunk(2, -1)
        return F.silu(gate) * up


class Attention(Parallel):
    def __init__(self, program):
        self.gated = program.choice.random() < 0.3
        self.fields = 4 if self.gated else 3
        super().__init__(program, HEADS * HEAD * self.fields, HEADS * HEAD)
        # Each rank has the gradient of its own heads.
        self.q_norm = Norm(program, True, HEAD) if program.choice.random() < 0.5 else nn.Identity()

    def inner(self, y):
        # [s, b, heads/n, fields, d] -> [b * heads/n, s, d]
        fields = y.view(S, B, -1, self.fields, HEAD).unbind(3)
        q, k, v = (f.reshape(S, -1, HEAD).transpose(0, 1) for f in (self.q_norm(fields[0]), *fields[1:3]))
        out = torch.softmax(torch.bmm(q, k.transpose(1, 2)) / HEAD ** 0.5, -1) @ v
        out = out.transpose(0, 1).reshape(S, B, -1)
        return out * torch.sigmoid(fields[3].reshape(S, B, -1)) if self.gated else out


class Lora(Mlp):
    """lora_A of the column-parallel layer and lora_B of the row-parallel one are replicated; both gradients are terms."""

    def __init__(self, program):
        super().__init__(program)
        self.column_A = program.parameter(f"{self.name}.cA", R, H, partial=True)
        self.column_B = program.parameter(f"{self.name}.cB", FFN, R, cut=Cut(0, 1))
        self.row_A = program.parameter(f"{self.name}.rA", R, FFN, cut=Cut(1, 1))
        # Behind the reduction, of complete values where the sequence is whole.
        self.row_B = program.parameter(f"{self.name}.rB", H, R, partial=program.sequence_parallel)
        self.inside = program.pair("leave_shards" if program.sequence_parallel else "leave_whole")

    def after_column(self, x, y):
        return y + F.linear(F.linear(x, self.column_A), self.column_B)

    def forward(self, x):
        self.adapter = None
        y = super().forward(x)
        return y + F.linear(self.adapter, self.row_B)

    def after_row(self, x, y):
        self.adapter = self.world.move(F.linear(x, self.row_A), *self.inside)
        return y


class Region(nn.Module):
    """The whole sequence on every rank, replicated weights, and back to shards."""

    def __init__(self, program):
        super().__init__()
        self.world, self.open, self.close = program.world, program.pair("open_region"), program.pair("close_region")
        name = f"region{len(program.blocks)}"
        # Behind `close` the cotangent is complete, or a term of each rank.
        terms = self.close[1] == "pad"
        self.norm = Norm(program, terms)
        self.w1 = program.parameter(f"{name}.w1", FFN, H, partial=terms)
        self.w2 = program.parameter(f"{name}.w2", H, FFN, partial=terms)

    def forward(self, x):
        y = self.norm(self.world.move(x, *self.open))
        y = F.linear(F.gelu(F.linear(y, self.w1)), self.w2)
        return x + self.world.move(y, *self.close)


class Tied(nn.Module):
    """One norm weight, used before the column-parallel layer and behind it, where the values are another rank's too."""

    def __init__(self, program):
        super().__init__()
        self.world, form = program.world, "shards" if program.sequence_parallel else "whole"
        self.norm = Norm(program, program.sequence_parallel)
        self.enter, self.leave = program.pair(f"enter_{form}"), program.pair(f"leave_{form}")
        self.late = program.choice.random() < 0.5
        self.column = program.parameter(f"tied{len(program.blocks)}.column", FFN, H, cut=Cut(0, 1))
        self.row = program.parameter(f"tied{len(program.blocks)}.row", H, FFN, cut=Cut(1, 1))

    def forward(self, x):
        y = self.world.move(self.norm(x), *self.enter)
        y = self.norm(y) if self.late else y
        y = F.linear(torch.tanh(F.linear(y, self.column)), self.row)
        return x + self.norm(self.world.move(y, *self.leave))


if __name__ == "__main__":
    main()
