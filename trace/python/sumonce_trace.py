"""Records one training step as a straight-line program, for `sumonce prove --trace` (docs/TRACING.md).

Every aten and c10d operation of the forward pass, the backward pass and the finalizer is recorded below autograd. A value
is named by its memory (storage, offset, shape, strides; in elements), so views, saved activations and gradients in flat
buffers need no bookkeeping. Needs nothing but PyTorch. The format is that of docs/TRACE.md. In a job:

    import sumonce_trace
    with sumonce_trace.trace(model, "traces", group=tp_group):   # each rank writes traces/tp<size>.rank<rank>.jsonl.gz
        forward_backward_and_finalize()

In one process, without GPUs, peers or memory, the four traces of a proof (`--help`):

    python -m sumonce_trace job.py:step --tp 2,4 --out traces

One trace at a time, from one thread. The same job gives the same bytes."""
import argparse
import contextlib
import ctypes
import difflib
import gzip
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import math
import os
import re
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves


class TraceError(RuntimeError):
    """What the user can mend: the message says what is wrong, where, and the cure."""


def checkpoint_name(name):
    """The name in a checkpoint, without the wrappers' prefixes and PEFT's `base_layer`.

    'module.module.decoder.layers.0.mlp.linear_fc1.base_layer.weight' -> 'decoder.layers.0.mlp.linear_fc1.weight'"""
    while match := re.match(r"(module|base_model\.model|_orig_mod|_fsdp_wrapped_module)(\.|$)", name):
        name = name[match.end():]
    return re.sub(r"\.base_layer(?=\.|$)", "", name)


@contextlib.contextmanager
def trace(model, out=None, *, group=None, inputs=None, name_of=checkpoint_name, audit=False, force=False):
    """Records what runs inside on this rank, and writes it on leaving. All ranks of `group` call it.

    model: the outermost module. A parameter's gradient is its `main_grad`, where it has one, or its `grad`; on entering,
      gradients are zero or not there.
    out: folder; under `python -m sumonce_trace` it is given there, as are `group`, `audit` and `force`.
    group: the tensor-parallel process group, default the world; every other axis is of size 1.
    inputs: name -> tensor that every rank is given alike (labels, a loss mask). What the model is called with is found
      without it. Any other tensor from outside is recorded with a digest of its content, unless it is a fake one.
    audit: hashes each storage after a recorded write and before the next recorded use; memory that changed in between
      was written by a kernel outside the dispatcher, and no trace is written. Real tensors only, 3 x slower.
    force: writes over a trace that is there.
    Yields the Recorder. Raises TraceError before the step (a trace is there, several axes, gradients that are not zero),
    in it (an operation that fake tensors cannot do), or after it (hidden writes; nothing recorded)."""
    target = _take_request() if _request else _own_target(out, group, force)
    recorder = Recorder(model, name_of, getattr(target, "audit", audit))
    recorder.name_tensors(inputs or {})
    with recorder.places.followed(), recorder:
        yield recorder
    recorder.finish()
    _write(recorder, target)


_request = []  # what the command line asks the job's one trace to be: path, size, rank, group, audit


def _take_request():
    if _request[0] is None:
        raise TraceError("the job traces twice; a trace is one step of one model")
    target, _request[0] = _request[0], None
    return target


def _own_target(out, group, force):
    if out is None:
        raise TraceError("where to? sumonce_trace.trace(model, 'traces'), or run the job by python -m sumonce_trace")
    rank, ranks = (dist.get_rank(), _ranks(group or dist.group.WORLD)) if dist.is_initialized() else (0, [0])
    if dist.is_initialized() and len(ranks) != dist.get_world_size():
        raise TraceError(f"the group has {len(ranks)} of {dist.get_world_size()} ranks; trace with the other axes of size 1")
    path = Path(out) / f"tp{len(ranks)}.rank{rank}.jsonl.gz"
    if path.exists() and not force:
        raise TraceError(f"{path} exists; remove it, or pass force=True")
    path.parent.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(path=path, size=len(ranks), rank=rank, group=ranks)


