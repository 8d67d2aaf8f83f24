"""Random programs of single operations (random_programs.py): a pool of matrices, each with the states that its value and its
gradient have if all is done right; each step takes some of them and makes one more. Wrong steps move, cut or sum what should
not be, or take a matrix for what it is not.

How a matrix [rows, columns], of extents 8 and 16, is held:
    own    a shard along `cut`, its gradient too
    alike  the same everywhere, its gradient too
    terms  the same everywhere; each rank's gradient is a term of the sum
    parts  each rank's value is a term of the sum; the gradient is the same everywhere"""
import torch
import torch.nn.functional as F
from torch import nn

from random_constants import EXTENTS, Constants, Held
from random_worlds import SAME, TO_PART, TO_WHOLE, Finalizer

# (from, to) -> the pair of collectives, forward and backward.
RIGHT_MOVES = {
    ("own", "terms"): ("gather", "reduce_scatter"), ("own", "alike"): ("gather", "split"),
    ("alike", "terms"): ("identity", "all_reduce"), ("alike", "own"): ("split", "gather"),
    ("terms", "own"): ("split", "pad"), ("parts", "alike"): ("all_reduce", "identity"),
    ("parts", "own"): ("reduce_scatter", "gather"), ("parts", "terms"): ("all_reduce", "all_reduce"),
    ("alike", "alike"): ("broadcast", "identity"), ("terms", "alike"): ("identity", "average"),
}
UNARY = [F.gelu, F.silu, torch.tanh, torch.sigmoid, F.relu, torch.sin, torch.cos, F.softplus, torch.abs,
         lambda x: x.pow(2) / (1 + x.detach().pow(2)), lambda x: torch.exp(torch.tanh(x)), lambda x: torch.log(1 + x * x),
         lambda x: torch.rsqrt(1 + x * x), lambda x: torch.clamp(x, -1, 1), lambda x: 1 - x * x / 8,
         lambda x: torch.where(x > 0, x, x * 0.5), lambda x: x.masked_fill(x > 0.5, 0), lambda x: x.to(torch.float32).double()]
LINEAR = [lambda x: -x, lambda x: x * 0.5, lambda x: x / 4, lambda x: x.clone(), lambda x: x + x, lambda x: x - 0.25 * x]


