"""Small SPMD programs that look right, with the numerical truth of their gradients, for the prover's soundness; and right ones
beside them.

    python tests/peers/trace/hostile_programs.py --out hostile_programs.jsonl.gz
    python tests/peers/trace/hostile_programs.py --check build/release/sumonce_check_programs --filter 'mask*'

Each function below is a program: it makes its parameters and returns its forward pass of x [16, 16] and tokens [16]. Out, as
random_programs.py. Needs PyTorch alone."""
import argparse
import fnmatch
import sys

import torch
import torch.nn.functional as F
from torch import nn

import random_programs
from random_programs import SIZE, Step, computed_by_threads, truth_of, write_trace
from random_worlds import World

PROGRAMS = {}


def hostile(function):
    PROGRAMS[function.__name__] = function
    return function


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="*", help="of names of programs")
    options, groups = random_programs.begin(parser)
    with random_programs.sink(options) as write:
        for number, (name, function) in enumerate(PROGRAMS.items()):
            if fnmatch.fnmatch(name, options.filter):
                program(number, name, function, groups, write)


def program(number, name, function, groups, write):
    def kind(choice, world, make):
        return Program(function, world, make)
    whole = Step(kind, name, World(1, 0))
    whole.trace()
    write({"program": number, "name": name, "truth": truth_of(whole, computed_by_threads(kind, name))})
    write_trace(write, number, whole)
    for size, rank in [*((SIZE, r) for r in range(SIZE)), (2 * SIZE, 0)]:
        step = Step(kind, name, World(size, rank, groups[size]))
        step.trace()
        write_trace(write, number, step)


class Program(nn.Module):
    def __init__(self, function, world, make):
        super().__init__()
        self.world, self.finalizer, self.make = world, Sums(), make
        self.function = function(self)

    def weight(self, name="w", *, shape=(16, 16), cut=None, summed=False):
        parameter = self.make(name, shape, cut)
        self.register_parameter(name, parameter)
        if summed:
            self.finalizer.summed.append(parameter)
        return parameter

    def inputs(self, random):
        return {"x": torch.randn(16, 16, generator=random), "tokens": torch.randint(0, 16, (16,), generator=random)}

    def forward(self, x, tokens):
        return self.function(x, tokens)

    def own(self, x):
        """This rank's rows."""
        rows = x.shape[0] // self.world.size
        return x.narrow(0, self.world.rank * rows, rows)

    def summed(self, x):
        return self.world.move(x, "all_reduce", "identity")

    def sum_(self, x):
        if self.world.size > 1:
            self.world.all_reduce_(x)
        return x


class Sums:
    """The finalizer: sums what is marked."""

    def __init__(self):
        self.summed = []

    def make_gradients(self, parameters):
        for parameter in parameters:
            parameter.main_grad = torch.zeros(parameter.shape)

    def run(self, world):
        for parameter in self.summed if world.size > 1 else ():
            world.all_reduce_(parameter.main_grad)


# ---- parts whose place or extent goes with the size -------------------------------------------------------------------------