# They compute nothing: metadata, profiling, another Python object of the same memory.
_SKIPPED = re.compile(r"(prim|profiler)\.|aten\.(detach|alias|lift|is_pinned|is_same_size|record_stream|sym_\w+)(\.|$)"
                      r"|_c10d_functional\.(wait_tensor|_wrap_tensor_autograd)")
_NOT_RECORDED = {"device", "layout", "pin_memory", "memory_format"}
# DTensor's collectives into new memory -> the c10d operations that they stand for.
_FUNCTIONAL = {"all_reduce": "c10d.allreduce_", "all_gather_into_tensor": "c10d._allgather_base_",
               "reduce_scatter_tensor": "c10d._reduce_scatter_base_"}


class Recorder(TorchDispatchMode):
    """The operations of one step in the order in which they ran, and the tensors that they name."""

    def __init__(self, model, name_of, audit):
        super().__init__()
        self.parameters = [(name_of(n), p) for n, p in model.named_parameters()]
        self.buffers = [(name_of(n), b) for n, b in model.named_buffers()]
        self.memory, self.operations = Memory(), []
        self.places = Places(model, name_of, self.memory)
        self.audit = Audit() if audit else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # DTensor and the like: what they do to their local tensors comes next
        name = str(func).removesuffix(".default")
        if _SKIPPED.match(name):
            return func(*args, **kwargs)
        if name.startswith("_c10d_functional."):
            return self._record_functional(func, name, args)
        return self._record(func, name, args, kwargs)

    def _record(self, func, name, args, kwargs):
        module, phase = self.places.now()
        written = _written(func, args, kwargs)
        operation = {"op": name, "args": self._encode(args)}
        keywords = {k: self._encode(v) for k, v in kwargs.items() if k not in _NOT_RECORDED}
        if self.audit:
            self.audit.before(self.operations, name + _at(module), [args, kwargs])
        result = _call(func, name, args, kwargs, module)
        if self.audit:
            collective = name.startswith("c10d.")  # its outputs come later
            self.audit.after(self.operations, [written, args if collective else result], known=not collective)
        if name == "aten._local_scalar_dense":
            keywords["value"] = _number(result)
        self._append(operation, module, phase, _tensors(result), kwargs=keywords, writes=self._numbers(written))
        return result

    def _record_functional(self, func, name, args):
        module, phase = self.places.now()
        kind = name.split(".")[1]
        if kind not in _FUNCTIONAL:
            raise TraceError(f"{name}{_at(module)} is not recorded; of functional collectives {', '.join(_FUNCTIONAL)} are")
        source = self._encode(args[0])
        result = _call(func, name, args, {}, module)
        target = {"t": self.memory.number(result)}
        new = {"op": "aten.clone", "args": [source]} if kind == "all_reduce" else \
            {"op": "aten.empty.memory_format", "args": [list(result.shape)]}
        group = {"group": _ranks(dist.distributed_c10d._resolve_process_group(args[-1]))}
        tensors = [[target]] if kind == "all_reduce" else [target, source]
        reduction = [{"reduce": args[1].upper()}] if isinstance(args[1], str) else []
        self._append(new, module, phase, [result])
        self._append({"op": _FUNCTIONAL[kind], "args": [*tensors, group, *reduction]}, module, phase, [result])
        return result

    def _append(self, operation, module, phase, results, **optional):
        operation |= {"out": self._numbers(results), "phase": phase, **optional, "module": module}
        self.operations.append({k: v for k, v in operation.items() if v or k not in ("kwargs", "writes", "module")})

    def _encode(self, value):
        if isinstance(value, torch.Tensor):
            return {"t": self.memory.number(value, used=True)}
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        return _script_object(value) if isinstance(value, torch.ScriptObject) else _number(value)

    def _numbers(self, tensors):
        return [self.memory.number(t) for t in tensors]

    def name_tensors(self, inputs):
        """Names what is there before the step."""
        for kind, tensors in ("param", self.parameters), ("buffer", self.buffers), ("input", inputs.items()):
            for name, tensor in tensors:
                self.memory.name(tensor, kind, name)
        for name, gradient in self._gradients():
            if any(_bytes(_local(gradient)) or b""):
                raise TraceError(f"the gradient of {name} is not zero on entering: zero_grad() first")
            self.memory.number(gradient)
        if self.audit:
            self.audit.after(self.operations, [t for _, t in self.parameters + self.buffers + self._gradients()])

    def finish(self):
        """Names the gradients that are there after the step; looks once more for hidden writes."""
        if not self.operations:
            raise TraceError("no operation was recorded: run the step inside `with sumonce_trace.trace(model)`")
        for name, gradient in self._gradients():
            self.memory.name(gradient, "grad", name)
        if self.audit:
            self.audit.before(self.operations, "the end", [t for _, t in self.parameters + self._gradients()])
            self.audit.report()

    def _gradients(self):
        """(name, tensor) of each: `main_grad`, as Megatron has it, before `grad`."""
        pairs = [(n, p.grad if getattr(p, "main_grad", None) is None else p.main_grad) for n, p in self.parameters]
        return [(name, gradient) for name, gradient in pairs if gradient is not None]


