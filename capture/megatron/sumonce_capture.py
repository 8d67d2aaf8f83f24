"""Captures training steps of a Megatron-Core job, for `sumonce lint` and `sumonce audit` (docs/CAPTURING.md).

    import sumonce_capture
    sumonce_capture.watch("captures", steps=[1, 2])    # on every rank, before training starts

Around the job's own finalize_model_grads each rank takes every parameter's main_grad before and after, its weight and marks,
and the module classes, mesh, groups and config, and writes captures/step-0001/rank-00000.safetensors and so on
(docs/capture-format.md). Nothing of the training changes, its random numbers included. Needs PyTorch, safetensors and
Megatron-Core (tried with 0.12 to 0.19), and works through whatever calls the finalizer: mcore-bridge, ms-swift, NeMo."""
import atexit, contextlib, fnmatch, functools, importlib, importlib.metadata, json, math, os, re, sys, zlib
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from safetensors.torch import save_file


def watch(out, *, model=None, params="*", steps=(1,), every=None, weights=True, manifest_only=False, probe=False, force=False):
    """Begins to capture; on every rank, from one thread. Steps are counted from here, the first is 1. Returns a Capture.

    out: folder. A capture that is there is an error, unless `force`, which removes it.
    model: a model or list of chunks in its DDP wrapper. Needed only where the job is under way, or has a finalizer of its own
      (in config.finalize_model_grads_func, already set); Megatron's is found without it.
    params: glob of parameter names, or a list of them.
    steps, every: the numbers of the steps to capture; and each step that is a multiple of `every`.
    weights: False leaves the weights out; without them an audit cannot see which parameters are replicated.
    manifest_only: no tensors, one file a rank, with `model` at once, else at the first step; then nothing of this is left.
    probe: at the first captured step runs the finalizer once more, on random integers, and puts everything back.
    Raises CaptureError, here or in the first step. A file that cannot be written later ends the capture, not the training."""
    capture = Capture(Path(out), Choice(params, [1] if manifest_only else steps, None if manifest_only else every))
    capture.weights, capture.manifest_only, capture.probe = weights, manifest_only, probe
    claim_folder(capture.out, force)
    capture.begin(model)
    return capture


