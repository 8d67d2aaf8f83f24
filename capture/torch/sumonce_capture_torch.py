"""Captures training steps of a plain PyTorch job (DistributedDataParallel, FSDP2, DTensor), for `sumonce audit` (docs/CAPTURING_TORCH.md).

    import sumonce_capture_torch
    sumonce_capture_torch.watch(model, optimizer, "captures", steps=[1, 2])    # on every rank, the model in its wrappers

Of every parameter each rank takes its own gradient of each backward pass, before any communication; what it has when the
optimizer steps or the gradients are clipped; and the weight. It writes captures/step-0001/rank-00000.safetensors and so on
(docs/capture-format.md). Nothing of the training changes. Needs PyTorch (tried with 2.15) and safetensors."""
import atexit, contextlib, fnmatch, functools, importlib.metadata, json, math, os, re, sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import FSDPModule
except ImportError:  # before PyTorch 2.6
    FSDPModule = ()


def watch(model, optimizer, out, *, params="*", steps=(1,), every=None, weights=True, microbatches=True, manifest_only=False,
          force=False):
    """Begins to capture; on every rank, from one thread. Steps are the optimizer's, counted from here; the first is 1.

    out: folder. A capture that is there is an error, unless `force`, which removes it.
    params: glob of parameter names, or a list of them.
    steps, every: the numbers of the steps to capture; and each step that is a multiple of `every`.
    weights: False leaves the weights out; without them an audit cannot see which parameters are replicated.
    microbatches: False leaves the shares of the backward passes out, where a step has several.
    manifest_only: no tensors, one file a rank at the first step; after it nothing of this is left in the job.
    Gradients that something else than torch.nn.utils clips: call the Capture's gradients_are_final() before it.
    Raises CaptureError, here or in the first step. A file that cannot be written later ends the capture, not the training."""
    capture = Capture(model, optimizer, Path(out), Choice(params, [1] if manifest_only else steps, None if manifest_only else every))
    capture.weights, capture.microbatches, capture.manifest_only = weights, microbatches, manifest_only
    claim_folder(capture.out, force)
    capture.begin()
    return capture