def _call(func, name, args, kwargs, module):
    try:
        if name in _ONE_BY_ONE and any(isinstance(t, FakeTensor) for t in _tensors(args)):
            lists = [a for a in args if isinstance(a, (list, tuple))]
            rest = args[len(lists):]  # the group, the reduction
            return [_ONE_BY_ONE[name](pieces, rest) for pieces in zip(*lists)][-1][-1]
        result = func(*args, **kwargs)
        if name == "c10d._reduce_scatter_base_" and dist.get_backend() == "gloo" and not isinstance(args[0], FakeTensor):
            dist.Work.unbox(result[1]).wait()  # gloo makes it of pieces, at every wait: they are no operations of the job
            return result[0], _Done().boxed()
        return result
    except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException) as error:
        raise TraceError(f"{name}{_at(module)} needs a number, and fake tensors hold none; use --real") from error
    except fake_tensor.UnsupportedOperatorException as error:
        raise TraceError(f"{name}{_at(module)} cannot run on fake tensors; use --real") from error


class _Done(dist.Work):
    def wait(self, timeout=None):
        return True


# Collectives of many tensors, which FakeTensorMode does not support; of one each it does. The Work of the last is returned.
_ONE_BY_ONE = {
    "c10d.allreduce_coalesced_": lambda t, rest: torch.ops.c10d.allreduce_(list(t), *rest[:2], None),
    "c10d.allgather_into_tensor_coalesced_": lambda t, rest: torch.ops.c10d._allgather_base_(*t, rest[0]),
    "c10d.reduce_scatter_tensor_coalesced_": lambda t, rest: torch.ops.c10d._reduce_scatter_base_(*t, *rest[:2])}


def _tensors(tree):
    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _written(func, args, kwargs):
    arguments = func._schema.arguments if hasattr(func, "_schema") else []
    given = list(zip(arguments, args)) + [(a, kwargs[a.name]) for a in arguments if a.name in kwargs]
    return _tensors([value for a, value in given if a.alias_info and a.alias_info.is_write])


def _number(value):
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value if value is None or isinstance(value, (bool, int, float)) else {"s": str(value)}


def _script_object(value):
    with contextlib.suppress(Exception):
        return {"group": _ranks(dist.ProcessGroup.unbox(value))}
    with contextlib.suppress(Exception):
        return {"reduce": str(dist.ReduceOp.unbox(value).op).split(".")[-1]}
    return {"s": str(value).split(" object")[0]}


def _ranks(group):
    return list(dist.get_process_group_ranks(group))


def _at(module):
    return f" [{module}]" if module else ""


def _local(tensor):
    """The memory behind a DTensor or an AsyncCollectiveTensor."""
    return getattr(tensor, "_local_tensor", getattr(tensor, "elem", tensor))


