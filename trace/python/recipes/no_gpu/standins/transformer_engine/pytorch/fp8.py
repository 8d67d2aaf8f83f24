import contextlib


class FP8GlobalStateManager:
    @staticmethod
    def is_fp8_enabled():
        return False


def fp8_autocast(enabled=False, **_):
    return contextlib.nullcontext()


fp8_model_init = fp8_autocast