class Capture:
    """What `watch` began. It ends with the last step that was asked for, or by `close()`."""

    def __init__(self, model, optimizer, out, choice):
        self.model, self.optimizer, self.out, self.choice, self.step = model, optimizer, out, choice, 1
        self.named = [(checkpoint_name(n), p) for n, p in model.named_parameters()]
        choice.check([n for n, _ in self.named])
        self._modules = modules_of(model, checkpoint_name)
        self._replaced, self._armed = contextlib.ExitStack(), contextlib.ExitStack()
        self._forget()

    def _forget(self):
        self._passes, self._weights, self._used, self._final, self._norm = {}, {}, {}, {}, (None, None)

    def begin(self):
        for hook in (self.optimizer.register_step_pre_hook(lambda *_: self._finish()),
                     self.optimizer.register_step_post_hook(lambda *_: self._next())):
            self._replaced.callback(hook.remove)
        for name in ("clip_grad_norm_", "clip_grads_with_norm_"):
            original = getattr(torch.nn.utils, name, None)
            for module in list(sys.modules.values()) if original else ():
                for known in [n for n, value in list(getattr(module, "__dict__", {}).items()) if value is original]:
                    self._replaced.enter_context(mock.patch.object(module, known, self._around_clip(original)))
        atexit.register(self.close)
        self._arm()

    def close(self):
        """Takes everything out of the job again."""
        self._armed.close()
        self._replaced.close()
        atexit.unregister(self.close)

    def gradients_are_final(self):
        """Takes the gradients of this step as they are now; only the first call of a step does."""
        if self.choice.has_step(self.step) and not self._final and not self.manifest_only:
            self._final = {n: final(p, self._used.get(n)) for n, p in self._chosen() if p.grad is not None}
            for name, parameter in self._chosen():  # not used here, so no pass has taken it
                if self.weights and name in self._final and name not in self._weights:
                    self._weights[name] = on_host(local(parameter))

    def _chosen(self):
        return [(n, p) for n, p in self.named if p.requires_grad and self.choice.has_name(n)]

    def _around_clip(self, original):
        @functools.wraps(original)
        def clip(parameters, max_norm, *args, **kwargs):
            parameters = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            self.gradients_are_final()
            result = original(parameters, max_norm, *args, **kwargs)
            norm = next((n for n in (result, *args, kwargs.get("total_norm")) if isinstance(n, torch.Tensor)), None)
            if self.choice.has_step(self.step) and norm is not None and self._norm[0] is None:
                self._norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm), float(max_norm)
            return result
        return clip

    def _arm(self):
        """For a step that is captured: sees every gradient before it is accumulated or reduced. The parameter that FSDP2 computes
        with is another object than the one the optimizer has, and is found in the forward pass."""
        if not self.choice.has_step(self.step):
            return
        hooked = set()

        def see(name, parameter):
            if id(parameter) not in hooked and parameter.requires_grad and parameter.is_leaf:
                hooked.add(id(parameter))
                self._armed.callback(parameter.register_hook(lambda gradient: self._take(name, parameter, gradient)).remove)
        for name, parameter in self._chosen():
            see(name, parameter)
        chosen = {n for n, _ in self._chosen()}
        for path, module in self.model.named_modules():
            own = {key: checkpoint_name(f"{path}.{key}".lstrip(".")) for key in module._parameters}
            own = {key: name for key, name in own.items() if name in chosen}
            if own:
                hook = module.register_forward_pre_hook(
                    lambda m, _, own=own: [see(name, m._parameters[key]) for key, name in own.items()] and None)
                self._armed.callback(hook.remove)

    def _take(self, name, parameter, gradient):
        self._used[name] = parameter, gradient.placements if isinstance(gradient, DTensor) else None
        if not self.manifest_only:
            self._passes.setdefault(name, []).append(on_host(local(gradient)))
            if self.weights and name not in self._weights:
                self._weights[name] = on_host(local(parameter))

    def _finish(self):
        """Before the optimizer steps: writes."""
        if not self.choice.has_step(self.step):
            return
        self.gradients_are_final()
        tensors = {f"contribution/{n}": sum(passes) for n, passes in self._passes.items()}
        # What no backward pass of this rank came to, it contributed nothing to; others may have.
        tensors |= {f"contribution/{n}": torch.zeros_like(tensor) for n, (tensor, _) in self._final.items() if n not in self._passes}
        tensors |= {f"weight/{n}": w for n, w in self._weights.items()}
        tensors |= {f"finalized/{n}": tensor for n, (tensor, _) in self._final.items()}
        if self.microbatches:
            tensors |= {f"contribution@{m}/{n}": share for n, passes in self._passes.items() if len(passes) > 1
                        for m, share in enumerate(passes)}
        try:
            write_rank(self.out, self.step, tensors, self._metadata())
        except CaptureError as error:
            print(f"sumonce_capture_torch: error: {error}. Nothing more is captured.", file=sys.stderr)
            self.choice = Choice([], [], None)

    def _next(self):
        over = self.choice.is_over(self.step)
        self._forget()
        self._armed.close()
        self.step += 1
        if over:
            self.close()
        else:
            self._arm()

    def _metadata(self):
        modules, self._modules = self._modules, None  # in the first file only
        used = {n: self._used.get(n, (p, None)) for n, p in self.named}
        about = described([(n, local(p)) for n, (p, _) in used.items()])
        for name, parameter in self.named:  # an unsharded one of FSDP2 has not the marks of its own
            about["params"][name] |= {k: v for k, v in described([(name, parameter)])["params"][name].items() if k != "shape"}
        placed = {n: (p, g) for n, (p, g) in used.items() if isinstance(p, DTensor)}
        fsdp = any(isinstance(m, FSDPModule) for m in self.model.modules())
        mesh, groups = mesh_and_groups(self.model, self.named, used)
        defaults = {k: v for k, v in self.optimizer.param_groups[0].items() if k != "params" and isinstance(v, (bool, int, float))}
        return about | {
            "mesh": mesh, "groups": groups, "config": plain(getattr(self.model, "config", None)), "ddp": wrapper(self.model, mesh),
            "tokens": {"local": None, "per_microbatch": None, "global": None}, "grad_norm": self._norm[0], "clip_grad": self._norm[1],
            "optimizer": {"optimizer": class_name(self.optimizer)} | defaults, "tied": None,
            "loss_weights": {"microbatches": max(map(len, self._passes.values()), default=None)},
            "owned": {n: r for n, (_, r) in self._final.items() if r[0] < r[1]} if fsdp else None,
            "placements": {n: {"param": str(p.placements), "grad": str(g)} for n, (p, g) in placed.items()} if placed else None,
            "layout": {n: {"dim": s.dim} for n, (p, _) in placed.items() for s in p.placements if isinstance(s, Shard)}
            if placed or fsdp else None} | ({"modules": modules} if modules else {})


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def dimensions_of_fsdp(parameter, used):
    """The dimensions of a parameter's device mesh that its unsharded form does not have."""
    if not isinstance(parameter, DTensor) or parameter is used:
        return []
    kept = used.device_mesh.ndim if isinstance(used, DTensor) else 0  # they are the last
    return list(range(parameter.device_mesh.ndim - kept))


