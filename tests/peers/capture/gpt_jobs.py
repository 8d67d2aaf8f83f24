"""Real training steps of small Megatron-Core GPTs, captured by the hook: those of tests/data/captures, from the same weights and
data, so that the tensors must be the same. real_jobs.py runs it with the versions on PYTHONPATH.

    python gpt_jobs.py OUT lora-replica-bug gdn-gamma-tp2-bug+probe"""
import functools
import sys
import tempfile
import time
import zlib
from pathlib import Path

import megatron_step  # the recipe; it imports no_gpu
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

import sumonce_capture

SEQUENCE, BATCH, VOCAB = 32, 2, 32
LORA = dict(num_layers=4, hidden_size=64, ffn_hidden_size=128)
GDN = dict(activation_func=torch.nn.functional.silu, linear_conv_kernel_dim=4, linear_key_head_dim=4, linear_value_head_dim=4,
           linear_num_key_heads=4, linear_num_value_heads=8)
MOE = dict(num_moe_experts=4, moe_router_topk=2, moe_router_load_balancing_type="none", moe_aux_loss_coeff=0.0,
           moe_token_dispatcher_type="alltoall", moe_ffn_hidden_size=16)
# name -> ranks, sizes of the mesh but dp, and what `train` is told
CASES = {
    "lora-replica-bug": (4, dict(tensor=4), dict(build="lora", changes=LORA, masked=24, zero="lora_B", steps=3)),
    "lora-replica-fixed": (4, dict(tensor=4), dict(build="lora", changes=LORA, masked=24, zero="lora_B", steps=3)),
    "lora-te-linear-norm-tp-times": (4, dict(tensor=4), dict(build="lora_te", changes=LORA, masked=24)),
    "gdn-gamma-tp2-bug": (2, dict(tensor=2), dict(build="gdn", changes=GDN)),
    "plain-dp2-tp2": (4, dict(tensor=2), dict(micro=2)),
    "plain-dp2-tp2-per-token": (4, dict(tensor=2), dict(micro=2, drop=5, changes=dict(calculate_per_token_loss=True))),
    "plain-dp2-distributed-optimizer": (2, {}, dict(wrapper=dict(use_distributed_optimizer=True))),
    "tied-pp2-right": (2, dict(pipeline=2), dict(build="tied", micro=2)),
    "moe-ep2-dp2-right": (2, dict(expert=2), dict(build="moe", changes=MOE)),
    "moe-tp2-ep1-etp1-bug": (2, dict(tensor=2, expert_tensor=1), dict(build="moe", changes=MOE)),
    "moe-tp2-ep1-etp1-0.19-right": (2, dict(tensor=2, expert_tensor=1), dict(build="moe", changes=MOE)),
}