class Memory:
    """Tensors by memory. Storages are numbered as they appear and held weakly: freed, their addresses not used again."""

    def __init__(self):
        self.records, self._number_of, self._storages, self._held = [], {}, {}, []

    def number(self, tensor, used=False):
        """Of the tensor's memory. What is `used` before a recorded operation made it comes from outside."""
        tensor = _local(tensor)
        storage, new = self._storage(tensor)
        strided = storage >= 0
        geometry = (storage, tensor.storage_offset() if strided else 0, tuple(tensor.shape),
                    tensor.stride() if strided else (0,) * tensor.dim(), str(tensor.dtype).removeprefix("torch."))
        if geometry not in self._number_of:
            self._number_of[geometry] = len(self.records)
            keys = ("tensor", "storage", "offset", "shape", "strides", "dtype")
            self.records.append(dict(zip(keys, (len(self.records), *geometry))))
            if used and new:
                self.records[-1]["digest"] = _digest(tensor)
        return self._number_of[geometry]

    def knows(self, tensor):
        return _local(tensor).untyped_storage()._cdata in self._storages

    def name(self, tensor, kind, name):
        record = self.records[self.number(tensor)]
        record.pop("digest", None)
        record |= {"kind": kind, "name": name}

    def _storage(self, tensor):
        if tensor.layout != torch.strided:
            return -1, False
        storage = tensor.untyped_storage()
        if new := storage._cdata not in self._storages:
            self._storages[storage._cdata] = len(self._storages)
            self._held.append(StorageWeakRef(storage))
        return self._storages[storage._cdata], new


def _bytes(tensor):
    """The content of the tensor's storage; None of a fake one."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.layout != torch.strided:
        return None
    with _disable_current_modes():
        storage = tensor.untyped_storage().cpu()
        return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def _digest(tensor):
    """Of the elements in their order: 12 hexadecimal digits; None of a fake tensor."""
    with _disable_current_modes():
        content = _bytes(tensor.detach().clone(memory_format=torch.contiguous_format))
    return content and hashlib.sha1(content).hexdigest()[:12]


class Places:
    """Module and phase of what runs now. A backward operation belongs to the module whose forward pass made its autograd
    node, found by the node's sequence number. The finalizer is what follows the last backward pass."""

    def __init__(self, model, name_of, memory):
        self._model, self._memory = model, memory
        self._names = {id(m): name_of(n) for n, m in model.named_modules()}
        self._stack, self._module_of, self._counted = [""], {}, 0
        self._inside, self._behind = 0, False  # a backward pass

    def now(self):
        """(path of the module or "", "forward", "backward" or "finalize")"""
        node = torch._C._current_autograd_node()
        if node is not None:
            self._behind = True
            return self._module_of.get(node._sequence_nr(), ""), "backward"
        self._attribute()
        return self._stack[-1], "backward" if self._inside else "finalize" if self._behind else "forward"

    def _attribute(self):
        """The nodes made since the last look belong to the module that is running."""
        end = torch.autograd._get_sequence_nr()
        self._module_of.update(dict.fromkeys(range(self._counted, end), self._stack[-1]))
        self._counted = end

    @contextlib.contextmanager
    def followed(self):
        self._counted = torch.autograd._get_sequence_nr()
        run_backward = torch.autograd.backward

        def backward(*args, **kwargs):
            self._inside, self._behind = self._inside + 1, True
            try:
                return run_backward(*args, **kwargs)
            finally:
                self._inside -= 1
        hooks = [torch.nn.modules.module.register_module_forward_pre_hook(self._enter),
                 torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
                 self._model.register_forward_pre_hook(self._name_inputs, with_kwargs=True)]
        torch.autograd.backward = backward
        try:
            yield
        finally:
            torch.autograd.backward = run_backward
            for hook in hooks:
                hook.remove()

    def _enter(self, module, args):
        self._attribute()
        if module is self._model and not self._inside:
            self._behind = False  # another microbatch
        self._stack.append(self._names.get(id(module), self._stack[-1]))

    def _leave(self, module, args, output):
        self._attribute()
        self._stack.pop()

    def _name_inputs(self, module, args, kwargs):
        for name, tensor in ({f"input{i}": a for i, a in enumerate(args)} | kwargs).items():
            if isinstance(tensor, torch.Tensor) and not self._memory.knows(tensor):
                self._memory.name(tensor, "input", name)