class Capture:
    """What `watch` began. It ends with the last step that was asked for, or by `close()`."""

    def __init__(self, out, choice):
        self.out, self.choice, self.step = out, choice, 0
        self._model, self._inside, self._replaced = None, False, contextlib.ExitStack()
        self._contributions, self._pending = {}, None  # of the coming step; of a step whose norm is awaited

    def begin(self, model):
        try:
            finalizer = importlib.import_module("megatron.core.distributed.finalize_model_grads")
            optimizer = importlib.import_module("megatron.core.optimizer").MegatronOptimizer
        except ImportError as error:
            raise CaptureError(f"no Megatron-Core ({error}); for plain PyTorch there is sumonce_capture_torch") from error
        original = finalizer.finalize_model_grads
        if model is not None:
            self._know(model)
            own = self._model.config.finalize_model_grads_func
            if own not in (None, original):
                self._replace(self._model.config, "finalize_model_grads_func", self._around(own))
        for module in list(sys.modules.values()):  # in Megatron's, and wherever it was imported by name
            for name in [n for n, value in list(getattr(module, "__dict__", {}).items()) if value is original]:
                self._replace(module, name, self._around(original))
        kinds = [optimizer]
        for kind in kinds:
            kinds += kind.__subclasses__()
            if "step" in vars(kind):
                self._replace(kind, "step", self._around_step(kind.step))
        atexit.register(self.close)
        if self._model and self.manifest_only and not self.probe:  # nothing to wait for
            self._pending = 1, {}, dict.fromkeys(("local", "per_microbatch", "global"))
            self.flush()

    def close(self):
        """Writes what is pending and puts back all that was replaced."""
        self.flush()
        self._replaced.close()
        atexit.unregister(self.close)

    def _replace(self, owner, name, new):
        self._replaced.enter_context(mock.patch.object(owner, name, new))

    def _around(self, original):
        @functools.wraps(original)
        def finalize_model_grads(*args, **kwargs):
            if self._inside:  # the job's own finalizer calls Megatron's
                return original(*args, **kwargs)
            self._inside = True
            try:
                return self._finalize(original, *args, **kwargs)
            finally:
                self._inside = False
        return finalize_model_grads

    def _around_step(self, original):
        @functools.wraps(original)
        def step(optimizer, *args, **kwargs):
            pending, self._pending = self._pending, None  # the optimizers of a chain find nothing pending
            about = plain(getattr(optimizer, "config", None)) | {"loss_scale": float(optimizer.get_loss_scale())} if pending else {}
            result = original(optimizer, *args, **kwargs)
            if pending:
                self._pending = pending
                self.flush(about, result[1] if isinstance(result, tuple) and len(result) > 1 else None)
            return result
        return step

    def _around_sync(self, group, original):
        """With overlap_grad_reduce a bucket is reduced in backward: its gradients are taken just before."""
        def start_grad_sync(*args, **kwargs):
            if not self._inside and self.choice.has_step(self.step + 1):
                self._take_contributions({id(p) for bucket in group.buckets for p in bucket.params})
            return original(*args, **kwargs)
        return start_grad_sync

    def _finalize(self, original, model, num_tokens=None, *args, **kwargs):
        self.flush()
        late = self._know(model)
        if model[0] is not self._model.chunks[0]:  # in a job with several models
            return original(model, num_tokens, *args, **kwargs)
        self.step += 1
        if not self.choice.has_step(self.step) or (late and self._already_reduced()):
            return original(model, num_tokens, *args, **kwargs)
        tensors = {} if self.manifest_only else self._before()
        tokens, scratch = {"local": number(num_tokens), "per_microbatch": None}, None if num_tokens is None else num_tokens.clone()
        result = original(model, num_tokens, *args, **kwargs)
        tokens["global"] = number(num_tokens)
        tensors |= {} if self.manifest_only else self._gradients("finalized")
        if self.probe:
            tensors |= self._run_probe(lambda: original(model, scratch, *args, **kwargs))
        self._pending = self.step, tensors, tokens
        return result

    def flush(self, optimizer={}, grad_norm=None):
        """Writes the step that waits for its norm, if one does."""
        pending, self._pending = self._pending, None
        if not pending:
            return
        step, tensors, tokens = pending
        try:
            write_rank(self.out, step, tensors, self._model.metadata() | {
                "tokens": tokens, "grad_norm": None if grad_norm is None else float(grad_norm), "optimizer": optimizer or None,
                "clip_grad": optimizer.get("clip_grad"), "loss_weights": microbatches()})
        except CaptureError as error:
            print(f"sumonce_capture: error: {error}. Nothing more is captured.", file=sys.stderr)
            self.choice = Choice([], [], None)
        if self.choice.is_over(step):
            self.close()

    def _know(self, model):
        """Whether the model was not known before."""
        if self._model is not None:
            return False
        self._model = Model([model] if isinstance(model, torch.nn.Module) else list(model))
        self.choice.check([n for n, _ in self._model.parameters])
        for group in self._model.bucket_groups:
            if group.ddp_config.overlap_grad_reduce and not self.manifest_only:
                self._replace(group, "start_grad_sync", self._around_sync(group, group.start_grad_sync))
        return True

    def _already_reduced(self):
        late = not self.manifest_only and any(map(reduces_in_backward, self._model.bucket_groups))
        if late:
            print(f"sumonce_capture: step {self.step} is not captured: its gradients were reduced before the model was seen; "
                  "pass model= to watch()", file=sys.stderr)
        return late

    def _chosen(self):
        return [(n, p) for n, p in self._model.trained() if self.choice.has_name(n)]

    def _gradients(self, kind):
        return {f"{kind}/{n}": on_host(main_grad(p)) for n, p in self._chosen()}

    def _before(self):
        self._take_contributions({id(p) for _, p in self._model.parameters})
        contributions, self._contributions = self._contributions, {}
        return contributions | {f"weight/{n}": on_host(p) for n, p in self._chosen() if self.weights}

    def _take_contributions(self, wanted):
        for name, p in self._chosen():
            if id(p) in wanted and f"contribution/{name}" not in self._contributions:
                self._contributions[f"contribution/{name}"] = on_host(main_grad(p))

    def _run_probe(self, finalize):
        """After the step's own finalizer, so that nothing of that is in flight any more."""
        self.probe = False
        trained = self._model.trained()
        buffers = [b for c in self._model.chunks for b in torch.nn.Module.buffers(c)]  # not the wrapper's of that name
        with put_back([main_grad(p) for _, p in trained] + buffers), self._model.unchecked():
            for name, p in trained:
                main_grad(p).copy_(random_integers(name, main_grad(p)))
            before = self._gradients("probe_contribution")
            for group in self._model.bucket_groups:
                if hasattr(group, "grad_reduce_finished"):  # from 0.18 on
                    group.grad_reduce_finished = False
                if reduces_in_backward(group):
                    group.start_grad_sync()  # as the last hooks of backward do
            finalize()
            return before | self._gradients("probe_finalized")