def main():
    out, *names = sys.argv[1:]
    for name in names:
        ranks, sizes, told = CASES.get(name.removesuffix("+probe"), CASES["plain-dp2-tp2"])
        told |= dict(probe=True) if name.endswith("+probe") else {}
        with tempfile.TemporaryDirectory() as folder:
            run = {"unchanged": unchanged, "cost": cost}.get(name, train)
            context = mp.get_context("fork")
            processes = [context.Process(target=rank_of, args=(r, ranks, folder, sizes, run, Path(out) / name, told))
                         for r in range(ranks)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            if any(p.exitcode for p in processes):
                sys.exit(f"{name}: exit codes {[p.exitcode for p in processes]}")


def rank_of(rank, ranks, folder, sizes, run, out, told):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    sizes = {f"{axis}_parallel_size" if axis.startswith("expert_tensor") else f"{axis}_model_parallel_size": size
             for axis, size in sizes.items()}
    parallel_state.initialize_model_parallel(**sizes)
    run(out, **told)
    dist.barrier()
    dist.destroy_process_group()


def train(out, build="plain", changes={}, steps=1, micro=1, masked=0, drop=0, zero=None, wrapper={}, probe=False, watched=True):
    """Steps of Megatron's own schedule, wrapper, finalizer and optimizer. Returns the wrapped model and the seconds of each."""
    config, ddp, optimizer = built(build, changes, wrapper, zero)
    capture = sumonce_capture.watch(out, steps=range(1, steps + 1), probe=probe) if watched else None
    config.finalize_model_grads_func = sys.modules["megatron.core.distributed.finalize_model_grads"].finalize_model_grads
    seconds = []
    for step in range(1, steps + 1):
        start = time.perf_counter()
        one_step(config, ddp, optimizer, step, micro, masked, drop)
        seconds.append(time.perf_counter() - start)
    if capture:
        capture.close()
    return ddp, seconds


def one_step(config, ddp, optimizer, step, micro, masked, drop):
    ddp.zero_grad_buffer()
    optimizer.zero_grad()
    rank = parallel_state.get_data_parallel_rank()
    batches = [batch_of(step, m, rank, masked, drop) for m in range(micro)]
    megatron_step.get_forward_backward_func()(
        forward_step_func=megatron_step.forward_step, data_iterator=iter(batches), model=[ddp], num_microbatches=micro,
        seq_length=SEQUENCE, micro_batch_size=BATCH, forward_only=False)
    optimizer.step()


def batch_of(step, micro, dp_rank, masked, drop):
    generator = torch.Generator().manual_seed(1000 * step + 100 * micro + dp_rank)
    ids, mask = torch.randint(0, VOCAB, (BATCH, SEQUENCE + 1), generator=generator), torch.ones(BATCH, SEQUENCE)
    mask[:, :masked] = 0
    if drop:
        mask[:, SEQUENCE - drop * (dp_rank + 1):] = 0
    position = torch.arange(SEQUENCE)[None].expand(BATCH, -1)
    return {"ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous(), "mask": mask, "pos": position}


def built(build, changes, wrapper, zero):
    tp = parallel_state.get_tensor_model_parallel_world_size()
    sizes = dict(num_attention_heads=4, gated_linear_unit=False, params_dtype=torch.float32, pipeline_dtype=torch.float32,
                 pipeline_model_parallel_size=parallel_state.get_pipeline_model_parallel_world_size(),
                 expert_model_parallel_size=parallel_state.get_expert_model_parallel_world_size(),
                 expert_tensor_parallel_size=parallel_state.get_expert_tensor_parallel_world_size())
    config = megatron_step.config(tp, **sizes | changes)
    model = MODELS[build](config)
    set_weights(model, zero)
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(**wrapper), model)
    scattered = wrapper.get("use_distributed_optimizer", False)
    torch.Tensor.type = type_like_cuda  # an assertion of Megatron's clipper
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=1e-3, weight_decay=0.01, adam_beta1=0.9, adam_beta2=0.95, clip_grad=1.0, bf16=False, fp16=False,
        use_distributed_optimizer=scattered), [ddp])
    return config, ddp, optimizer


def type_like_cuda(tensor, *args, type_of=torch.Tensor.type, **kwargs):
    name = type_of(tensor, *args, **kwargs)
    return name.replace("torch.Float", "torch.cuda.Float") if isinstance(name, str) else name


def plain(config, spec=None, **kwargs):
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    spec = spec or megatron_step.layer_spec(moe_grouped_gemm=False)
    if isinstance(spec, list):
        spec = megatron_step.TransformerBlockSubmodules(layer_specs=spec, layer_norm=megatron_step.TENorm)
    return megatron_step.GPTModel(config, spec, vocab_size=VOCAB, max_sequence_length=SEQUENCE, position_embedding_type="rope",
                                  pre_process=first, post_process=last, **kwargs)


def mixture(config):
    import megatron.core.transformer.moe.token_dispatcher as dispatcher
    if hasattr(dispatcher, "maybe_move_tensor_to_cpu"):  # which leaves a tensor that is there
        dispatcher.maybe_move_tensor_to_cpu = lambda t, as_numpy=False, **_: t.numpy() if torch.is_tensor(t) and as_numpy else t
    return plain(config, megatron_step.layer_spec(num_experts=4, moe_grouped_gemm=False))


def lora(config, local=True):
    import mcore_bridge.tuners.patcher  # noqa: teaches PEFT the parallel layers
    from mcore_bridge.tuners import lora as layers
    from peft import LoraConfig, get_peft_model
    if local:  # the replicated factor an nn.Linear
        layers._use_legacy_npu_local_linear = lambda: True
    return get_peft_model(plain(config), LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["linear_qkv", "linear_proj"]))


def gated_delta_net(config):
    """A layer of linear attention, then one of softmax attention."""
    import mcore_bridge  # noqa
    from mcore_bridge.model.modules.gated_delta_net import GatedDeltaNet
    from megatron.core.extensions.transformer_engine import TELayerNormColumnParallelLinear, TERowParallelLinear
    from megatron.core.ssm.gated_delta_net import GatedDeltaNetSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    config.linear_decoupled_in_proj = config.fp8_param = False
    linear = megatron_step.layer_spec()
    linear.submodules.self_attention = ModuleSpec(module=GatedDeltaNet, submodules=GatedDeltaNetSubmodules(
        in_proj=TELayerNormColumnParallelLinear, out_norm=megatron_step.TENorm, out_proj=TERowParallelLinear))
    return plain(config, [linear, megatron_step.layer_spec()])


