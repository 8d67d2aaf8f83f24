"""Random SPMD programs, right and wrong, with the numerical truth of every gradient, for the prover's soundness.

    python tests/peers/trace/random_programs.py --count 200 --seed 1 --out random_programs.jsonl.gz
    python tests/peers/trace/random_programs.py --count 10000 --seed 7 --check build/release/sumonce_check_programs

A program is a stack of a Transformer's blocks (random_blocks.py) or a soup of operations (random_soups.py) in float64, each
replicated parameter with a right or a wrong finalizer (random_worlds.py). Two threads of one process are its two ranks and
compute; their gradients are compared with the unsharded program's. Then it is traced at sizes 1, 2 (both ranks) and 4, in a
group whose collectives do nothing. Needs PyTorch alone.

Out, as tests/data/traces/random_programs.jsonl.gz: {"program", "truth"}, then each trace behind {"trace_of", "size",
"rank"}. Truth of a parameter, to a relative 1e-8: `right`; `every_rank_times` a: each rank has a times its part of the
reference; `sum_of_ranks_times`: the ranks' sum is a times the reference, of replicated parameters; `zero`: the
reference is zero, so numbers say nothing; `right_in_sections`: it is right beside a reference each of whose shards is cut in
two sections, as of a program that cuts its block apart; `alike`: all ranks' parts of it are equal, so that a mixture of them
is as well. The same seed gives the same bytes."""
import argparse
import collections
import contextlib
import gzip
import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "trace" / "python"))
import sumonce_trace  # noqa: E402
from random_blocks import Blocks  # noqa: E402
from random_soups import Soup  # noqa: E402
from random_worlds import Meeting, Threads, World  # noqa: E402

TOLERANCE = 1e-8
SIZE = 2  # and twice that
KINDS = {"blocks": Blocks, "soup": Soup}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    options, groups = begin(parser)
    used = collections.Counter()
    with sink(options) as write:
        for number in range(options.first, options.first + options.count):
            program(options, number, groups, used, write)
    print(" ".join(f"{name}:{count}" for name, count in sorted(used.items())), file=sys.stderr)