class Model:
    """The chunks of this rank: parameters and modules under their global names, and what stands around them."""

    def __init__(self, chunks):
        self.chunks, self.config = chunks, importlib.import_module("megatron.core.utils").get_model_config(chunks[0])
        if getattr(getattr(chunks[0], "ddp_config", None), "use_megatron_fsdp", False):
            raise CaptureError("Megatron-FSDP keeps no whole gradient on any rank, so there is none to capture; "
                               "run a step with use_megatron_fsdp off")
        self.bucket_groups = [g for c in chunks for kind in ("bucket_groups", "expert_parallel_bucket_groups")
                              for g in getattr(c, kind, ())]
        self.parameters, self.modules = [], {}
        for i, chunk in enumerate(chunks):
            name_of, taken = GlobalNames(chunk), {n for n, _ in self.parameters}
            named = [(name_of(n), p) for n, p in chunk.named_parameters()]
            self.parameters += [(f"{n}@chunk{i}" if n in taken else n, p) for n, p in named]
            self.modules |= modules_of(chunk, name_of)
        self._mesh, self._groups = mesh_and_groups()

    def trained(self):
        return [(n, p) for n, p in self.parameters if p.requires_grad and main_grad(p) is not None]

    @contextlib.contextmanager
    def unchecked(self):
        """Without the wrapper's checks of large or bad gradients."""
        with contextlib.ExitStack() as changed:
            for group in self.bucket_groups:
                for flag in ("check_for_nan_in_grad", "check_for_large_grads"):
                    if hasattr(group.ddp_config, flag):
                        changed.enter_context(mock.patch.object(group.ddp_config, flag, False))
            yield

    def metadata(self):
        """What only the layers' authors know is null; the modules are in the first file only."""
        modules, self.modules = self.modules, None
        return described(self.parameters) | {"mesh": self._mesh, "groups": self._groups, "config": plain(self.config),
                                             "ddp": self._wrapper(), "owned": self._owned(), "tied": self._tied(), "layout": None,
                                             "placements": None} | ({"modules": modules} if modules else {})

    def _wrapper(self):
        """The factors are those of one rank's contribution, the mean in the collective included."""
        chunk = self.chunks[0]
        config, about = getattr(chunk, "ddp_config", None), {"wrapper": class_name(chunk)}
        for prefix, buffers in ("", "buffers"), ("expert_", "expert_parallel_buffers"):
            for buffer in getattr(chunk, buffers, [])[:1]:
                size = dist.get_world_size(buffer.data_parallel_group) if config.average_in_collective else 1
                about[f"{prefix}gradient_scaling_factor"] = buffer.gradient_scaling_factor / size
        flags = ("use_distributed_optimizer", "average_in_collective", "overlap_grad_reduce", "grad_reduce_in_fp32")
        return about | {f: getattr(config, f) for f in flags if hasattr(config, f)}

    def _owned(self):
        """The flat range of each parameter that this rank's reduce-scatter leaves reduced; null where all of it is."""
        if not any(g.ddp_config.use_distributed_optimizer for g in self.bucket_groups):
            return None
        names, owned = {id(p): n for n, p in self.parameters}, {}
        for group in self.bucket_groups:
            for bucket in group.buckets:
                share = bucket.grad_data.numel() // group.intra_distributed_optimizer_instance_size
                low = share * group.intra_distributed_optimizer_instance_rank
                for p in bucket.params:
                    copy = getattr(p, "main_grad_copy_in_grad_buffer", None)  # where main_grad is of a wider type
                    start = ((p.main_grad if copy is None else copy).data_ptr() - bucket.grad_data.data_ptr()) // bucket.grad_data.element_size()
                    begin, end = max(low, start) - start, min(low + share, start + p.numel()) - start
                    if begin < end:
                        owned[names[id(p)]] = [begin, end]
        return owned

    def _tied(self):
        """The last stage's copy of the embedding; on one stage the two are one parameter."""
        model, pair = self.chunks[-1], {"output_layer.weight": "embedding.word_embeddings.weight"}
        while hasattr(model, "module"):
            model = model.module
        shared = getattr(model, "share_embeddings_and_output_weights", None)
        return None if shared is None else pair if shared and self._mesh["pp"]["size"] > 1 else {}