class Soup(Constants, nn.Module):
    """x [8, 8] and more, the same on every rank -> the loss, or this rank's term of it. `make`: the program's parameters."""

    def __init__(self, choice, world, make):
        super().__init__()
        self.choice, self.world, self.make = choice, world, make
        self.wrong = choice.choice((0, 0, 0.05, 0.15, 0.4))  # of each choice
        self.finalizer = Finalizer(choice)
        self.plan, self.held, self.unused, self.made = [], [Held(8, 8, "alike", None)], [0], []
        makers = [self.unary] * 3 + [self.linear] * 4 + [self.move] * 6 + [
            self.binary, self.binary, self.bias, self.gain, self.layer_norm, self.softmax, self.parallel_softmax, self.scan,
            self.reduction, self.joined, self.stacked, self.padded, self.shifted, self.halves, self.viewed, self.looked_up,
            self.embedding, self.vocabulary, self.in_place, self.buffer, self.product, self.scaled,
            self.constant_factor, self.counted, self.own_mean, self.masked, self.linear_of_ones, self.looked_up_by_constant,
            self.flagged, self.ordered]
        self.linear()
        for _ in range(choice.randint(3, 11)):
            self.step(makers)
        for i in list(self.unused):
            self.close(i)
        self.losses = [(i, self.loss_of(self.held[i])) for i in self.unused]

    def inputs(self, random):
        return {"x": torch.randn(8, 8, generator=random), "tokens": torch.randint(0, 16, (8,), generator=random)}

    def forward(self, x, tokens):
        self.tokens = tokens
        values = [x]
        for step in self.plan:
            values.append(step(values))
        return sum(loss(values[i]) for i, loss in self.losses)

    # ---- making a plan

    def step(self, makers):
        while not self.choice.choice(makers)():
            pass

    def errs(self):
        return self.choice.random() < self.wrong

    def operand(self, *uses, whole=None, cut=None):
        """A matrix that fits: its number, or None. whole: a dimension that must not be cut, unless that errs."""
        fits = [i for i, h in enumerate(self.held)
                if (h.use in uses or not uses or self.errs()) and (whole is None or h.cut != whole or self.errs())
                and (cut is None or h.cut in cut)]
        recent = [i for i in fits if i in self.unused] or fits
        return self.choice.choice(recent if self.choice.random() < 0.8 else fits) if fits else None

    def add(self, held, operands, function):
        self.plan.append(lambda values: function(*(values[i] for i in operands)))
        self.held.append(held)
        self.unused = [i for i in self.unused if i not in operands] + [len(self.held) - 1]
        return True

    def parameter(self, *shape, cut=None, of):
        """A new one, or sometimes one that there is. of: how the matrix that it meets is held."""
        partial = of.use in ("terms", "parts") or (of.use == "own" and cut is None)
        again = [p for p, s, c in self.made if (s, c) == (shape, cut)]
        if again and self.choice.random() < 0.2:
            return self.choice.choice(again)
        name = f"w{len(self.made)}"
        parameter = self.make(name, shape, cut)
        self.register_parameter(name, parameter)
        self.made.append((parameter, shape, cut))
        if cut is None:
            self.finalizer.add(parameter, partial)
        else:
            self.finalizer.add_cut(parameter)
        return parameter

    # ---- steps

    def unary(self):
        i = self.operand("own", "alike", "terms", "parts")
        linear = self.held[i].use == "parts" and not self.errs()
        return self.add(self.held[i], [i], self.choice.choice(LINEAR if linear else UNARY + LINEAR))

    def binary(self):
        i = self.operand()
        like = [j for j, h in enumerate(self.held) if h == self.held[i] or (
            h._replace(use="") == self.held[i]._replace(use="") and self.errs())]
        j = self.choice.choice(like)
        linear = self.held[i].use == "parts" and not self.errs()
        functions = [torch.add, torch.sub, lambda a, b: torch.add(a, b, alpha=0.5)]
        functions += [] if linear else [torch.mul, lambda a, b: a / (1 + b * b), torch.maximum]
        return self.add(self.held[i], [i, j], self.choice.choice(functions[:None if self.errs() or linear else 5]))

    def bias(self):
        i = self.operand("own", "alike", "terms", "parts")
        held = self.held[i]
        b = self.parameter(held.columns, cut=0 if held.cut == 1 else None, of=held)
        share = self.world.size if held.use == "parts" and not self.errs() else 1
        return self.add(held, [i], lambda x: x + (b / share if share > 1 else b))

    def gain(self):
        i = self.operand("own", "alike", "terms", "parts")
        held = self.held[i]
        g = self.parameter(held.columns, cut=0 if held.cut == 1 else None, of=held)
        return self.add(held, [i], lambda x: x * g)

    def linear(self):
        i = self.operand()
        held, out = self.held[i], self.choice.choice(EXTENTS)
        if held.cut == 1:
            w, held = self.parameter(out, held.columns, cut=1, of=held), held._replace(use="parts", cut=None)
        elif held.cut is None and (held.use == "terms" or held.use == "alike" and self.errs()) and self.choice.random() < 0.6:
            w, held = self.parameter(out, held.columns, cut=0, of=held), held._replace(use="own", cut=1)
        else:
            w = self.parameter(out, held.columns, of=held)
        forms = [lambda x: F.linear(x, w), lambda x: x @ w.t(), lambda x: torch.bmm(x[None], w.t()[None])[0],
                 lambda x: torch.einsum("ij,kj->ik", x, w), lambda x: (w @ x.t()).t().contiguous()]
        return self.add(held._replace(columns=out), [i], self.choice.choice(forms))

    def product(self):
        """a^T b over the rows, of shards of rows or of the same; and a b^T."""
        i = self.operand("own", "alike", "terms", cut=(0, None))
        held = self.held[i]
        like = [j for j, h in enumerate(self.held) if (h.rows, h.use, h.cut) == (held.rows, held.use, held.cut)]
        j = self.choice.choice(like)
        use = "parts" if held.cut == 0 else held.use
        return self.add(Held(held.columns, self.held[j].columns, use, None), [i, j], lambda a, b: a.t() @ b / 8)

    def layer_norm(self):
        i = self.operand("own", "alike", "terms", whole=1)
        held = self.held[i]
        g = self.parameter(held.columns, cut=0 if held.cut == 1 else None, of=held)
        b = self.parameter(held.columns, cut=0 if held.cut == 1 else None, of=held)
        return self.add(held, [i], lambda x: F.layer_norm(x, (x.shape[1],), g, b))

    def softmax(self):
        dim = self.choice.choice((0, 1))
        i = self.operand("own", "alike", "terms", whole=dim)
        f = self.choice.choice((torch.softmax, torch.log_softmax))
        return self.add(self.held[i], [i], lambda x: f(x, dim))

    def parallel_softmax(self):
        """Over the cut dimension, as vocab_parallel_cross_entropy."""
        i = self.operand("own", cut=(0, 1))
        if i is None:
            return False
        dim, world = self.held[i].cut, self.world
        pair = ("all_reduce", "identity") if self.errs() else ("all_reduce", "all_reduce")
        maximum = "SUM" if self.errs() else "MAX"

        def softmax(x):
            m = x.detach().amax(dim, keepdim=True)
            if world.size > 1:
                world.all_reduce_(m, maximum)
            e = torch.exp(x - m)
            return e / world.move(e.sum(dim, keepdim=True), *pair)
        return self.add(self.held[i], [i], softmax)

    def scan(self):
        dim = self.choice.choice((0, 1))
        i = self.operand("own", "alike", "terms", "parts", whole=dim)
        f = self.choice.choice([lambda x: x.cumsum(dim) / 4, lambda x: x.flip(dim), lambda x: x.roll(1, dim),
                                lambda x: torch.tril(x), lambda x: torch.triu(x, 1)][:3 if self.held[i].cut is not None else 5])
        return self.add(self.held[i], [i], f)

    def reduction(self):
        dim = self.choice.choice((0, 1))
        i = self.operand("own", "alike", "terms", whole=dim)
        f = self.choice.choice([lambda x: x - x.mean(dim, keepdim=True), lambda x: x / (1 + x.pow(2).sum(dim, keepdim=True)),
                                lambda x: x - x.amax(dim, keepdim=True), lambda x: x * x.sum(dim).unsqueeze(dim) / 8,
                                lambda x: x + x.max(dim, keepdim=True).values] + [lambda x: x - x.mean()] * self.errs())
        return self.add(self.held[i], [i], f)

    def joined(self):
        dim = self.choice.choice((0, 1))
        i = self.operand(whole=dim)
        held = self.held[i]
        like = [j for j, h in enumerate(self.held) if h == held or self.errs() and h[:2] + h[3:] == held[:2] + held[3:]]
        j, half = self.choice.choice(like), held[dim] // 2
        forms = [lambda c: c.narrow(dim, c.shape[dim] // 4, c.shape[dim] // 2), lambda c: sum(c.chunk(2, dim)) / 2,
                 lambda c: c.narrow(dim, 0, c.shape[dim] // 2) * 0.5]
        if held.cut != dim and dim == 1:
            w = self.parameter(held.columns, 2 * held.columns, of=held)
            forms.append(lambda c: F.linear(c, w))
        form = self.choice.choice(forms)
        parts = [lambda a, b: [a, b], lambda a, b: [a.narrow(dim, 0, half), b, a.narrow(dim, half, half)]]
        parts = self.choice.choice(parts[:1 + (held.cut != dim)])
        if form is forms[-1] and len(forms) == 4:
            return self.add(held, [i, j], lambda a, b: form(torch.cat([a, b], dim)))
        return self.add(held, [i, j], lambda a, b: form(torch.cat(parts(a, b), dim)))

    def stacked(self):
        i = self.operand()
        held, dim = self.held[i], self.choice.choice((0, 1, 2))
        like = [j for j, h in enumerate(self.held) if h == held or self.errs() and h[:2] + h[3:] == held[:2] + held[3:]]
        forms = [lambda s: s.sum(dim) / 2, lambda s: s.select(dim, 1), lambda s: s.unbind(dim)[0] + s.unbind(dim)[1] * 0.5,
                 lambda s: s.mean(dim), lambda s: s.flip(dim).select(dim, 1)]
        form, j = self.choice.choice(forms), self.choice.choice(like)
        return self.add(held, [i, j], lambda a, b: form(torch.stack([a, b], dim)))

    def padded(self):
        dim = self.choice.choice((0, 1))
        i = self.operand(whole=dim)
        number = 0.5 if self.held[i].use != "parts" and self.choice.random() < 0.3 or self.errs() else 0
        before = (0, 0, 1, 0) if dim == 0 else (1, 0)
        return self.add(self.held[i], [i], lambda x: F.pad(x, before, value=number).narrow(dim, 0, x.shape[dim]))

    def shifted(self):
        """A part of it, and a part with steps, in zeros."""
        dim = self.choice.choice((0, 1))
        i = self.operand(whole=dim)
        step = self.choice.choice((1, 2))

        def shift(x):
            out = torch.zeros_like(x)
            if dim == 0:
                out[::step] = x[::step]
            else:
                out[:, 1::step] = x[:, :-1:step]
            return out
        return self.add(self.held[i], [i], shift)

    def halves(self):
        dim = self.choice.choice((0, 1))
        i = self.operand(whole=dim)
        forms = [lambda a, b: torch.cat([b, a], dim), lambda a, b: torch.cat([a + b, a - b], dim)]
        if self.held[i].use != "parts":
            forms += [lambda a, b: torch.cat([torch.sigmoid(a) * b, a], dim)]
        cut = self.choice.choice([lambda x: x.chunk(2, dim), lambda x: x.split(x.shape[dim] // 2, dim),
                                  lambda x: torch.split(x, [x.shape[dim] // 2] * 2, dim)])
        form = self.choice.choice(forms)
        return self.add(self.held[i], [i], lambda x: form(*cut(x)))

    def viewed(self):
        """Other geometries of the same memory: pairs of columns, flat, repeated, transposed."""
        i = self.operand()
        forms = [lambda x: x.reshape(x.shape[0], -1, 2).flip(2).reshape(x.shape), lambda x: x.reshape(-1).mul(0.5).view(x.shape),
                 lambda x: x.reshape(x.shape[0], -1, 2).transpose(1, 2).contiguous().transpose(1, 2).reshape(x.shape),
                 lambda x: x.unsqueeze(1).expand(-1, 2, -1).sum(1) / 2, lambda x: x.t().contiguous().t() * 1.5,
                 lambda x: x.reshape(-1, 2, x.shape[1])[:, 0].repeat_interleave(2, 0),
                 lambda x: torch.as_strided(x.contiguous(), (x.shape[1], x.shape[0]), (1, x.shape[1])).t(),
                 lambda x: x.unflatten(1, (-1, 2)).permute(1, 0, 2).flatten(1).view(-1, x.shape[0], 2).permute(1, 0, 2).flatten(1)]
        return self.add(self.held[i], [i], self.choice.choice(forms))

    def looked_up(self):
        """Rows or columns by indices that every rank has alike."""
        dim = self.choice.choice((0, 1))
        i = self.operand(whole=dim)
        held = self.held[i]
        indices = torch.tensor([self.choice.randrange(held[dim]) for _ in range(held[dim])])
        if self.choice.random() < 0.5:
            self.register_buffer(f"indices{len(self.plan)}", indices)

        def of(x):
            return indices[:x.shape[dim]] % x.shape[dim] if x.shape[dim] != len(indices) else indices
        forms = [lambda x: x.index_select(dim, of(x)), lambda x: x[of(x)] if dim == 0 else x[:, of(x)],
                 lambda x: x.gather(dim, (of(x)[:, None] if dim == 0 else of(x)[None]).expand(x.shape)),
                 lambda x: torch.zeros_like(x).index_add(dim, of(x), x * 0.5),
                 lambda x: F.embedding(of(x), x) if dim == 0 else F.embedding(of(x), x.t()).t()]
        return self.add(held, [i], self.choice.choice(forms))

    def embedding(self):
        columns = self.choice.choice(EXTENTS)
        held = Held(8, columns, "alike", None)
        table = self.parameter(16, columns, of=held)
        return self.add(held, [], lambda: F.embedding(self.tokens, table))

    def vocabulary(self):
        """Each rank looks up what is in its own range of rows."""
        columns, world = self.choice.choice(EXTENTS), self.world
        held = Held(8, columns, "parts", None)
        table = self.parameter(16, columns, cut=0, of=held)
        fill = 1.0 if self.errs() else 0.0
        beside = self.errs()
        masks = not self.errs()

        def find():
            if world.size == 1:
                return F.embedding(self.tokens, table)
            rows = table.shape[0]
            start = world.rank * rows
            outside = (self.tokens < start) | (self.tokens >= start + rows)
            own = self.tokens.clone() - start
            own[outside] = 1 if beside else 0
            found = F.embedding(own, table)
            if masks:
                found[outside, :] = fill
            return found
        return self.add(held, [], find)

    def in_place(self):
        i = self.operand()
        held = self.held[i]
        dim = 1 if held.cut == 0 else 0
        forms = [lambda y: y.mul_(0.5), lambda y: y.add_(y * 0.25), lambda y: y.narrow(dim, 0, 2).zero_(),
                 lambda y: y.narrow(dim, 1, 2).mul_(2), lambda y: y.narrow(dim, 0, 4).copy_(y.narrow(dim, 4, 4).clone()),
                 lambda y: y.select(dim, 0).add_(y.select(dim, 3) * 0.5)]
        if held.use != "parts" or self.errs():
            forms += [lambda y: y.clamp_(-1, 1), lambda y: y.tanh_(), lambda y: y.fill_(0.5), lambda y: y.select(dim, 0).fill_(0.5),
                      lambda y: y.masked_fill_(y > 0, 0.25)]
        form = self.choice.choice(forms)

        def write(x):
            y = x.clone()
            form(y)
            return y * 1.0
        return self.add(held, [i], write)

    def buffer(self):
        """Two matrices put together in new memory, and read as one or in another order."""
        i = self.operand()
        held = self.held[i]
        like = [j for j, h in enumerate(self.held) if h == held or self.errs() and h[:2] + h[3:] == held[:2] + held[3:]]
        j = self.choice.choice(like)
        dim = 1 if held.cut == 0 else 0
        empty = self.choice.random() < 0.5
        read = self.choice.choice([lambda o, k: o.narrow(dim, k // 2, k), lambda o, k: o.narrow(dim, 0, k) + o.narrow(dim, k, k),
                                   lambda o, k: o.narrow(dim, k, k)])

        def fill(a, b):
            shape = list(a.shape)
            shape[dim] *= 2
            out = a.new_empty(shape) if empty else a.new_zeros(shape)
            out.narrow(dim, 0, a.shape[dim]).copy_(a)
            out.narrow(dim, a.shape[dim], a.shape[dim]).copy_(b)
            return read(out, a.shape[dim])
        return self.add(held, [i, j], fill)

    def scaled(self):
        """By a number that is the group's size, or the extent that a rank holds."""
        if not self.errs():
            return False
        i, size = self.operand(), self.world.size
        forms = [lambda x: x / size, lambda x: x * size, lambda x: x / x.shape[1], lambda x: x * (1 / size),
                 lambda x: x + x.shape[0] / 16, lambda x: x / min(size, 2)]
        return self.add(self.held[i], [i], self.choice.choice(forms))

    # ---- communication

    def move(self):
        i = self.operand()
        held = self.held[i]
        if held.use == "own" and self.choice.random() < 0.3:
            pair = ("to_columns", "to_rows") if held.cut == 0 else ("to_rows", "to_columns")
            return self.add(held._replace(cut=1 - held.cut), [i], lambda x: self.world.move(x, *pair))
        uses = [to for of, to in RIGHT_MOVES if of == held.use]
        return self.moved(i, self.choice.choice(uses), self.choice.choice((0, 1)))

    def moved(self, i, use, dim):
        held = self.held[i]
        dim = dim if held.cut is None else held.cut
        pair = RIGHT_MOVES[held.use, use]
        if self.errs():
            forms = next(forms for forms in (SAME, TO_WHOLE, TO_PART) if pair[0] in forms)
            back = {SAME: SAME, TO_WHOLE: TO_PART, TO_PART: TO_WHOLE}[forms]
            pair = self.choice.choice(forms), self.choice.choice(back)
        how = self.choice.choice((0, 1))
        return self.add(held._replace(use=use, cut=dim if use == "own" else None), [i],
                        lambda x: self.world.move(x, *pair, dim, how))

    def close(self, i):
        """What the loss takes whole is a shard, or the same with a complete gradient."""
        use = self.held[i].use
        if use in ("terms", "parts") and not self.errs():
            self.moved(i, "own" if use == "terms" else "alike", 0)