def begin(parser):
    """The options, with where the programs go, and the process groups by size."""
    out = parser.add_mutually_exclusive_group(required=True)
    out.add_argument("--out", type=Path, help="a file, gzipped")
    out.add_argument("--check", type=Path, help="a program that reads them, such as build/release/sumonce_check_programs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2 * SIZE)
    return options, {SIZE: dist.new_group(list(range(SIZE))), 2 * SIZE: dist.group.WORLD}


@contextlib.contextmanager
def sink(options):
    """A function that takes a line's record."""
    if options.check:
        reader = subprocess.Popen([options.check, "/dev/stdin"], stdin=subprocess.PIPE)
        file = reader.stdin
    else:
        file = gzip.GzipFile("", "wb", fileobj=open(options.out, "wb"), mtime=0)
    with file:
        yield lambda record: file.write(json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n")
    if options.check and reader.wait():
        sys.exit(1)


def program(options, number, groups, used, write):
    """Computes a program, traces it, writes both."""
    key = f"{options.seed} {number}"
    kind = options.kind if options.kind != "both" else ("blocks", "soup")[number % 2]
    whole = Step(KINDS[kind], key, World(1, 0))
    whole.trace()
    truth = truth_of(whole, computed_by_threads(KINDS[kind], key))
    if kind == "soup" and whole.model.wrong:
        for name, found in truth_of(whole, computed_by_threads(KINDS[kind], key, sections=2), sections=2).items():
            truth[name] |= {"right_in_sections": True} if found["right"] and not truth[name]["right"] else {}
    write({"program": number, "truth": truth})
    write_trace(write, number, whole)
    for size, rank in [*((SIZE, r) for r in range(SIZE)), (2 * SIZE, 0)]:
        step = Step(KINDS[kind], key, World(size, rank, groups[size]))
        step.trace()
        write_trace(write, number, step)
    used.update({record["op"].split(".")[1] for record in step.records if "op" in record})


def write_trace(write, number, step):
    write({"trace_of": number, "size": step.world.size, "rank": step.world.rank})
    for record in step.records:
        write(record)


# ---- truth ---------------------------------------------------------------------------------------------------------------


def truth_of(whole, ranks, sections=1):
    """name -> what the numbers say of a gradient."""
    truth = {}
    for name, parameter in whole.model.named_parameters():
        reference, cut = parameter.main_grad, parameter.cut
        found = torch.stack([dict(rank.model.named_parameters())[name].main_grad for rank in ranks])
        if not (reference.isfinite().all() and found.isfinite().all()):
            truth[name] = {"right": False, "zero": True}
            continue
        parts = [part_of(reference, cut[0], max(cut[1], sections), len(ranks), r) for r in range(len(ranks))]
        every = factor(found, torch.stack(parts))
        total = factor(found.sum(0), reference) if cut[0] is None else None
        truth[name] = {"right": every is not None and abs(every - 1) <= TOLERANCE}
        truth[name] |= {k: v for k, v in (("every_rank_times", every), ("sum_of_ranks_times", total)) if v is not None}
        truth[name]["zero"] = not bool(reference.abs().max() > 1e-12)
        if cut[0] is not None and factor(parts[0], parts[1]) == 1:
            truth[name]["alike"] = True
    return truth


def part_of(whole, dim, sections, size, rank):
    """Each of the sections is cut for itself, as by a rank that cuts its block apart."""
    if dim is None:
        return whole
    return torch.cat([section.chunk(size, dim)[rank] for section in whole.chunk(sections, dim)], dim)


def factor(found, reference):
    """a, if found is a * reference; None otherwise. Numbers next to whole ones or halves are those."""
    square = (reference * reference).sum()
    if square == 0:
        return None
    a = float((found * reference).sum() / square)
    if (found - a * reference).abs().max() > TOLERANCE * reference.abs().max() * max(1, abs(a)):
        return None
    return round(a * 64) / 64 if abs(a * 64 - round(a * 64)) < 1e-6 else a


# ---- one rank of a program -----------------------------------------------------------------------------------------------


class Step:
    def __init__(self, kind, key, world, sections=1):
        self.key, self.world, self.sections = key, world, sections
        self.model = kind(random.Random(key), world, self.make)
        self.model.finalizer.make_gradients(self.model.parameters())
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(accumulate)
        self.inputs = self.model.inputs(generator(f"{key} inputs"))

    def make(self, name, shape, cut=None, sections=1):
        """This rank's part of a parameter."""
        whole = torch.randn(*shape, generator=generator(f"{self.key} {name}")) * 0.5 / shape[-1] ** 0.5
        whole = whole + 1 if len(shape) == 1 else whole
        apart = max(sections, self.sections)
        parameter = nn.Parameter(part_of(whole, cut, apart, self.world.size, self.world.rank).contiguous())
        parameter.cut = cut, sections
        return parameter

    def compute(self):
        self.model(**self.inputs).backward()
        self.model.finalizer.run(self.world)

    def trace(self):
        recorder = sumonce_trace.Recorder(self.model, str, audit=False)
        recorder.name_tensors(self.inputs)
        with recorder.places.followed(), recorder:
            self.compute()
        recorder.finish()
        self.records = sumonce_trace.records(recorder, SimpleNamespace(
            size=self.world.size, rank=self.world.rank, group=list(range(self.world.size))))


def accumulate(parameter):
    parameter.main_grad.add_(parameter.grad)
    parameter.grad = None


def computed_by_threads(kind, key, sections=1):
    """The steps of all ranks, computed."""
    meeting, failures = Meeting(SIZE), []
    steps = [Step(kind, key, Threads(SIZE, rank, meeting), sections) for rank in range(SIZE)]

    def compute(step):
        try:
            step.compute()
        except Exception as failure:
            failures.append(failure)
            meeting.barrier.abort()
    threads = [threading.Thread(target=compute, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return steps


def generator(key):
    return torch.Generator().manual_seed(random.Random(key).getrandbits(63))


if __name__ == "__main__":
    main()