class GlobalNames:
    """A module's or parameter's name on one rank -> the name that no other part of the whole model has: layers counted over
    the pipeline stages, experts over the expert-parallel ranks, without wrappers' prefixes."""

    def __init__(self, chunk):
        self._part = {}  # path -> what its last part becomes
        rank = parallel_state().get_expert_model_parallel_rank()
        for path, module in chunk.named_modules():
            parent, _, last = path.rpartition(".")
            if last.isdecimal() and parent.endswith("local_experts"):
                self._part[path] = str(rank * len(chunk.get_submodule(parent)) + int(last))
            elif last.isdecimal() and isinstance(getattr(module, "layer_number", None), int):
                self._part[path] = str(module.layer_number - 1)
            elif isinstance(getattr(module, "num_gemms", None), int) and ".experts." in path:
                self._part |= {f"{path}.{kind}{i}": f"{kind}{rank * module.num_gemms + i}"
                               for kind in ("weight", "bias") for i in range(module.num_gemms)}

    def __call__(self, name):
        parts = name.split(".")
        return checkpoint_name(".".join(self._part.get(".".join(parts[:i + 1]), part) for i, part in enumerate(parts)))


def reduces_in_backward(group):
    """From 0.16 on the first batch is reduced by the finalizer, overlap or not."""
    return group.ddp_config.overlap_grad_reduce and not getattr(group, "is_first_batch", False)


def main_grad(parameter):
    gradient = getattr(parameter, "main_grad", None)
    return parameter.grad if gradient is None else gradient


def parallel_state():
    state = importlib.import_module("megatron.core.parallel_state")
    if not state.model_parallel_is_initialized():
        raise CaptureError("parallel_state is not initialized, so mesh and groups are unknown; call initialize_model_parallel "
                           "first, also where the job uses a ProcessGroupCollection of its own")
    return state


GROUPS = {  # the first seven are the axes of the mesh
    "tp": lambda state: state.get_tensor_model_parallel_group(),
    "cp": lambda state: state.get_context_parallel_group(),
    "dp": lambda state: state.get_data_parallel_group(),
    "pp": lambda state: state.get_pipeline_model_parallel_group(),
    "ep": lambda state: state.get_expert_model_parallel_group(),
    "etp": lambda state: state.get_expert_tensor_parallel_group(),
    "edp": lambda state: state.get_expert_data_parallel_group(),
    "dp_cp": lambda state: state.get_data_parallel_group(with_context_parallel=True),
    "mp": lambda state: state.get_model_parallel_group(),
    "embd": lambda state: state._EMBEDDING_GROUP,  # whose getter fails where there is none, up to 0.12
    "pos_embd": lambda state: state._POSITION_EMBEDDING_GROUP,
}


