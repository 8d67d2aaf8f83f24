"""LoRA by mcore-bridge and PEFT on a Megatron-Core GPT, sequence parallel: the replicated factors see their rank's tokens.

    PYTHONPATH=<mcore-bridge 1.5.2> python -m sumonce_trace recipes/bridge_lora.py:replica --tp 2,4 --out traces/lora-bug
    PYTHONPATH=<mcore-bridge 1.6.5> python -m sumonce_trace recipes/bridge_lora.py:replica --tp 2,4 --out traces/lora-fixed

Version 1.5.2 leaves the replicated factors unmarked, so nothing sums their gradients; 1.6.5 marks them."""
from megatron_step import config, gpt, layer_spec, marking, trace_step

import mcore_bridge.tuners.patcher  # noqa: teaches PEFT the parallel layers
from mcore_bridge.tuners import lora
from peft import LoraConfig, get_peft_model

TARGETS = ["linear_qkv", "linear_proj"]


def replica(tp_size, mark=None, **changes):
    # The branch that makes the replicated factor an nn.Linear, as where Transformer Engine may not be used for it.
    lora._use_legacy_npu_local_linear = lambda: True
    model_config = config(tp_size, hidden_size=64, ffn_hidden_size=128, **changes)
    trace_step(tp_size, model_config, lambda: with_adapters(gpt(model_config, layer_spec())), mark)


def replica_averaged(tp_size):
    replica(tp_size, marking("average_gradients_across_tp_domain", True, "linear_proj.lora_B", "linear_qkv.lora_A"))


def with_adapters(model):
    return get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS))
