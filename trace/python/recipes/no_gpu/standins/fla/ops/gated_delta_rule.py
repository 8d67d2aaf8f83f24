def chunk_gated_delta_rule(*args, **kwargs):
    raise NotImplementedError("no fused kernel here: use deterministic_mode")
