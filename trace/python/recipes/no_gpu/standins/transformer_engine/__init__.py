"""What Megatron-Core's wrappers build on, in plain PyTorch: the communication of each linear mode, the module attribute
`sequence_parallel` that is read at every forward, and the marks written on parameters, as Transformer Engine has them. No
fp8, no fused kernels, no overlap."""
from . import common, pytorch

__version__ = "2.6.0"
