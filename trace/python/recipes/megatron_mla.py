"""Multi-latent attention of Megatron-Core 0.16.1.

    python -m sumonce_trace recipes/megatron_mla.py:without_sequence_parallel --tp 2,4 --out traces/mla-sp-off

The down projections are replicated. Without sequence parallelism the latent's gradient is complete on every rank, that of
the positional key is of the rank's own heads alone, and both are joined into one."""
from megatron_step import DotProductAttention, config, gpt, layer_spec, trace_step

from megatron.core.transformer.transformer_config import MLATransformerConfig

SIZES = dict(multi_latent_attention=True, qk_layernorm=True, q_lora_rank=16, kv_lora_rank=16, qk_head_dim=8,
             qk_pos_emb_head_dim=8, v_head_dim=8, kv_channels=8, rope_type="rope")


class Attention(DotProductAttention):
    """Of heads of one size: the fused attention that takes two sizes is not traced."""

    def __init__(self, *args, k_channels=None, v_channels=None, **kwargs):
        super().__init__(*args, **kwargs)


def with_sequence_parallel(tp_size, **changes):
    model_config = config(tp_size, kind=MLATransformerConfig, **SIZES | changes)
    spec = layer_spec(multi_latent_attention=True, qk_layernorm=True)
    spec.submodules.self_attention.submodules.core_attention = Attention
    trace_step(tp_size, model_config, lambda: gpt(model_config, spec))


def without_sequence_parallel(tp_size):
    with_sequence_parallel(tp_size, sequence_parallel=False)