class Audit:
    """Finds memory that changed between recorded operations."""

    def __init__(self):
        self._hashes, self.findings = {}, []  # storage -> its hash, and the operation that left it so

    def before(self, operations, name, tree):
        for storage, content in self._contents(tree):
            known, since = self._hashes.get(storage, (None, ""))
            if known not in (None, content):
                self.findings.append(f"between {since} and @{len(operations)} {name}")
            self._hashes[storage] = content, f"@{len(operations)} {name}"

    def after(self, operations, tree, known=True):
        last = f"@{len(operations)}"
        self._hashes.update({storage: (content if known else None, last) for storage, content in self._contents(tree)})

    def _contents(self, tree):
        tensors = [_local(t) for t in _tensors(tree)]
        if any(isinstance(t, FakeTensor) for t in tensors):
            raise TraceError("the audit hashes memory, and fake tensors have none; use --real")
        return [(t.untyped_storage()._cdata, hashlib.blake2b(_bytes(t) or b"").digest()) for t in tensors]

    def report(self):
        if self.findings:
            raise TraceError("memory changed outside the dispatcher, so a trace would not hold what the step did; turn that "
                             "fused kernel off:\n  " + "\n  ".join(self.findings[:20]))


def _write(recorder, target):
    """JSON lines, gzipped; there only when complete."""
    packages = {"torch": "torch", "megatron": "megatron-core", "mcore_bridge": "mcore-bridge", "peft": "peft"}
    versions = {}
    for module in packages.keys() & sys.modules.keys():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[packages[module]] = importlib.metadata.version(packages[module])
    header = {"format": "sumonce-trace", "version": 1, "axis": "tp", "size": target.size, "rank": target.rank,
              "group": target.group, "versions": dict(sorted(versions.items())),
              "params": {name: {"shape": list(_local(p).shape), "grad": p.requires_grad, "marks": _marks(p)}
                         for name, p in recorder.parameters}}
    part = target.path.with_suffix(".part")
    with open(part, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        for record in [header, *recorder.memory.records, *recorder.operations]:
            packed.write(json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n")
    os.replace(part, target.path)


def _marks(parameter):
    """The plain attributes that frameworks write on a parameter, as they stand after the step; DTensor's placements."""
    marks = {k: v for k, v in vars(parameter).items() if isinstance(v, (bool, int, str)) and not k.startswith("_")}
    return marks | ({"placements": str(parameter.placements)} if hasattr(parameter, "placements") else {})


# ---- the traces of a proof, one after the other in one process --------------------------------------------------------------


def main(argv=None):
    """Exit code 0: all traces are written. 1: the step failed, or hides writes. 4: wrong usage."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compiled regions run eagerly
    try:
        step = _load(options.job)
        made = _prepare(options)
    except TraceError as error:
        print(f"sumonce_trace: error: {error}", file=sys.stderr)
        return 4
    n = options.tp[0]
    for size, rank in [(n, r) for r in range(n)] + [(2 * n, 0), (1, 0)]:
        # A process of its own for what frameworks keep in globals; all that the job imported is there already.
        child = os.fork()
        if child == 0:
            os._exit(_make(step, options, size, rank, made))
        if os.waitpid(child, 0)[1] != 0:
            return 1
    for path in made.iterdir():
        os.replace(path, options.out / path.name)
    made.rmdir()
    print(f"sumonce prove --trace {options.out}")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(4, f"sumonce_trace: error: {message}\n")


def _parse(argv):
    parser = _Parser(prog="python -m sumonce_trace", formatter_class=argparse.RawDescriptionHelpFormatter, description=(
        "python -m sumonce_trace job.py:step --tp 2,4\n"
        "python -m sumonce_trace job.py:step --tp 2,4 --real --audit --out traces\n\n"
        "Makes the traces that `sumonce prove --trace` needs: each rank of the first size, rank 0 of the second, and the\n"
        "unsharded one. step(tp_size) builds the model and runs one step inside `with sumonce_trace.trace(model):`. A process\n"
        "group of tp_size ranks is there, whose collectives do nothing; tensors are fake, with shapes and no content."))
    parser.add_argument("job", metavar="JOB.py:STEP", help="a file, or a module, and a function in it")
    parser.add_argument("--tp", required=True, help="n,2n: the two sizes, such as 2,4. At 2n a shard has 2 or more of each extent")
    parser.add_argument("--out", type=Path, default=Path("traces"), help="folder, default %(default)s")
    parser.add_argument("--force", action="store_true", help="replace the traces that are there")
    parser.add_argument("--real", action="store_true", help="real tensors, for a step that reads numbers; gives digests")
    parser.add_argument("--audit", action="store_true", help="find kernels outside the dispatcher; with --real, 3 x slower")
    options = parser.parse_args(argv)
    sizes = re.fullmatch(r"(\d+),(\d+)", options.tp)
    if not sizes or int(sizes[1]) < 2 or int(sizes[2]) != 2 * int(sizes[1]):
        parser.error(f"--tp {options.tp}: expected n,2n with n of 2 or more, such as 2,4; one size proves nothing")
    if options.audit and not options.real:
        parser.error("--audit hashes memory, and fake tensors have none; add --real")
    options.tp = int(sizes[1]), int(sizes[2])
    return options


def _load(job):
    """The function that JOB.py:STEP names."""
    place, colon, name = job.rpartition(":")
    if not colon or not name or not place:
        raise TraceError(f"'{job}': expected JOB.py:STEP, a file and a function in it")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise TraceError(f"{place}: no such file")
        sys.path.insert(0, str(Path(place).resolve().parent))
        place = Path(place).stem
    module = importlib.import_module(place)
    step = getattr(module, name, None)
    if not inspect.isfunction(step):
        functions = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        near = difflib.get_close_matches(name, functions, 1) or functions[:1]
        raise TraceError(f"{job}: no function '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    try:
        inspect.signature(step).bind(2)
    except TypeError as error:
        raise TraceError(f"{job}: {error}; expected {name}(tp_size)") from error
    return step


def _prepare(options):
    """An empty folder for the traces until all are there."""
    old = [p for p in options.out.glob("tp*.rank*.jsonl*")]
    if options.out.exists() and not options.force and any(options.out.iterdir()):
        raise TraceError(f"{options.out} exists and is not empty; name another with --out, or pass --force")
    made = options.out / "unfinished"
    made.mkdir(parents=True, exist_ok=True)
    for path in [*old, *made.iterdir()]:
        path.unlink()
    return made


def _make(step, options, size, rank, folder):
    """One trace, in the forked process. The exit code."""
    path = folder / f"tp{size}.rank{rank}.jsonl.gz"
    _request[:] = [SimpleNamespace(path=path, size=size, rank=rank, group=list(range(size)), audit=options.audit)]
    place = f"{options.job} at tp {size}, rank {rank}"
    start = time.monotonic()
    try:
        with _world(size, rank), contextlib.nullcontext() if options.real else _fake_tensors():
            step(size)
        if not path.exists():
            raise TraceError("the step returned without `with sumonce_trace.trace(model)`")
    except TraceError as error:
        print(f"sumonce_trace: error: {place}: {_line_of(error, step)}{error}", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        print(f"sumonce_trace: error: {place} failed" + ("" if options.real else "; try --real"), file=sys.stderr)
        return 1
    with gzip.open(path, "rt") as lines:
        count = sum(line.startswith('{"op"') for line in lines)
    print(f"{path.name}: {count} operations, {time.monotonic() - start:.1f} s", file=sys.stderr)
    return 0


def _line_of(error, step):
    """Where in the user's own code, if it was there."""
    ours = (__file__, contextlib.__file__)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in ours and "/torch/" not in f.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


@contextlib.contextmanager
def _world(size, rank):
    """A process group whose collectives do nothing, for a job that may ask for one itself."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost"}
    torch.manual_seed(1)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    dist.init_process_group = lambda *args, **kwargs: None
    yield


@contextlib.contextmanager
def _fake_tensors():
    """Module.to() and its like swap parameters, which fake ones do not allow: here they replace the content, as of real ones.
    Attributes on parameters, marks among them, stay."""
    def apply(module, change, recurse=True):
        for child in module.children() if recurse else ():
            apply(child, change)
        for parameter in filter(lambda p: p is not None, module._parameters.values()):
            with torch.no_grad():
                parameter.data = change(parameter.data)
        module._buffers.update({name: b if b is None else change(b) for name, b in module._buffers.items()})
        return module
    torch.nn.Module._apply = apply
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        yield


if __name__ == "__main__":
    sys.exit(importlib.import_module("sumonce_trace").main())  # the instance that the job imports