def final(parameter, used):
    """The gradient and the flat range of it that is this rank's: all of it, or the part that FSDP2 leaves here, with zeros elsewhere."""
    gradient, (unsharded, _) = parameter.grad, used or (parameter, None)
    if not isinstance(parameter, DTensor):
        return on_host(gradient), [0, gradient.numel()]
    dimensions = dimensions_of_fsdp(parameter, unsharded)
    if not dimensions:
        whole = on_host(gradient.redistribute(parameter.device_mesh, parameter.placements).to_local())
        return whole, [0, whole.numel()]
    cut = [d for d in dimensions if parameter.placements[d].is_shard() or "Shard" in type(parameter.placements[d]).__name__]
    if len(cut) != 1 or parameter.placements[cut[0]].dim != 0:
        raise CaptureError(f"FSDP shards a parameter by {parameter.placements}; only a cut of dimension 0 is supported, so leave "
                           "shard_placement_fn out for the captured step")
    size, rank = parameter.device_mesh.size(cut[0]), parameter.device_mesh.get_coordinate()[cut[0]]
    whole = torch.zeros(local(unsharded).shape, dtype=gradient.dtype)
    rows = -(-whole.shape[0] // size)
    begin, end = min(rank * rows, whole.shape[0]), min((rank + 1) * rows, whole.shape[0])
    whole[begin:end] = gradient.to_local().detach().to("cpu")
    each = whole[:1].numel()
    return whole, [begin * each, end * each]


AXES = ("tp", "cp", "dp", "pp", "ep", "etp", "edp")


def mesh_and_groups(model, named, used):
    """Collective over the world. FSDP's dimensions and DistributedDataParallel's group are dp; other dimensions of a device mesh
    are what their name says, or tp."""
    rank, mine = world()[0], {}
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            mine["dp"] = dist.get_process_group_ranks(module.process_group)
    for name, parameter in named:
        if isinstance(parameter, DTensor):
            mesh, fsdp = parameter.device_mesh, dimensions_of_fsdp(parameter, used[name][0])
            names = mesh.mesh_dim_names or [""] * mesh.ndim
            axes = ["dp" if d in fsdp else axis_named(n) for d, n in enumerate(names)]
            for axis in set(axes):
                at = tuple(slice(None) if axes[d] == axis else mesh.get_coordinate()[d] for d in range(mesh.ndim))
                mine.setdefault(axis, mesh.mesh[at].flatten().tolist())
    sizes = {axis: {"size": len(mine.get(axis, [0])), "coordinate": mine.get(axis, [rank]).index(rank)} for axis in AXES}
    return sizes, gathered_groups(mine, list(mine))


def axis_named(name):
    """'dp_shard' -> 'dp'"""
    parts = name.lower().split("_")
    return next((a for a in AXES if a in parts), "dp" if {"fsdp", "ddp", "data", "replicate"} & set(parts) else "tp")


def wrapper(model, mesh):
    """A right data-parallel gradient is the sum of the ranks' contributions times this factor."""
    wrapped = next((m for m in model.modules() if isinstance(m, DistributedDataParallel)), None)
    fsdp = any(isinstance(m, FSDPModule) for m in model.modules())
    name = class_name(wrapped) if wrapped else "torch.distributed.fsdp.FSDPModule" if fsdp else None
    return {"wrapper": name, "gradient_scaling_factor": 1.0 / mesh["dp"]["size"], "use_distributed_optimizer": fsdp}


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
