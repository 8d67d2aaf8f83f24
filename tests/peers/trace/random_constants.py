"""Steps of random programs (random_soups.py) in which constants take part: ones, masks, counts, means over what a rank has,
look-ups by constant indices, flags. Where a choice errs they are of the wrong extents, in the wrong place, or reduced at the
wrong time."""
from collections import namedtuple

import torch
import torch.nn.functional as F

EXTENTS = (8, 16)
Held = namedtuple("Held", "rows columns use cut")  # random_soups.py


class Constants:
    def constant_factor(self):
        """Right in any layout, as each rank's constants are slices of the whole's."""
        i, size = self.operand(), self.world.size
        forms = [lambda x: x * torch.ones(x.shape[1]), lambda x: x * torch.full_like(x, 0.75),
                 lambda x: x * (torch.ones(x.shape) + torch.full(x.shape, 0.25)),
                 lambda x: x * (torch.ones(x.shape[0], 3) @ torch.full((3, x.shape[1]), 0.25)),
                 lambda x: x * torch.full(x.shape, 0.5).mean(), lambda x: x * torch.full(x.shape, 2.0).mean(0),
                 lambda x: x * torch.ones(3, x.shape[1]).sum(0), lambda x: x * torch.ones(x.shape[0], 1).exp()]
        if self.errs():
            forms = [lambda x: x * torch.ones(x.shape).sum() / 64, lambda x: x * torch.ones(x.shape[0]).cumsum(0)[:, None] / 8,
                     lambda x: x * torch.ones(size).sum(), lambda x: x * torch.full((x.shape[0], 1), 1 / size),
                     lambda x: x * (torch.ones(8, x.shape[1]) @ torch.full((x.shape[1], x.shape[1]), 0.1)).mean(),
                     lambda x: x + torch.ones(x.shape[1]), lambda x: x * torch.arange(1, 5).sum()]
        return self.add(self.held[i], [i], self.choice.choice(forms))

    def counted(self):
        """Divided by how many entries there are, which are counted by ones."""
        i = self.operand("own", "alike", "terms", "parts")
        held, world = self.held[i], self.world
        reduces = (held.cut is not None) != self.errs()
        along = self.choice.choice((None, 0, 1))
        reduces &= along is None or along == held.cut or self.errs()

        def divide(x):
            ones = torch.ones(x.shape)
            count = ones.sum() if along is None else ones.sum(along, keepdim=True)
            if reduces and world.size > 1:
                count = count.clone()
                world.all_reduce_(count)
            return x * 8 / count
        return self.add(held, [i], divide)

    def own_mean(self):
        """The mean over a dimension of which a rank has a part: the ranks' means, summed and divided."""
        i = self.operand("own", cut=(0, 1))
        if i is None or self.held[i].cut is None:
            return False
        dim, world = self.held[i].cut, self.world
        pair = ("all_reduce", "identity") if self.errs() else ("all_reduce", "all_reduce")
        divides, how = not self.errs(), self.choice.choice((0, 1))

        def center(x):
            mean = x.mean(dim, keepdim=True) if how else x.sum(dim, keepdim=True) / x.shape[dim]
            mean = world.move(mean, *pair)
            return x - (mean / world.size if divides else mean) / 2
        return self.add(self.held[i], [i], center)

    def masked(self):
        """Some rows or columns are constants, or moved in zeros."""
        i = self.operand("own", "alike", "terms")
        held, size = self.held[i], self.world.size
        dim = 1 if held.cut == 0 else 0
        moving, whole_dim = self.errs(), not self.errs()
        dim = dim if whole_dim else 1 - dim
        number = self.choice.choice((0, 0, 1, 0.5))
        form = self.choice.choice(("mask", "fill", "shift", "read", "rows"))

        def mask(x):
            begin, count = (4 // size, 2) if moving and form != "rows" else (2, 4 // size if moving else 3)
            begin, count = min(begin, x.shape[dim] - 1), min(count, x.shape[dim] - begin)
            if form == "mask":
                kept = torch.ones(x.shape[dim])
                kept[begin:begin + count] = number
                return x * (kept if dim == 1 else kept[:, None])
            if form == "shift":
                out = torch.zeros(x.shape[0] + 8 * (dim == 0), x.shape[1] + 8 * (dim == 1))
                out.narrow(dim, begin, x.shape[dim]).copy_(x)
                return out.narrow(dim, 0, x.shape[dim])
            y = x * 1.0
            y.narrow(dim, begin, count).fill_(number)
            if form == "read":
                half = x.shape[dim] // 2
                return torch.cat([y.narrow(dim, half, half), x.narrow(dim, 0, half)], dim)
            return y * 1.0
        return self.add(held, [i], mask)

    def linear_of_ones(self):
        """A layer whose input is constant, so its weight's gradient may be as well."""
        out, columns = self.choice.choice(EXTENTS), self.choice.choice(EXTENTS)
        cut = self.choice.choice((None, 0, 1))
        held = Held(8, out, {None: "alike", 0: "own", 1: "parts"}[cut], 1 if cut == 0 else None)
        w = self.parameter(out, columns, cut=cut, of=held._replace(use="alike"))
        number = self.choice.choice((1, 0.25))
        return self.add(held, [], lambda: F.linear(torch.full((8, w.shape[1]), float(number)), w))

    def looked_up_by_constant(self):
        """Row 0, or 1, of a table; of one that is cut, each rank's own."""
        columns, row = self.choice.choice(EXTENTS), self.choice.choice((0, 1))
        cut = self.choice.choice((0, 1)) if self.errs() else self.choice.choice((None, 1))
        held = Held(8, columns, "own" if cut == 1 else "alike", cut if cut == 1 else None)
        table = self.parameter(16, columns, cut=cut, of=held._replace(use="alike"))
        forms = [lambda t, i: F.embedding(i, t), lambda t, i: t[i], lambda t, i: t.index_select(0, i),
                 lambda t, i: t.gather(0, i[:, None].expand(-1, t.shape[1])),
                 lambda t, i: torch.zeros(8, t.shape[1]).index_add(0, i, t[:8] * 1.0) + t[i]]
        form = self.choice.choice(forms[:4] if cut == 0 else forms)
        return self.add(held, [], lambda: form(table, torch.full((8,), row)))

    def flagged(self):
        """By how many entries of a row or column are positive, or whether any is."""
        i = self.operand("own", "alike", "terms")
        held, world = self.held[i], self.world
        dim = self.choice.choice((0, 1))
        reduces = (held.cut == dim) != self.errs()
        late = not self.errs()
        flag = self.choice.choice([lambda c: c.bool().double(), lambda c: (c > 0).double(), lambda c: c.clamp(max=1).double(),
                                   lambda c: torch.div(c, 2, rounding_mode="floor").double(), lambda c: (c / 2).double()])

        def scale(x):
            count = (x.detach() > 0).sum(dim, keepdim=True)
            count = count if late else flag(count)
            if reduces and world.size > 1:
                count = count.clone()
                world.all_reduce_(count)
            return x * (1 + (flag(count) if late else count))
        return self.add(held, [i], scale)

    def ordered(self):
        dim = self.choice.choice((0, 1))
        i = self.operand("own", "alike", "terms", whole=dim)
        forms = [lambda x: x.sort(dim).values, lambda x: torch.sort(x, stable=True, dim=dim).values,
                 lambda x: x.topk(x.shape[dim], dim).values]
        if self.held[i].cut is None or self.errs():
            forms += [lambda x: x.roll(1), lambda x: x.roll((1, 2), (0, 1))]
        return self.add(self.held[i], [i], self.choice.choice(forms))

    def loss_of(self, held):
        """Of what is left over: the loss, or this rank's term of it."""
        share = self.world.size if (held.use == "own") != self.errs() else 1
        weight = self.choice.choice((1.0, 0.3))
        return self.choice.choice([
            lambda x: torch.tanh(x).sum() + x.pow(2).sum() / 16, lambda x: torch.tanh(x).sum() + x.pow(2).sum() / 16,
            lambda x: x.sum(), lambda x: (x @ torch.full((x.shape[1],), weight)).sum(),
            lambda x: (x * torch.ones(x.shape)).sum() * weight, lambda x: x.mean() * 8 / share,
            lambda x: x.mean(0).mean() * 8 / share, lambda x: torch.tanh(x).mean() * 8 / share])