MODELS = {"plain": plain, "tied": functools.partial(plain, share_embeddings_and_output_weights=True), "moe": mixture,
          "lora": lora, "lora_te": functools.partial(lora, local=False), "gdn": gated_delta_net}


def set_weights(model, zero):
    """Each is a slice of the tensor that its name determines."""
    names = sumonce_capture.GlobalNames(model)
    for local_name, parameter in model.named_parameters():
        name = names(local_name)
        dim = cut_of(name)
        size, rank = ((parallel_state.get_expert_tensor_parallel_world_size(), parallel_state.get_expert_tensor_parallel_rank())
                      if "local_experts" in name else
                      (parallel_state.get_tensor_model_parallel_world_size(), parallel_state.get_tensor_model_parallel_rank()))
        shape = list(parameter.shape)
        if dim is not None:
            shape[dim] *= size
        source = "embedding.word_embeddings.weight" if name == "output_layer.weight" and getattr(parameter, "shared", False) else name
        whole = torch.zeros(shape) if zero and zero in name else whole_tensor(source, shape)
        with torch.no_grad():
            parameter.copy_(whole if dim is None else whole.chunk(size, dim)[rank])


COLUMN, ROW = ("linear_qkv", "linear_fc1", "in_proj"), ("linear_proj", "linear_fc2", "out_proj")


def cut_of(name):
    """The dimension that is cut over tp."""
    parts, leaf = name.split("."), name.split(".")[-1]
    if name.endswith(("word_embeddings.weight", "output_layer.weight")) or leaf in ("A_log", "dt_bias") or "conv1d" in parts:
        return 0
    column, row = any(c in parts for c in COLUMN), any(r in parts for r in ROW)
    if "layer_norm" in leaf or not (column or row):
        return None
    if "lora_A" in parts:
        return 1 if row else None
    if "lora_B" in parts:
        return 0 if column else None
    return 0 if column else 1


def whole_tensor(name, shape):
    generator, leaf = torch.Generator().manual_seed(zlib.crc32(name.encode())), name.split(".")[-1]
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if "norm" in name.lower() and "weight" in leaf:
        x = 1 + 0.1 * x
    elif leaf == "A_log":
        x = torch.log(1 + 3 * torch.rand(shape, generator=generator, dtype=torch.float64))
    elif leaf == "dt_bias":
        x = 1 + 0.1 * x
    elif "conv1d" in name:
        x = 0.3 * x
    elif "embedding" in name or "output_layer" in name:
        x = 0.5 * x
    elif len(shape) > 1:
        x = x / shape[-1] ** 0.5
    return x.to(torch.float32)


def unchanged(out, **told):
    """Capture and probe leave the weights after three steps as they are without, bit by bit, whatever the reduction."""
    for reduction in {}, dict(use_distributed_optimizer=True), dict(overlap_grad_reduce=True):
        told |= dict(steps=3, wrapper=reduction)
        with_hook, _ = train(out / "-".join(["plain", *reduction]), **told, probe=True)
        without, _ = train(out, **told, watched=False)
        for (name, one), (_, other) in zip(with_hook.named_parameters(), without.named_parameters()):
            if not torch.equal(one, other):
                sys.exit(f"unchanged: {reduction}: {name} differs by {(one - other).abs().max()}")


def cost(out, **_):
    """Prints what a captured step costs more than another, in steps and as a part of 100 steps."""
    told = dict(changes=dict(num_layers=4, hidden_size=256, ffn_hidden_size=1024), micro=2)
    config, ddp, optimizer = built("plain", told["changes"], {}, None)
    capture = sumonce_capture.watch(out, steps=[], every=5)
    config.finalize_model_grads_func = sys.modules["megatron.core.distributed.finalize_model_grads"].finalize_model_grads
    seconds = []
    for step in range(1, 31):
        start = time.perf_counter()
        one_step(config, ddp, optimizer, step, 2, 0, 0)
        seconds.append(time.perf_counter() - start)
    capture.close()
    median = lambda values: sorted(values)[len(values) // 2]  # noqa: E731
    captured, other = median(seconds[4::5]), median([s for i, s in enumerate(seconds[5:]) if i % 5 != 4])
    if dist.get_rank() == 0:
        size = sum(f.stat().st_size for f in out.glob("step-0005/rank-00000.safetensors"))
        print(f"cost: step {other * 1e3:.1f} ms, captured {captured * 1e3:.1f} ms, {size / 1e6:.1f} MB a rank; every 100 steps: "
              f"{(captured - other) / other:.2f} %")


if __name__ == "__main__":
    main()
