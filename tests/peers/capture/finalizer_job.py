"""One version's real finalize_model_grads on models that hold a parameter of every kind it tells apart, captured and probed.

finalizers.py runs it with that version, the hook and no_gpu on PYTHONPATH. It writes OUT/<mesh>/<switches>, a capture each."""
import importlib
import itertools
import sys
import tempfile
from pathlib import Path

import no_gpu  # noqa: before Megatron
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer import TransformerConfig

import sumonce_capture

# name -> (ranks, what initialize_model_parallel is told); dp is what is left.
MESHES = {
    "tp2": (2, dict(tensor_model_parallel_size=2)),
    "dp2": (2, {}),
    "tp2-dp2": (4, dict(tensor_model_parallel_size=2)),
    "dp2-cp2": (4, dict(context_parallel_size=2)),
    "tp2-cp2": (4, dict(tensor_model_parallel_size=2, context_parallel_size=2)),
    "pp2": (2, dict(pipeline_model_parallel_size=2)),
    "tp2-pp2": (4, dict(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)),
    "dp2-ep2": (2, dict(expert_model_parallel_size=2)),
    "dp4-ep2": (4, dict(expert_model_parallel_size=2)),
    "tp2-dp2-etp1": (4, dict(tensor_model_parallel_size=2, expert_tensor_parallel_size=1)),
    "tp2-ep2-etp1": (2, dict(tensor_model_parallel_size=2, expert_model_parallel_size=2, expert_tensor_parallel_size=1)),
    "tp2-dp2-ep2": (4, dict(tensor_model_parallel_size=2, expert_model_parallel_size=2)),
}
NAMES = ("input_layernorm.weight", "self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight",
         "self_attention.kv_layernorm.weight", "self_attention.my_q_layernorm_copy.lora_A.weight")
ABSENT = object()
MARKS = dict(sequence_parallel=(ABSENT, False, True), average_gradients_across_tp_domain=(ABSENT, True),
             allreduce=(ABSENT, True, False))
UNREAD = dict(tensor_model_parallel=True, partition_dim=0, partition_stride=1, shared=True, is_embedding_parameter=True,
              is_embedding_or_output_parameter=True)
REDUCTIONS = {
    "all-reduce": {},
    "average": dict(average_in_collective=True),
    "reduce-scatter": dict(use_distributed_optimizer=True),
    "overlap": dict(overlap_grad_reduce=True),
    "overlap-reduce-scatter": dict(overlap_grad_reduce=True, use_distributed_optimizer=True),
}


def main():
    out, wanted = Path(sys.argv[1]), sys.argv[2:] or list(MESHES)
    for mesh in wanted:
        ranks, sizes = MESHES[mesh]
        with tempfile.TemporaryDirectory() as folder:
            context = mp.get_context("fork")
            processes = [context.Process(target=run, args=(r, ranks, f"{folder}/store", sizes, out / mesh)) for r in range(ranks)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            if any(p.exitcode for p in processes):
                sys.exit(f"{mesh}: exit codes {[p.exitcode for p in processes]}")


def run(rank, ranks, store, sizes, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel(**sizes)
    for switches in cases(sizes):
        name = "_".join(k if v is True else str(v) for k, v in switches.items() if v)
        step(out / name, **switches)
    dist.barrier()
    dist.destroy_process_group()


def cases(sizes):
    """Each is the keyword arguments of `step`."""
    pipeline = sizes.get("pipeline_model_parallel_size", 1) > 1
    for reduction, sp, qk, per_token in itertools.product(REDUCTIONS, (False, True), (False, True), (False, True)):
        if not (per_token and reduction == "average"):  # the wrapper refuses it
            yield dict(reduction=reduction, sp=sp, qk=qk, per_token=per_token)
    yield dict(reduction="all-reduce", sp=True, qk=False, per_token=False, mixed=True)
    for reduction in REDUCTIONS:
        yield dict(reduction=reduction, sp=True, qk=False, per_token=False, first=True)
    if pipeline:
        for sp, per_token in itertools.product((False, True), (False, True)):
            yield dict(reduction="all-reduce", sp=sp, qk=False, per_token=per_token, tie=True, conditional=True)
            yield dict(reduction="all-reduce", sp=sp, qk=False, per_token=per_token, tie=True, conditional=True, virtual=True)


def step(out, reduction, sp, qk, per_token, mixed=False, tie=False, conditional=False, virtual=False, first=False):
    """Two steps, so that the second reduces in backward where that is asked for; the second is captured, or the first.

    Up to 0.15 the first reduces in backward, too, so the hook must know the model before it."""
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=4, calculate_per_token_loss=per_token)
    config.sequence_parallel, config.qk_layernorm, config.has_cond_embedder = sp, qk, conditional
    chunks = []
    for chunk in range(2 if virtual else 1):
        model = Model(config, chunk, 2 if virtual else 1, mixed, tie, conditional)
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(**REDUCTIONS[reduction]), model))
    capture = sumonce_capture.watch(out, model=chunks if first else None, steps=[1 if first else 2], probe=True)
    finalizer = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    for number in (1, 2):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        for chunk in chunks:
            contribute(chunk, number)
        finalizer.finalize_model_grads(chunks, tokens() if per_token else None)
    capture.close()


