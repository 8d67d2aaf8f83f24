"""What GatedDeltaNet imports. Its own reference path runs (deterministic_mode)."""
