class CudaRNGStatesTracker:
    def __init__(self, *args, **kwargs):
        self.states_ = {}


def checkpoint(*args, **kwargs):
    raise NotImplementedError("the stand-in recomputes nothing")


activation_recompute_forward = checkpoint
