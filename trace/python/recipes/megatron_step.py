"""One training step of a small Megatron-Core GPT through Megatron's own DDP wrapper, schedule and finalizer, traced.

A recipe beside it says what model; your own job takes the place of `build`. Sizes are such that every shard keeps two of
everything at the second tp size."""
import functools
import importlib

import no_gpu  # noqa: before Megatron. Remove it where there is a GPU.
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.extensions.transformer_engine import TENorm
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

import sumonce_trace

BATCH, SEQUENCE, VOCAB = 2, 32, 32


def config(tp_size, sequence_parallel=True, kind=TransformerConfig, **changes):
    """Two layers, eight heads, hidden size 32; every fusion off, no dropout."""
    given = dict(
        num_layers=2, hidden_size=32, num_attention_heads=8, ffn_hidden_size=32, normalization="RMSNorm",
        add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False,
        masked_softmax_fusion=False, bias_activation_fusion=False, gradient_accumulation_fusion=False,
        apply_rope_fusion=False, deterministic_mode=True, use_cpu_initialization=True, init_method=lambda weight: None,
        output_layer_init_method=lambda weight: None, tensor_model_parallel_size=tp_size,
        sequence_parallel=sequence_parallel and tp_size > 1)
    return kind(**given | changes)


def layer_spec(**kwargs):
    """Transformer Engine's layers around Megatron's own, unfused attention."""
    spec = get_gpt_layer_with_transformer_engine_spec(**kwargs)
    spec.submodules.self_attention.submodules.core_attention = DotProductAttention
    return spec


def gpt(model_config, spec):
    """`spec`: of every layer, or a list with one for each."""
    if isinstance(spec, list):
        spec = TransformerBlockSubmodules(layer_specs=spec, layer_norm=TENorm)
    return GPTModel(model_config, spec, vocab_size=VOCAB, max_sequence_length=SEQUENCE, position_embedding_type="rope")


def trace_step(tp_size, model_config, build, mark=None):
    """build(): the model. mark(model): changes marks of its parameters, in the sharded runs only."""
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp_size)
    model = build()
    if mark is not None and tp_size > 1:
        mark(model)
    ddp = DistributedDataParallel(model_config, DistributedDataParallelConfig(), model)
    finalizer = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    model_config.finalize_model_grads_func = finalizer.finalize_model_grads
    ids, labels = (torch.zeros(BATCH, SEQUENCE, dtype=torch.int64) for _ in range(2))
    batch = {"ids": ids, "labels": labels, "mask": torch.ones(BATCH, SEQUENCE), "pos": torch.arange(SEQUENCE)[None]}
    ddp.zero_grad_buffer()
    with sumonce_trace.trace(ddp, inputs=batch):
        get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=iter([batch]), model=[ddp], num_microbatches=1,
            seq_length=SEQUENCE, micro_batch_size=BATCH, forward_only=False)


def forward_step(batches, model):
    batch = next(batches)
    losses = model(input_ids=batch["ids"], position_ids=batch["pos"], attention_mask=None, labels=batch["labels"])
    return losses, functools.partial(loss_of, batch["mask"])


def loss_of(mask, losses):
    total, tokens = (losses.float() * mask).sum(), mask.sum().to(torch.int)
    return total, tokens, {"lm loss": torch.stack([total.detach(), tokens.to(total.dtype)])}


def marking(attribute, value, *names):
    """A `mark` for trace_step: sets an attribute on every parameter whose name holds one of `names`."""
    def mark(model):
        found = [p for n, p in model.named_parameters() if any(name in n for name in names)]
        if not found:
            raise ValueError(f"no parameter's name holds {' or '.join(names)}")
        for parameter in found:
            setattr(parameter, attribute, value)
    return mark