@hostile
def mask_of_a_part_that_shrinks(p):
    w = p.weight()

    def forward(x, tokens):
        mask = torch.zeros(16)
        mask[:16 // p.world.size] = 1
        return (torch.tanh(x @ w.t()) * mask).sum()
    return forward


@hostile
def zeros_in_a_part_that_shrinks(p):
    w = p.weight()

    def forward(x, tokens):
        y = torch.tanh(x @ w.t()) * 1.0
        y[:, :8 // p.world.size] = 0
        return y.sum()
    return forward


@hostile
def zeros_in_columns_of_a_shard_that_shrink(p):
    w = p.weight(summed=True)

    def forward(x, tokens):
        y = p.own(torch.tanh(x)) * 1.0
        y[:, :8 // p.world.size] = 0
        return p.summed(torch.tanh(y @ w.t()).sum())
    return forward


@hostile
def ones_at_columns_of_a_shard_that_move(p):
    w = p.weight(summed=True)

    def forward(x, tokens):
        y = p.own(torch.tanh(x)) * 1.0
        begin = 8 // p.world.size
        y[:, begin:begin + 2] = 1
        return p.summed(torch.tanh(y @ w.t()).sum())
    return forward


@hostile
def a_shard_at_columns_that_move(p):
    w = p.weight(shape=(16, 32), summed=True)

    def forward(x, tokens):
        y = p.own(torch.tanh(x)) * 1.0
        begin = 8 // p.world.size
        z = y.new_zeros(y.shape[0], 32)
        z[:, begin:begin + 16] = y
        return p.summed(torch.tanh(z @ w.t()).sum())
    return forward


@hostile
def ones_written_where_only_the_whole_is_read(p):
    w = p.weight(shape=(16, 8))

    def forward(x, tokens):
        y = torch.tanh(x) * 1.0
        begin = 8 // p.world.size
        y[:, begin:begin + 2] = 3
        return torch.tanh(y[:, 8:] @ w.t()).sum()
    return forward


@hostile
def values_written_where_only_the_whole_is_read(p):
    w = p.weight(shape=(16, 8))

    def forward(x, tokens):
        y = torch.tanh(x) * 1.0
        begin = 8 // p.world.size
        y[:, begin:begin + 2] = torch.sin(x[:, :2])
        return torch.tanh(y[:, 8:] @ w.t()).sum()
    return forward


# ---- operations that look linear, or local ----------------------------------------------------------------------------------


def scaled_by_count(p, count_of):
    w = p.weight()

    def forward(x, tokens):
        count = p.sum_(count_of(p.own(x)).double())
        return (torch.tanh(x @ w.t()) * count).sum()
    return forward


@hostile
def counts_of_positive_entries(p):
    return scaled_by_count(p, lambda x: (x > 0).sum(0))


@hostile
def flags_of_terms(p):
    return scaled_by_count(p, lambda x: (x > 0).sum(0).to(torch.bool))


@hostile
def flags_summed(p):
    return scaled_by_count(p, lambda x: (x > 0).sum(0, dtype=torch.bool))


@hostile
def flags_copied(p):
    return scaled_by_count(p, lambda x: torch.empty(16, dtype=torch.bool).copy_((x > 0).sum(0)))


@hostile
def terms_divided_and_rounded(p):
    return scaled_by_count(p, lambda x: torch.div((x * 3).sum(0), 2, rounding_mode="floor"))


def on_own_rows(p, change):
    w = p.weight(summed=True)

    def forward(x, tokens):
        return p.summed(torch.tanh(change(p.own(torch.tanh(x))) @ w.t() * p.own(x)).sum())
    return forward


@hostile
def rolled_without_dimensions(p):
    return on_own_rows(p, lambda y: torch.roll(y, 1))


@hostile
def sorted_stably(p):
    return on_own_rows(p, lambda y: torch.sort(y, stable=True, dim=0).values)


@hostile
def sorted_columns(p):
    return on_own_rows(p, lambda y: torch.sort(y, stable=True, dim=1).values)


# ---- constants as indices ---------------------------------------------------------------------------------------------------


def rows_looked_up(p, look_up, cut):
    w = p.weight(cut=cut)
    return lambda x, tokens: look_up(w, torch.zeros(8, dtype=torch.long)).sum()


@hostile
def first_row_of_a_cut_embedding(p):
    return rows_looked_up(p, lambda w, i: F.embedding(i, w), 0)


@hostile
def first_row_of_a_cut_table_selected(p):
    return rows_looked_up(p, lambda w, i: w.index_select(0, i), 0)


@hostile
def first_row_of_a_cut_table_gathered(p):
    return rows_looked_up(p, lambda w, i: w.gather(0, i[:, None].expand(-1, 16)), 0)


@hostile
def first_row_of_a_whole_embedding(p):
    return rows_looked_up(p, lambda w, i: F.embedding(i, w), None)


# ---- look-ups by own range --------------------------------------------------------------------------------------------------


def vocabulary(p, mask):
    """`mask`: of found [16, 16] and the tokens [16] that are others'."""
    w, v = p.weight(cut=0), p.weight("v")

    def forward(x, tokens):
        found = F.embedding(tokens, w) if p.world.size == 1 else None
        if found is None:
            rows = w.shape[0]
            start = p.world.rank * rows
            outside = (tokens < start) | (tokens >= start + rows)
            found = F.embedding((tokens.clone() - start).masked_fill(outside, 0), w)
            found = found.masked_fill(mask(outside), 0)
        return torch.tanh(p.summed(found) @ v.t()).sum()
    return forward


@hostile
def mask_over_rows(p):
    return vocabulary(p, lambda outside: outside[:, None])


@hostile
def mask_over_columns(p):
    return vocabulary(p, lambda outside: outside[None])


# ---- the unsharded program alone --------------------------------------------------------------------------------------------


@hostile
def a_term_that_only_the_whole_has(p):
    w, v = p.weight(), p.weight("v")
    return lambda x, tokens: torch.tanh(w + v * (0 if p.world.size > 1 else 1)).sum()


@hostile
def ones_of_the_whole_are_zeros(p):
    w = p.weight()
    return lambda x, tokens: torch.tanh(w + (torch.zeros(16) if p.world.size > 1 else torch.ones(16))).sum()


@hostile
def a_tensor_of_one_over_the_smaller_of_size_and_two(p):
    w = p.weight()
    return lambda x, tokens: w.sum() * torch.tensor(1 / min(p.world.size, 2))


# ---- means and counts -------------------------------------------------------------------------------------------------------


def loss_of_own_rows(p, loss):
    w = p.weight(summed=True)
    return lambda x, tokens: loss(torch.tanh(p.own(x) @ w.t()))


@hostile
def mean_of_own_rows_averaged(p):
    return loss_of_own_rows(p, lambda y: p.summed(y.mean()) / p.world.size)


@hostile
def mean_of_own_rows_summed(p):
    return loss_of_own_rows(p, lambda y: p.summed(y.mean()))


@hostile
def divided_by_the_count_of_all(p):
    return loss_of_own_rows(p, lambda y: p.summed(y.sum()) / p.sum_(torch.ones(y.shape).sum()))


@hostile
def divided_by_the_count_of_own(p):
    return loss_of_own_rows(p, lambda y: p.summed(y.sum() / torch.ones(y.shape).sum()))


@hostile
def all_reduced_ones(p):
    w = p.weight()
    return lambda x, tokens: (w * p.sum_(torch.ones(1))).sum()


if __name__ == "__main__":
    sys.exit(main())
