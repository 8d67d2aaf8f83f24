"""Random stacks of a Transformer's blocks (random_programs.py): MLP, gated MLP, attention, LoRA, whole-sequence regions,
tied norms and vocabularies over x [s, b, h], with or without sequence parallelism. Each place that communicates takes a
right or a wrong pair of collectives."""
import torch
import torch.nn.functional as F
from torch import nn

from random_worlds import Finalizer

S, B, H, FFN, HEADS, HEAD, R, VOCABULARY = 16, 2, 8, 16, 8, 2, 8, 16

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


class Blocks(nn.Module):
    """x [s, b, h], the same on every rank -> the loss, or this rank's term of it. `make`: the program's parameters."""

    def __init__(self, choice, world, make):
        super().__init__()
        self.choice, self.world, self.make = choice, world, make
        self.sequence_parallel = choice.random() < 0.6
        self.wrong = choice.choice((0, 0.1, 0.3))  # of each choice
        self.finalizer = Finalizer(choice)
        kinds = [Mlp, Mlp, Glu, Attention, Lora, Tied] + ([Region] if self.sequence_parallel else [])
        self.embedding = Vocabulary(self) if choice.random() < 0.25 else None
        self.blocks = []
        for i in range(choice.randint(1, 2)):
            kind = choice.choice(kinds)
            self.blocks.append(kind(self))
            self.add_module(f"{kind.__name__.lower()}{i}", self.blocks[-1])
        self.final = Norm(self, self.sequence_parallel)

    def inputs(self, random):
        return {"x": torch.randn(S, B, H, generator=random),
                "tokens": torch.randint(0, VOCABULARY, (S, B), generator=random)}

    def forward(self, x, tokens):
        if self.sequence_parallel:
            x = self.world.move(x, "split", "gather")
        if self.embedding is not None:
            x = x + self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        y = self.final(x)
        return y.pow(2).sum() / 32 + 0.1 * torch.tanh(x).sum()

    def pair(self, place):
        count, pairs = PAIRS[place]
        right = self.choice.random() >= self.wrong
        return self.choice.choice(pairs[:count] if right else pairs[count:])

    def parameter(self, name, *shape, cut=None, sections=1, partial=None):
        """cut: the sharded dimension, of which each of the sections is cut for itself. partial: whether each rank's
        gradient is a term of the sum, of a replicated one."""
        parameter = self.make(name, shape, cut, sections)
        if cut is None:
            self.finalizer.add(parameter, partial)
        else:
            self.finalizer.add_cut(parameter)
        return parameter


class Norm(nn.Module):
    def __init__(self, program, partial, size=H):
        super().__init__()
        self.g = program.parameter(f"{len(program.finalizer.marks)}.g", size, partial=partial)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.g


class Vocabulary(nn.Module):
    """Megatron's VocabParallelEmbedding; a forgotten mask, or a range beside the rank's own, where it is wrong."""

    def __init__(self, program):
        super().__init__()
        self.world = program.world
        self.table = program.parameter("vocabulary", VOCABULARY, H, cut=0)
        self.leave = program.pair("leave_shards" if program.sequence_parallel else "leave_whole")
        fault = program.choice.choice(("forgotten", "beside", "filled")) if program.choice.random() < program.wrong else ""
        self.fault = fault

    def forward(self, tokens):
        if self.world.size == 1:
            return F.embedding(tokens, self.table)
        rows = self.table.shape[0]
        start = self.world.rank * rows
        outside = (tokens < start) | (tokens >= start + rows + (self.fault == "beside"))
        own = tokens.clone() - start
        own[outside] = 0
        found = F.embedding(own.clamp(max=rows - 1) if self.fault == "beside" else own, self.table)
        if self.fault != "forgotten":
            found[outside, :] = 0.5 if self.fault == "filled" else 0.0
        return self.world.move(found, *self.leave)


class Parallel(nn.Module):
    """norm, a column-parallel and a row-parallel layer, around what `inner` does with the rank's own part."""

    sections = 1

    def __init__(self, program, width, inner_width):
        super().__init__()
        choice, form = program.choice, "shards" if program.sequence_parallel else "whole"
        self.name, self.world = f"{type(self).__name__}{len(program.blocks)}", program.world
        self.norm = Norm(program, program.sequence_parallel)
        rows = {"cut": 0, "sections": self.sections}
        self.column = program.parameter(f"{self.name}.column", width, H, **rows)
        self.row = program.parameter(f"{self.name}.row", H, inner_width, cut=1)
        self.enter, self.leave = program.pair(f"enter_{form}"), program.pair(f"leave_{form}")
        self.column_bias = program.parameter(f"{self.name}.cb", width, **rows) if choice.random() < 0.3 else None
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
        self.column_B = program.parameter(f"{self.name}.cB", FFN, R, cut=0)
        self.row_A = program.parameter(f"{self.name}.rA", R, FFN, cut=1)
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
        self.column = program.parameter(f"tied{len(program.blocks)}.column", FFN, H, cut=0)
        self.row = program.parameter(f"tied{len(program.blocks)}.row", H, FFN, cut=1)

    def forward(self, x):
        y = self.world.move(self.norm(x), *self.enter)
        y = self.norm(y) if self.late else y
        y = F.linear(torch.tanh(F.linear(y, self.column)), self.row)
        return x + self.norm(self.world.move(y, *self.leave))