def contribute(chunk, number):
    """A gradient of its own for each parameter and rank, through autograd and the wrapper's hooks."""
    generator = torch.Generator().manual_seed(1000 * number + 10 * dist.get_rank() + chunk.module.chunk)
    sum((p * torch.randn(p.shape, generator=generator)).sum() for p in chunk.parameters() if p.requires_grad).backward()


def tokens():
    """Of this rank's cell; only the last stage knows."""
    cell = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    return torch.tensor(3 + 2 * cell if parallel_state.is_pipeline_last_stage(ignore_virtual=True) else 0, dtype=torch.int)


class Model(torch.nn.Module):
    """Layers, each with one combination of marks on a parameter of each name, one with those that no finalizer reads; a frozen
    parameter; on demand what pipelines share."""

    def __init__(self, config, chunk, chunks, mixed, tie, conditional):
        super().__init__()
        stages, stage = parallel_state.get_pipeline_model_parallel_world_size(), parallel_state.get_pipeline_model_parallel_rank()
        self.config, self.chunk = config, chunk
        self.pre_process = stage == 0 and chunk == 0
        self.post_process = stage == stages - 1 and chunk == chunks - 1
        self.share_embeddings_and_output_weights = tie
        combinations = [dict(zip(MARKS, values)) for values in itertools.product(*MARKS.values())] + [UNREAD]
        first = (chunk * stages + stage) * len(combinations)
        for i, marks in enumerate(combinations):
            for name in NAMES:
                parameter = self.add(f"decoder.layers.{i}.{name}", torch.bfloat16 if mixed and i % 2 else torch.float32)
                for mark, value in marks.items():
                    if value is not ABSENT:
                        setattr(parameter, mark, value)
            self.decoder.layers.get_submodule(str(i)).layer_number = first + i + 1
        frozen = self.add("decoder.layers.0.frozen.weight")
        frozen.requires_grad, frozen.sequence_parallel = False, True
        if conditional:
            self.add("time_embedder.weight").pipeline_parallel = True
        if tie and self.pre_process:
            self.add("embedding.word_embeddings.weight").shared_embedding = True
        if tie and self.post_process:
            self.add("output_layer.weight").shared_embedding = True

    def add(self, name, dtype=torch.float32):
        *path, last = name.split(".")
        module = self
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.register_parameter(last, torch.nn.Parameter(torch.ones(3, 5, dtype=dtype)))
        return getattr(module, last)

    def shared_embedding_or_output_weight(self):
        return self.embedding.word_embeddings.weight if self.pre_process else self.output_layer.weight


if __name__ == "__main__":
    main()
