"""What ranks do together in random programs (random_programs.py): collectives, pairs of them, and finalizers."""
import threading

import torch
import torch.distributed as dist


class World:
    """One rank's collectives, of c10d's, over the first dimension; at size 1 there are none."""

    def __init__(self, size, rank, group=None):
        self.size, self.rank, self.group = size, rank, group

    def all_reduce_(self, x, reduction="SUM"):
        dist.all_reduce(x, getattr(dist.ReduceOp, reduction), self.group)

    def all_reduce_coalesced_(self, tensors):
        dist.all_reduce_coalesced(tensors, dist.ReduceOp.SUM, self.group)

    def gather_rows(self, x):
        whole = x.new_empty(x.shape[0] * self.size, *x.shape[1:])
        dist.all_gather_into_tensor(whole, x.contiguous(), self.group)
        return whole

    def reduce_scatter_rows(self, x, reduction="SUM"):
        part = x.new_empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(part, x.contiguous(), getattr(dist.ReduceOp, reduction), self.group)
        return part

    def exchange_rows(self, x):
        """x [n, ...]: row i goes to rank i, and becomes its row `rank`."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(out, x.contiguous(), group=self.group)
        return out

    def broadcast_(self, x):
        dist.broadcast(x, 0, self.group)

    # What follows is made of these.

    def move(self, x, forward, backward, dim=0, how=0):
        return x if self.size == 1 else Move.apply(x, self, forward, backward, dim, how)

    def identity(self, x, dim, how):
        return x.clone()

    def all_reduce(self, x, dim, how):
        x = x.clone(memory_format=torch.contiguous_format)
        self.all_reduce_(x)
        return x

    def average(self, x, dim, how):
        if how == 0:
            return self.all_reduce(x, dim, how) / self.size
        x = x.clone(memory_format=torch.contiguous_format)
        self.all_reduce_(x, "AVG")
        return x

    def broadcast(self, x, dim, how):
        x = x.clone(memory_format=torch.contiguous_format)
        self.broadcast_(x)
        return x

    def gather(self, x, dim, how):
        if dim == 0:
            return self.gather_rows(x)
        if how == 0:
            return torch.cat(self.gather_rows(x).chunk(self.size), dim)
        return self.gather_rows(x.transpose(0, dim).contiguous()).transpose(0, dim).contiguous()

    def reduce_scatter(self, x, dim, how, reduction="SUM"):
        if dim == 0:
            return self.reduce_scatter_rows(x, reduction)
        if how == 0:
            return self.reduce_scatter_rows(torch.cat(x.chunk(self.size, dim)), reduction)
        return self.reduce_scatter_rows(x.transpose(0, dim).contiguous(), reduction).transpose(0, dim).contiguous()

    def reduce_scatter_mean(self, x, dim, how):
        return self.reduce_scatter(x, dim, how, "AVG") if how else self.reduce_scatter(x, dim, how) / self.size

    def split(self, x, dim, how):
        own = x.shape[dim] // self.size
        if how == 0:
            return x.narrow(dim, self.rank * own, own).clone(memory_format=torch.contiguous_format)
        return x.split(own, dim)[self.rank].contiguous()

    def pad(self, x, dim, how):
        shape = list(x.shape)
        shape[dim] *= self.size
        whole = x.new_zeros(shape)
        whole.narrow(dim, self.rank * x.shape[dim], x.shape[dim]).copy_(x)
        return whole

    def to_columns(self, x, dim, how):
        """Rows' shards to columns': [r/n, c] -> [r, c/n]."""
        blocks = x.unflatten(1, (self.size, -1)).transpose(0, 1)  # [n, r/n, c/n]
        return self.exchange_rows(blocks.contiguous()).flatten(0, 1)

    def to_rows(self, x, dim, how):
        """[r, c/n] -> [r/n, c]."""
        blocks = self.exchange_rows(x.unflatten(0, (self.size, -1)))  # [n, r/n, c/n]
        return blocks.transpose(0, 1).flatten(1, 2)


class Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, world, forward, backward, dim, how):
        ctx.world, ctx.how = world, (backward, dim, how)
        return getattr(world, forward)(x, dim, how)

    @staticmethod
    def backward(ctx, gradient):
        backward, *how = ctx.how
        return getattr(ctx.world, backward)(gradient, *how), None, None, None, None, None


class Meeting:
    """Where the threads of one program's ranks hand each other what they have."""

    def __init__(self, size):
        self.barrier, self.given = threading.Barrier(size, timeout=60), [None] * size

    def of_all(self, rank, x):
        self.given[rank] = x.clone()
        self.barrier.wait()
        given = list(self.given)
        self.barrier.wait()
        return given


