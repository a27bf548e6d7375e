"""Providers behind HTTP."""

from loom.providers.http.client import HttpModel
from loom.providers.http.connecting import ConnectOptions, connect
from loom.providers.http.presets import PRESETS, Preset, split_model

__all__ = ["PRESETS", "ConnectOptions", "HttpModel", "Preset", "connect", "split_model"]
