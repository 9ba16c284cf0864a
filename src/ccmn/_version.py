"""The version of the package, where it was installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ccmn")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0+source"
