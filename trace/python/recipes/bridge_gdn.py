"""GatedDeltaNet by mcore-bridge 1.6.5, which gathers the sequence before its in_proj, and by Megatron-Core.

    PYTHONPATH=<mcore-bridge 1.6.5> python -m sumonce_trace recipes/bridge_gdn.py:gamma_flagged --tp 2,4 --out traces/gdn-flagged
    PYTHONPATH=<mcore-bridge 1.6.5> python -m sumonce_trace recipes/bridge_gdn.py:gamma_cleared --tp 2,4 --out traces/gdn-cleared

Behind the gather, each rank's gradient of the norm's weight is complete but for its heads, and the backward pass sums it;
the mark `sequence_parallel`, which the norm brings along, has the finalizer sum it once more."""
import peft  # noqa: mcore-bridge imports it within a step: rather once, before the tracer forks
import torch.nn.functional as F
from megatron_step import config, gpt, layer_spec, marking, trace_step

from megatron.core.extensions.transformer_engine import (TELayerNormColumnParallelLinear, TENorm, TERowParallelLinear)
from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec

SIZES = dict(activation_func=F.silu, linear_conv_kernel_dim=4, linear_key_head_dim=4, linear_value_head_dim=4,
             linear_num_key_heads=8, linear_num_value_heads=16)


def gamma_flagged(tp_size, mark=None):
    import mcore_bridge  # noqa
    from mcore_bridge.model.modules.gated_delta_net import GatedDeltaNet as Gathering
    step(tp_size, Gathering, mark)


def gamma_cleared(tp_size):
    gamma_flagged(tp_size, marking("sequence_parallel", False, "self_attention.in_proj.layer_norm_weight"))


def upstream(tp_size):
    step(tp_size, GatedDeltaNet)


def step(tp_size, attention, mark=None):
    """A layer of linear attention, then one of softmax attention."""
    model_config = config(tp_size, **SIZES)
    model_config.linear_decoupled_in_proj = model_config.fp8_param = False  # mcore-bridge's own fields
    linear = layer_spec()
    linear.submodules.self_attention = ModuleSpec(module=attention, submodules=GatedDeltaNetSubmodules(
        in_proj=TELayerNormColumnParallelLinear, out_norm=TENorm, out_proj=TERowParallelLinear))
    trace_step(tp_size, model_config, lambda: gpt(model_config, [linear, layer_spec()]), mark)
