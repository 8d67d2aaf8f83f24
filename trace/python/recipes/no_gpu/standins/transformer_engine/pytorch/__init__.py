import inspect

import torch
import torch.nn.functional as F
from torch import nn

from . import distributed, fp8
from .fp8 import fp8_autocast, fp8_model_init


def _communicate(mapping, x, group, *args):
    """One of megatron.core.tensor_parallel.mappings; older versions take no group."""
    from megatron.core.tensor_parallel import mappings
    function = getattr(mappings, mapping)
    takes_group = "group" in inspect.signature(function).parameters
    return function(x, *args, **({"group": group} if takes_group else {}))


def _mark_shard(parameter, dim):
    parameter.tensor_model_parallel = True
    parameter.partition_dim = dim
    parameter.partition_stride = 1


class Linear(nn.Module):
    # y = x W^T. column: W [out/tp, in], x gathered over s or copied; row: W [out, in/tp], y reduce-scattered or all-reduced.
    def __init__(self, in_features, out_features, sequence_parallel=False, tp_group=None, tp_size=1, init_method=None,
                 bias=True, return_bias=False, params_dtype=None, parallel_mode=None, **_):
        super().__init__()
        self.tp_group, self.tp_size, self.parallel_mode = tp_group, tp_size, parallel_mode
        self.sequence_parallel = sequence_parallel and tp_size > 1
        self.return_bias, self.use_bias, self.fuse_wgrad_accumulation = return_bias, bias, False
        self.in_features = in_features // tp_size if parallel_mode == "row" else in_features
        self.out_features = out_features // tp_size if parallel_mode == "column" else out_features
        self.weight = nn.Parameter(torch.empty(self.out_features, self.in_features, dtype=params_dtype))
        if init_method is not None:
            init_method(self.weight)
        _mark_shard(self.weight, 1 if parallel_mode == "row" else 0)  # of every mode, replicated ones too
        self.bias = nn.Parameter(torch.zeros(self.out_features, dtype=params_dtype)) if bias else torch.tensor([])
        if bias and parallel_mode == "row":
            self.bias.sequence_parallel = self.sequence_parallel
        elif bias and parallel_mode == "column":
            _mark_shard(self.bias, 0)

    def forward(self, x, is_first_microbatch=None, **_):
        y = self._reduced(F.linear(self._gathered(x), self.weight))
        if not self.use_bias:
            return y
        return (y, self.bias) if self.return_bias else y + self.bias

    def _gathered(self, x):
        if self.parallel_mode != "column" or self.tp_size == 1:
            return x
        if self.sequence_parallel:
            return _communicate("gather_from_sequence_parallel_region", x, self.tp_group, True)
        return _communicate("copy_to_tensor_model_parallel_region", x, self.tp_group)

    def _reduced(self, y):
        if self.parallel_mode != "row" or self.tp_size == 1:
            return y
        mapping = "reduce_scatter_to_sequence_parallel_region" if self.sequence_parallel else \
            "reduce_from_tensor_model_parallel_region"
        return _communicate(mapping, y, self.tp_group)


def _normalised(x, weight, bias, normalization, eps, zero_centered_gamma):
    weight = weight + 1 if zero_centered_gamma else weight
    if normalization == "RMSNorm":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


class LayerNormLinear(Linear):
    def __init__(self, in_features, out_features, eps=1e-5, normalization="LayerNorm", zero_centered_gamma=False,
                 return_layernorm_output=False, params_dtype=None, **kwargs):
        super().__init__(in_features, out_features, params_dtype=params_dtype, **kwargs)
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        self.return_layernorm_output = return_layernorm_output
        self.layer_norm_weight = nn.Parameter(torch.ones(in_features, dtype=params_dtype))
        self.layer_norm_bias = None
        if normalization == "LayerNorm":
            self.layer_norm_bias = nn.Parameter(torch.zeros(in_features, dtype=params_dtype))
            self.layer_norm_bias.sequence_parallel = self.sequence_parallel
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel

    def forward(self, x, is_first_microbatch=None, **_):
        normalised = _normalised(x, self.layer_norm_weight, self.layer_norm_bias, self.normalization, self.eps,
                                 self.zero_centered_gamma)
        y = super().forward(normalised)
        return (y, normalised) if self.return_layernorm_output else y


class RMSNorm(nn.Module):
    def __init__(self, hidden_size=None, eps=1e-5, sequence_parallel=None, params_dtype=None, normalized_shape=None,
                 zero_centered_gamma=False, **_):
        super().__init__()
        size = normalized_shape if hidden_size is None else hidden_size
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        self.weight = nn.Parameter(torch.ones(size, dtype=params_dtype))
        self.bias = nn.Parameter(torch.zeros(size, dtype=params_dtype)) if type(self).__name__ == "LayerNorm" else None
        for parameter in self.parameters() if sequence_parallel is not None else ():
            parameter.sequence_parallel = sequence_parallel

    def forward(self, x):
        return _normalised(x, self.weight, self.bias, type(self).__name__, self.eps, self.zero_centered_gamma)


class LayerNorm(RMSNorm):
    pass


# Named as base classes, never run.
class GroupedLinear(nn.Module):
    pass


class DotProductAttention(nn.Module):
    pass


class GroupedTensor:
    pass


class ops:
    class Sequential(nn.Module):
        pass

    class FusibleOperation(nn.Module):
        pass

    GELU = GEGLU = SwiGLU = ReLU = ReGLU = FusibleOperation  # in a table of Megatron-Core 0.14
