"""A Megatron-Core GPT with sequence parallelism (tried with 0.16.1).

    python -m sumonce_trace recipes/megatron_gpt.py:right --tp 2,4 --out traces/gpt-right

`norm_flag_missing`: two norms without the mark `sequence_parallel`, whose gradients each rank has of its own tokens."""
from megatron_step import config, gpt, layer_spec, marking, trace_step


def right(tp_size, mark=None, **changes):
    model_config = config(tp_size, **changes)
    trace_step(tp_size, model_config, lambda: gpt(model_config, layer_spec()), mark)


def norm_flag_missing(tp_size):
    right(tp_size, marking("sequence_parallel", False, "layers.0.mlp.linear_fc1.layer_norm_weight", "final_layernorm"))


def averaged_final_norm(tp_size):
    right(tp_size, marking("average_gradients_across_tp_domain", True, "final_layernorm"))


def without_sequence_parallel(tp_size):
    right(tp_size, sequence_parallel=False)
