"""Records one training step as a straight-line program, for `sumonce prove --trace` (docs/TRACING.md).

Every aten and c10d operation of the forward pass, the backward pass and the finalizer is recorded below autograd. A value
is named by its memory (storage, offset, shape, strides; in elements), so views, saved activations and gradients in flat
buffers need no bookkeeping. Needs nothing but PyTorch. The format is that of docs/TRACE.md. In a job:

    with sumonce_trace.trace(model, "traces", group=tp_group):   # each rank writes traces/tp<size>.rank<rank>.jsonl.gz
        forward_backward_and_finalize()

In one process, without GPUs, peers or memory, the four traces of a proof: python -m sumonce_trace --help
One trace at a time, from one thread. The same job gives the same bytes."""
import argparse, contextlib, ctypes, difflib, gzip, hashlib, importlib.util, inspect, json, math, os, re, sys, time, traceback
from pathlib import Path
from types import SimpleNamespace

import torch._dynamo  # which torch loads at a mode's first dispatch: rather here than inside a trace
import torch.distributed as dist
from torch._subclasses import FakeTensor, fake_tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves


class TraceError(RuntimeError):
    """What the user can mend: the message says what is wrong, where, and the cure."""


def checkpoint_name(name):
    """Without wrappers' prefixes and PEFT's base_layer: 'module.decoder.fc1.base_layer.weight' -> 'decoder.fc1.weight'."""
    name = re.sub(r"^((module|base_model\.model|_orig_mod|_fsdp_wrapped_module)(\.|$))*", "", name)
    return re.sub(r"\.base_layer(?=\.|$)", "", name)


@contextlib.contextmanager
def trace(model, out=None, *, group=None, inputs=None, name_of=checkpoint_name, audit=False, force=False):
    """Records what runs inside on this rank, and writes it on leaving. All ranks of `group` call it.

    model: the outermost module. A parameter's gradient is its `main_grad` or `grad`; on entering, zero or not there.
    out: folder, in which a trace is written over only by `force`; `python -m sumonce_trace` gives it, and what follows.
    group: the tensor-parallel process group, default the world; every other axis is of size 1.
    inputs: name -> tensor that every rank is given alike (labels, a loss mask). What the model is called with is found
      without it. Any other tensor from outside is recorded with a digest of its storage, unless it is a fake one.
    audit: refuses a step in which memory changes between recorded operations. Real tensors only, 3 x slower.
    Yields the Recorder. Raises TraceError before the step (a trace is there, several axes, gradients that are not zero),
    in it (an operation that fake tensors cannot do), or after it (hidden writes; nothing recorded)."""
    target = _target(out, group, audit, force)
    recorder = Recorder(model, name_of, target.audit)
    recorder.name_tensors(inputs or {})
    with recorder.places.followed(), recorder:
        yield recorder
    recorder.finish()
    _write(recorder, target)


_ranks = dist.get_process_group_ranks
_requests = []  # of the command line: where the job's one trace goes, and whose it is


def _target(out, group, audit, force):
    if _requests:
        target, _requests[0] = _requests[0], None
        if target is None:
            raise TraceError("the job traces twice; a trace is one step of one model")
        return target
    if out is None:
        raise TraceError("where to? sumonce_trace.trace(model, 'traces'), or run the job by python -m sumonce_trace")
    rank, ranks = (dist.get_rank(), _ranks(group or dist.group.WORLD)) if dist.is_initialized() else (0, [0])
    if dist.is_initialized() and len(ranks) != dist.get_world_size():
        raise TraceError(f"the group has {len(ranks)} of {dist.get_world_size()} ranks; give the other axes size 1")
    path = Path(out) / f"tp{len(ranks)}.rank{rank}.jsonl.gz"
    if path.exists() and not force:
        raise TraceError(f"{path} exists; remove it, or pass force=True")
    path.parent.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(path=path, size=len(ranks), rank=rank, group=ranks, audit=audit)