def mesh_and_groups():
    """Collective over the world."""
    groups = {name: group_of(parallel_state()) for name, group_of in GROUPS.items()}
    mine = {name: dist.get_process_group_ranks(g) for name, g in groups.items() if g is not None and dist.get_rank(g) >= 0}
    mesh = {axis: {"size": len(mine[axis]), "coordinate": mine[axis].index(dist.get_rank())} for axis in list(GROUPS)[:7]}
    return mesh, gathered_groups(mine, GROUPS)


def microbatches():
    with contextlib.suppress(Exception):  # in a job that does not use Megatron's count of them
        return {"microbatches": sys.modules["megatron.core.num_microbatches_calculator"].get_num_microbatches()}


def number(num_tokens):
    return None if num_tokens is None else int(num_tokens)


@contextlib.contextmanager
def put_back(tensors):
    """What they hold on entering, they hold again on leaving."""
    with torch.no_grad():
        kept = [(t, t.detach().to("cpu", copy=True)) for t in tensors]
        try:
            yield
        finally:
            for tensor, before in kept:
                tensor.copy_(before)


def random_integers(name, like):
    """Independent between ranks and parameters, the same in every run; small, so that their sums are exact."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{dist.get_rank()} {name}".encode()))
    bound = 1024 if like.dtype in (torch.float32, torch.float64) else 8
    return torch.randint(-bound, bound + 1, like.shape, generator=generator).to(like.dtype)


# ---- From here on the same in both hooks; a test holds them equal ----


class CaptureError(RuntimeError):
    """What the user can mend: the message says what is wrong, where, and the cure."""


class Choice:
    """Which steps and which parameters are captured."""

    def __init__(self, params, steps, every):
        self._globs, self._steps, self._every = [params] if isinstance(params, str) else list(params), set(steps), every
        if not all(isinstance(s, int) and s >= 1 for s in [*self._steps, *([] if every is None else [every])]):
            raise CaptureError(f"steps={list(steps)}, every={every}: expected numbers of steps, which are counted from 1")

    def has_step(self, step):
        return step in self._steps or (self._every is not None and step % self._every == 0)

    def is_over(self, step):
        return self._every is None and all(s <= step for s in self._steps)

    def has_name(self, name):
        return any(fnmatch.fnmatchcase(name, glob) for glob in self._globs)

    def check(self, names):
        """Collective over the world: one rank may hold none of those that are meant."""
        unmatched = from_all([glob for glob in self._globs if not fnmatch.filter(names, glob)])
        for glob in unmatched[0]:
            if all(glob in globs for globs in unmatched):
                raise CaptureError(f"params: no parameter's name matches '{glob}'; there are {', '.join(names[:3])}, ...")


def checkpoint_name(name):
    """Without wrappers' prefixes and parts. PEFT's base_layer itself keeps its name, beside the layer that wraps it."""
    name = re.sub(r"^((module|base_model\.model|_orig_mod|_fsdp_wrapped_module)\.)*", "", name)
    return re.sub(r"\.(_orig_mod|_checkpoint_wrapped_module)(?=\.|$)|\.base_layer(?=\.)", "", name)


MARKS = ("sequence_parallel", "average_gradients_across_tp_domain", "tensor_model_parallel", "partition_dim", "partition_stride",
         "allreduce", "shared", "shared_embedding", "pipeline_parallel", "is_embedding_or_output_parameter",
         "is_embedding_parameter", "flextron_router_pp_sync")
STEERING = ("sequence_parallel", "parallel_mode", "tp_size", "is_expert", "input_is_parallel", "gather_output", "allreduce_dgrad",
            "explicit_expert_comm", "expert_parallel", "is_parallel_a", "use_bias")
PLAIN = (bool, int, float, str, type(None))
TRIVIAL = ("Identity", "IdentityOp", "IdentityFuncOp", "Dropout", "ModuleDict", "ModuleList", "ParameterDict", "BufferDict")
PACKAGES = {"torch": "torch", "megatron.core": "megatron-core", "mcore_bridge": "mcore-bridge", "peft": "peft",
            "transformer_engine": "transformer-engine", "swift": "ms-swift", "nemo": "nemo_toolkit", "torchtitan": "torchtitan"}


def described(parameters):
    """Of [(name, parameter)]: shapes, types and marks as they stand now; the packages that take part."""
    params = {name: {"shape": list(p.shape), "dtype": str(p.dtype).removeprefix("torch."), "requires_grad": p.requires_grad,
                     "marks": {m: v if isinstance(v := getattr(p, m), PLAIN) else str(v) for m in MARKS if hasattr(p, m)}}
              for name, p in parameters}
    found = {}
    for module, package in PACKAGES.items():
        with contextlib.suppress(KeyError, importlib.metadata.PackageNotFoundError):
            version = getattr(sys.modules[module], "__version__", None)
            found[package] = version if isinstance(version, str) else importlib.metadata.version(package)
    return {"params": params, "framework": found}


def plain(config):
    """The switches, numbers and words of a configuration object."""
    fields = {} if config is None else vars(config)
    return {k: v if is_known(v) else str(v) for k, v in fields.items() if isinstance(v, PLAIN[:4]) and not k.startswith("_")}


def is_known(value):
    """Whether JSON has a word for it; null is none."""
    return value is not None and value == value and value not in (math.inf, -math.inf)


def modules_of(model, name_of):
    """Module name -> its class and the attributes that steer communication."""
    named = {name_of(n): m for n, m in model.named_modules() if n and type(m).__name__ not in TRIVIAL}
    return {name: {"class": class_name(m)} | {a: getattr(m, a) for a in STEERING if isinstance(
        getattr(m, a, None), (bool, int, str))} for name, m in named.items()}


def class_name(thing):
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def from_all(mine):
    """Collective over the world."""
    everyone = [mine] * world()[1]
    if dist.is_initialized():
        dist.all_gather_object(everyone, mine)
    return everyone


def gathered_groups(mine, names):
    """Collective over the world. name -> the ranks of each group of that name; `mine`: those of this rank's."""
    everyone = from_all(mine)
    found = {name: sorted({tuple(ranks[name]) for ranks in everyone if name in ranks}) for name in names}
    return {name: [list(ranks) for ranks in groups] for name, groups in found.items() if groups}