class Threads(World):
    """The same collectives with numbers, each rank a thread of one process."""

    def __init__(self, size, rank, meeting):
        super().__init__(size, rank)
        self.meeting = meeting

    def combined(self, x, reduction):
        all_of_them = torch.stack(self.meeting.of_all(self.rank, x))
        return {"SUM": lambda t: t.sum(0), "AVG": lambda t: t.mean(0), "MAX": lambda t: t.amax(0)}[reduction](all_of_them)

    def all_reduce_(self, x, reduction="SUM"):
        with torch.no_grad():
            x.copy_(self.combined(x, reduction))

    def all_reduce_coalesced_(self, tensors):
        for tensor in tensors:
            self.all_reduce_(tensor)

    def gather_rows(self, x):
        return torch.cat(self.meeting.of_all(self.rank, x))

    def reduce_scatter_rows(self, x, reduction="SUM"):
        return self.combined(x, reduction).chunk(self.size)[self.rank].clone()

    def exchange_rows(self, x):
        return torch.stack([given[self.rank] for given in self.meeting.of_all(self.rank, x)])

    def broadcast_(self, x):
        x.copy_(self.meeting.of_all(self.rank, x)[0])


# Moves forward and backward, by how they change the extents along a dimension.
SAME = ("identity", "all_reduce", "average", "broadcast")
TO_WHOLE, TO_PART = ("gather", "pad"), ("split", "reduce_scatter", "reduce_scatter_mean")


class Finalizer:
    """What becomes of the gradients of a program's replicated parameters, mostly right; parameters are added as the
    program makes them."""

    RIGHT = {True: ("sum",), False: ("none", "none", "average", "maximum", "broadcast")}  # by whether each has a term
    ANY = ("none", "sum", "average", "maximum", "broadcast")

    def __init__(self, choice):
        self.choice, self.wrong = choice, choice.choice((0, 0.2, 0.5))  # of each choice, how often it is any
        self.marks, self.cut = [], []
        self.flat = choice.random() < 0.4  # gradients are parts of one buffer
        self.sums = choice.choice(("each", "each", "coalesced", "joined", "joined"))
        self.average_in_one = choice.random() < 0.5
        self.clips = choice.random() < 0.1
        self.whole_buffer = self.flat and choice.random() < 0.05
        self.scaled = choice.random() < 0.1 * bool(self.wrong)

    def add(self, parameter, partial):
        right = self.choice.random() >= self.wrong
        self.marks.append((parameter, self.choice.choice(self.RIGHT[partial] if right else self.ANY)))

    def add_cut(self, parameter):
        wrong = self.choice.random() < self.wrong / 3
        self.cut.append((parameter, self.choice.choice(self.ANY[:3]) if wrong else "none"))

    def make_gradients(self, parameters):
        parameters = list(parameters)
        counts = [p.numel() for p in parameters]
        self.buffer = torch.zeros(sum(counts))
        parts = self.buffer.split(counts) if self.flat else [torch.zeros(count) for count in counts]
        for parameter, part in zip(parameters, parts):
            parameter.main_grad = part.view(parameter.shape)

    def run(self, world):
        if world.size > 1:
            self.reduce(world)
        if self.clips:
            self.clip(world)

    def reduce(self, world):
        if self.whole_buffer:
            world.all_reduce_(self.buffer)
            return
        marked = {mark: [p.main_grad for p, m in self.marks + self.cut if m == mark] for mark in self.ANY}
        self.sum_up(world, marked["sum"])
        for gradient in marked["average"]:
            world.all_reduce_(gradient, "AVG" if self.average_in_one else "SUM")
            if not self.average_in_one:
                gradient.div_(world.size)
        for gradient in marked["maximum"]:
            world.all_reduce_(gradient, "MAX")
        for gradient in marked["broadcast"]:
            world.broadcast_(gradient)
        if self.scaled and self.marks:
            self.marks[-1][0].main_grad.mul_(1 / world.size)

    def sum_up(self, world, gradients):
        if self.sums == "each" or not gradients:
            for gradient in gradients:
                world.all_reduce_(gradient)
        elif self.sums == "coalesced":
            world.all_reduce_coalesced_(gradients)
        else:
            joined = torch.cat([g.reshape(-1) for g in gradients])
            world.all_reduce_(joined)
            for gradient, part in zip(gradients, joined.split([g.numel() for g in gradients])):
                gradient.copy_(part.view_as(gradient))

    def clip(self, world):
        """By the norm of all: squares of shards are summed over the ranks, those of copies are not."""
        def squares(marks):
            return torch.stack([p.main_grad.pow(2).sum() for p, _ in marks] + [torch.zeros(())]).sum()
        of_shards = squares(self.cut)
        if world.size > 1:
            world.all_reduce_(of_shards)
        factor = torch.clamp(1 / (torch.sqrt(squares(self.marks) + of_shards) + 1e-6), max=1.0)
        for parameter, _ in self.marks + self.cut:
            parameter.main_grad.mul_(factor)
