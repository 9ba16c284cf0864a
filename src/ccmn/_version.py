"""Version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ccmn")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0+source"
