class recipe:
    class DelayedScaling:
        def __init__(self, *args, **kwargs):
            pass

    class Format:
        E4M3 = HYBRID = None