# They compute nothing: metadata, profiling, another Python object of the same memory.
_SKIPPED = re.compile(r"(prim|profiler)\.|aten\.(detach|alias|lift|is_pinned|is_same_size|record_stream|sym_\w+)(\.|$)"
                      r"|_c10d_functional\.(wait_tensor|_wrap_tensor_autograd)")
# DTensor's collectives into new memory -> the c10d operations that they stand for.
_FUNCTIONAL = dict(zip(("_c10d_functional." + name for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")),
                       ("c10d.allreduce_", "c10d._allgather_base_", "c10d._reduce_scatter_base_")))


class Recorder(TorchDispatchMode):
    """The operations of one step in the order in which they ran, and the tensors that they name."""

    def __init__(self, model, name_of, audit):
        super().__init__()
        self.parameters, self.buffers = ([(name_of(n), t) for n, t in named] for named in (
            model.named_parameters(), model.named_buffers()))
        self.memory, self.operations, self.before = Memory(), [], {}
        self.places = Places(model, name_of, self.memory)
        self.audit = Audit() if audit else None
        self.fake_mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        if audit and self.fake_mode:
            raise TraceError("the audit hashes memory, and fake tensors have none")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = str(func).removesuffix(".default"), kwargs or {}
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # DTensor and the like: what they do to their local tensors comes next
        if self._is_rehearsal([args, kwargs]):
            return func(*args, **kwargs)
        if _SKIPPED.match(name):
            result = func(*args, **kwargs)
            self.memory.number_all(result)  # what it made is not from outside
            return result
        return (self._record_functional if name in _FUNCTIONAL else self._record)(func, name, args, kwargs, *self.places.now())

    def _is_rehearsal(self, tree):
        """DTensor asks for the shape of a result by running the operation on fake tensors of its own."""
        return any(t.fake_mode is not self.fake_mode if isinstance(t, FakeTensor) else t.is_meta for t in _tensors(tree))

    def _record(self, func, name, args, kwargs, module, phase):
        written = _written(func, args, kwargs)
        operation = {"op": name, "args": self._encode(args)}
        keywords = {k: self._encode(v) for k, v in kwargs.items() if k not in ("device", "layout", "pin_memory", "memory_format")}
        at = f"@{len(self.operations)} {name} [{module}]"
        if self.audit:
            self.audit.look(at, [args, kwargs], compare=True)
        result = _call(func, name, args, kwargs, module)
        if self._is_rehearsal(result):
            return result
        if self.audit:
            collective = name.startswith("c10d.")  # its outputs come later
            self.audit.look(at, [written, args if collective else result], known=not collective)
        if name == "aten._local_scalar_dense":
            keywords["value"] = self._encode(result)
        self._append(operation, module, phase, result, kwargs=keywords, writes=written)
        return result

    def _record_functional(self, func, name, args, kwargs, module, phase):
        source = self._encode(args[0])
        result = _call(func, name, args, kwargs, module)
        target, group = {"t": self.memory.number(result)}, dist.distributed_c10d._resolve_process_group(args[-1])
        new, tensors = ("aten.clone", [source]), [[target]]
        if not name.endswith("all_reduce"):
            new, tensors = ("aten.empty.memory_format", [list(result.shape)]), [target, source]
        reduction = [{"reduce": args[1].upper()}] if isinstance(args[1], str) else []
        call = _FUNCTIONAL[name], [*tensors, {"group": _ranks(group)}, *reduction]
        for operation, arguments in (new, call):
            self._append({"op": operation, "args": arguments}, module, phase, [result])
        return result

    def _append(self, operation, module, phase, results, writes=(), kwargs=None):
        out, written = self.memory.number_all(results), self.memory.number_all(writes)
        operation |= {"out": out, "phase": phase, "kwargs": kwargs, "writes": written, "module": module}
        self.operations.append({k: v for k, v in operation.items() if v or k not in ("kwargs", "writes", "module")})
        if phase != "finalize" or not self.before:  # the gradients as the finalizer finds them
            self.before = {n: self.memory.number(g) for n, g in self._gradients()} if phase == "finalize" else {}

    def _encode(self, value):
        if isinstance(value, torch.Tensor):
            return {"t": self.memory.number(value, used=True)}
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        return value if value is None or isinstance(value, (bool, int, float)) else _object(value)

    def name_tensors(self, inputs):
        """Names what is there before the step."""
        for kind, tensors in ("param", self.parameters), ("buffer", self.buffers), ("input", inputs.items()):
            for name, tensor in tensors:
                self.memory.name(tensor, kind, name)
        for name, gradient in self._gradients():
            if not isinstance(_local(gradient), FakeTensor) and _local(gradient).count_nonzero():
                raise TraceError(f"the gradient of {name} is not zero on entering: zero_grad() first")
            self.memory.number(gradient)
        if self.audit:
            self.audit.look("the beginning", [t for _, t in self.parameters + self.buffers + self._gradients()])

    def finish(self):
        """Names the gradients that are there after the step; looks once more for hidden writes."""
        if not self.operations:
            raise TraceError("no operation was recorded: run the step inside `with sumonce_trace.trace(model)`")
        for name, gradient in self._gradients():
            self.memory.name(gradient, "grad", name)
            before = self.memory.records[self.before.get(name, self.memory.number(gradient))]
            before |= {} if "kind" in before else {"kind": "grad_before", "name": name}
        if self.audit:
            self.audit.look("the end", [t for _, t in self.parameters + self._gradients()], compare=True)
            if self.audit.findings:
                raise TraceError("memory changed outside the dispatcher, so a trace would not hold what the step did; turn "
                                 "that fused kernel off:\n  " + "\n  ".join(self.audit.findings[:20]))

    def _gradients(self):
        """(name, tensor) of each: `main_grad`, as Megatron has it, before `grad`."""
        pairs = ((n, p.grad if getattr(p, "main_grad", None) is None else p.main_grad) for n, p in self.parameters)
        return [pair for pair in pairs if pair[1] is not None]


_NEEDS_NUMBERS = tuple(getattr(fake_tensor, f"{name}Exception") for name in (
    "DataDependentOutput", "DynamicOutputShape", "UnsupportedOperator"))
_DONE = type("_Done", (dist.Work,), {"wait": lambda self, timeout=None: True})()  # lives on: C++ holds it weakly


def _call(func, name, args, kwargs, module):
    fake = any(isinstance(t, FakeTensor) for t in _tensors(args))
    try:
        if name == "c10d.allreduce_coalesced_" and fake:  # FakeTensorMode knows it of one tensor at a time
            return [torch.ops.c10d.allreduce_([t], *args[1:3], None)[1] for t in args[0]][-1]
        result = func(*args, **kwargs)
        if name == "c10d._reduce_scatter_base_" and not fake and dist.get_backend() == "gloo":
            dist.Work.unbox(result[1]).wait()  # gloo makes it of pieces, at every wait: they are no operations of the job
            return result[0], _DONE.boxed()
        return result
    except _NEEDS_NUMBERS as error:
        raise TraceError(f"{name} [{module}] cannot run on fake tensors, which hold no numbers; use --real") from error


def _tensors(tree):
    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _written(func, args, kwargs):
    arguments = func._schema.arguments if hasattr(func, "_schema") else []
    given = list(zip(arguments, args)) + [(a, kwargs[a.name]) for a in arguments if a.name in kwargs]
    return _tensors([value for a, value in given if a.alias_info and a.alias_info.is_write])


def _object(value):
    with contextlib.suppress(Exception):
        return {"group": _ranks(dist.ProcessGroup.unbox(value))}
    with contextlib.suppress(Exception):
        return {"reduce": str(dist.ReduceOp.unbox(value).op).split(".")[-1]}
    return {"s": str(value).split(" object")[0]}


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
            names = ("tensor", "storage", "offset", "shape", "strides", "dtype")
            self.records.append(dict(zip(names, (len(self.records), *geometry))))
            if used and new:
                content = _bytes(tensor)
                self.records[-1]["digest"] = content and hashlib.sha1(content).hexdigest()[:12]
        return self._number_of[geometry]

    def number_all(self, tree):
        return [self.number(t) for t in _tensors(tree)]

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


class Places:
    """Module and phase of what runs now. A backward operation is of the module whose forward pass made its autograd node, by
    the node's sequence number. The finalizer is what follows the last backward pass."""

    def __init__(self, model, name_of, memory):
        self._model, self._memory = model, memory
        self._names = {id(m): name_of(n) for n, m in model.named_modules()}
        self._stack, self._module_of, self._counted, self._inside, self._behind = [""], {}, 0, 0, False  # a backward pass

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
    """Finds kernels outside the dispatcher: hashes each storage after a recorded write and before the next recorded use."""

    def __init__(self):
        self._left, self.findings = {}, []  # storage -> its hash, and the operation that left it so

    def look(self, at, tree, compare=False, known=True):
        for tensor in map(_local, _tensors(tree)):
            storage, content = tensor.untyped_storage()._cdata, hashlib.blake2b(_bytes(tensor) or b"").digest()
            left, since = self._left.get(storage, (None, ""))
            if compare and left not in (None, content):
                self.findings.append(f"between {since} and {at}")
            self._left[storage] = content if known else None, at


def records(recorder, target):
    """The lines of a trace file. target: size, rank and group (world ranks) of the axis."""
    versions = {p: sys.modules[p].__version__ for p in ("torch", "megatron.core", "mcore_bridge", "peft")
                if hasattr(sys.modules.get(p), "__version__")}
    params = {name: {"shape": list(_local(p).shape), "grad": p.requires_grad, "marks": _marks(p)}
              for name, p in recorder.parameters}
    header = {"format": "sumonce-trace", "version": 1, "axis": "tp", "size": target.size, "rank": target.rank,
              "group": target.group, "operations": len(recorder.operations), "versions": versions, "params": params}
    return [header, *recorder.memory.records, *recorder.operations]


def _write(recorder, target):
    part = target.path.with_suffix(".part")  # the file is there only when complete
    with open(part, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        for record in records(recorder, target):
            packed.write(json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n")
    os.replace(part, target.path)
    target.operations = len(recorder.operations)


def _marks(parameter):
    """The plain attributes of a parameter, as they stand after the step; a DTensor's placements and its gradient's."""
    marks = {k: v for k, v in vars(parameter).items() if isinstance(v, (bool, int, str)) and not k.startswith("_")}
    placed = {"placements": parameter, "grad_placements": parameter.grad}
    return marks | {k: str(t.placements) for k, t in placed.items() if hasattr(t, "placements")}


def main(argv=None):
    """The traces of a proof, one after the other. Exit code 0: made. 1: the step failed, or hides writes. 4: wrong usage."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    from torch.testing._internal.distributed.fake_pg import FakeStore  # once, before the forks
    torch._dynamo.config.disable = True  # compiled regions run eagerly
    try:
        step = _load(options.job)
        options.out.mkdir(parents=True, exist_ok=True)
        if any(options.out.iterdir()) and not options.force:
            raise TraceError(f"{options.out} exists and is not empty; name another with --out, or pass --force")
        for old in options.out.glob("tp*.rank*.jsonl*"):
            old.unlink()
    except (TraceError, OSError) as error:
        print(f"sumonce_trace: error: {error}", file=sys.stderr)
        return 4
    for size, rank in [*((options.tp[0], r) for r in range(options.tp[0])), (options.tp[1], 0), (1, 0)]:
        path, group = options.out / f"tp{size}.rank{rank}.jsonl.gz", list(range(size))
        target = SimpleNamespace(path=path, size=size, rank=rank, group=group, audit=options.audit, operations=0)
        sys.stdout.flush()
        child = os.fork()  # with it ends what frameworks keep in globals; all that the job imports is there
        if child == 0:
            code = _make(step, options, target, FakeStore())
            sys.stdout.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code or not path.exists():
            if code != 1:  # _make would have said why
                print(f"sumonce_trace: error: {options.job} at tp {size}, rank {rank} ended its process ({code})", file=sys.stderr)
            return 1
    print(f"sumonce prove --trace {options.out}")
    return 0


def _parse(argv):
    parser = argparse.ArgumentParser(formatter_class=argparse.RawTextHelpFormatter, usage=(
        "python -m sumonce_trace job.py:step --tp 2,4 [--real [--audit]] [--out traces] [--force]"), description=(
        "Traces step(tp_size) on each rank of size n, rank 0 of 2n and unsharded; collectives do nothing, tensors are fake."))
    parser.error = lambda message: parser.exit(4, f"sumonce_trace: error: {message}\n")
    parser.add_argument("job", metavar="JOB.py:STEP", help="a file and a function in it")
    parser.add_argument("--tp", required=True, help="n,2n, such as 2,4; at 2n every extent of a shard is 2 or more")
    parser.add_argument("--out", type=Path, default=Path("traces"), help="folder, default %(default)s")
    parser.add_argument("--force", action="store_true", help="replace the traces that are there")
    parser.add_argument("--real", action="store_true", help="real tensors, for a step that reads numbers; gives digests")
    parser.add_argument("--audit", action="store_true", help="find kernels outside the dispatcher; with --real, 3 x slower")
    options = parser.parse_args(argv)
    sizes = [int(size) if size.isdecimal() else 0 for size in options.tp.split(",")]
    if sizes[0] < 2 or sizes[1:] != [2 * sizes[0]]:
        parser.error(f"--tp {options.tp}: expected n,2n with n of 2 or more, such as 2,4; one size proves nothing")
    if options.audit and not options.real:
        parser.error("--audit hashes memory, and fake tensors have none; add --real")
    options.tp = sizes
    return options


def _load(job):
    place, _, name = job.rpartition(":")
    if not Path(place).is_file():
        raise TraceError(f"'{job}': expected JOB.py:STEP, a file that is there and a function in it")
    sys.path.insert(0, str(Path(place).resolve().parent))
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    if not inspect.isfunction(step := vars(module).get(name)):
        near = difflib.get_close_matches(name, [n for n, f in vars(module).items() if inspect.isfunction(f)], 1)
        raise TraceError(f"{job}: no function '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    return step


def _make(step, options, target, store):
    """One trace, in the forked process, of a group whose collectives do nothing. The exit code."""
    size, rank, start, _requests[:] = target.size, target.rank, time.monotonic(), [target]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost"}
    try:
        torch.manual_seed(1)
        dist.init_process_group("fake", store=store, rank=rank, world_size=size)
        dist.init_process_group = lambda *args, **kwargs: None  # should the job ask for one itself
        with contextlib.nullcontext() if options.real else _fake_tensors():
            step(size)
        if not target.operations:
            raise TraceError("the step returned without `with sumonce_trace.trace(model)`")
    except BaseException as error:
        if not (told := isinstance(error, TraceError)):
            traceback.print_exc()
        at = [f"{f.filename}:{f.lineno}: " for f in traceback.extract_tb(error.__traceback__)
              if f.filename not in (__file__, contextlib.__file__) and "/torch/" not in f.filename]
        what, cure = "" if told else f"{type(error).__name__}: ", "; try --real" if isinstance(error, Exception) and not options.real and not told else ""
        print(f"sumonce_trace: error: {options.job} at tp {size}, rank {rank}: {''.join(at[-1:])}{what}{error}{cure}", file=sys.stderr)
        return 1
    print(f"{target.path.name}: {target.operations} operations, {time.monotonic() - start:.1f} s", file=sys.stderr)
    return 0


def _fake_tensors():
    """Module.to() and its like swap parameters, which fake ones do not allow; here the marked parameter gets new content."""
    def apply(module, change, recurse=True):
        for child in module.children() if recurse else ():
            apply(child, change)
        for parameter in filter(lambda p: p is not None, module._parameters.values()):
            with torch.no_grad():
                parameter.data = change(parameter.data)
        module._buffers.update({name: b if b is None else change(b) for name, b in module._buffers.items()})
        return module
    torch.nn.Module._apply = apply
    return fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)


if __name__ == "__main__":
    sys.exit(importlib.import_module("sumonce_trace").main())  # the instance that the job imports