def on_host(tensor):
    return tensor.detach().to("cpu", copy=True).contiguous()


def world():
    """(this rank, how many there are); before there is a process group, as torchrun says."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def claim_folder(out, force):
    """Each rank removes its share of a capture that is there, if it may."""
    there = sorted(out.glob("step-*/rank-*.safetensors"))
    if there and not force:
        raise CaptureError(f"{out} holds a capture ({there[0].relative_to(out)}); name another folder, or pass force=True")
    rank, size = world()
    for path in (p for p in there if int(p.stem.removeprefix("rank-")) % size == rank):
        path.unlink(missing_ok=True)


def write_rank(out, step, tensors, metadata):
    """The file is there only when it is complete. What is not known is left out, or null where leaving it out says something."""
    (rank, size), nullable, run = world(), ("layout", "placements", "tied", "owned"), None
    with contextlib.suppress(Exception):  # the first rank that asks names the run for all
        run = dist.distributed_c10d._get_default_store().compare_set("sumonce_capture_run", "", "run " + os.urandom(8).hex()).decode()
    metadata = {"format": "sumonce-capture", "version": "1", "case": out.resolve().name, "step": step, "rank": rank,
                "world_size": size} | {k: v for k, v in (metadata | {"run": run}).items() if is_known(v) or k in nullable}
    path = out / f"step-{step:04d}" / f"rank-{rank:05d}.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        texts = {k: v if isinstance(v, str) else json.dumps(v, sort_keys=True, allow_nan=False) for k, v in metadata.items()}
        save_file(tensors, part, texts)
        os.replace(part, path)
    except Exception as error:  # of the file system, or safetensors' own
        raise CaptureError(f"{path} could not be written ({error}): is there space, and may this process write there? params= and "
                           "weights=False make a capture smaller") from error
