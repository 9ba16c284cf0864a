"""Downloads: files from their public homes, with a checksum, into a cache; needs pooch (``ccmn[download]``)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from ccmn.data.files import PathLike

HOME = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Source:
    """A file in a public repository, at a commit that does not change."""

    repository: str
    commit: str
    path: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's own name."""
        return PurePosixPath(self.path).name

    def url(self, mirror: str | None = None) -> str:
        """Where the file is: at its home, or under ``mirror`` (else ``CCMN_MIRROR``) by the same path."""
        base = mirror or os.environ.get("CCMN_MIRROR") or HOME
        return f"{base.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"


def download(source: Source, *, mirror: str | None = None, cache_dir: PathLike | None = None) -> Path:
    """The file, from the cache or downloaded into it.

    Parameters
    ----------
    source : Source
    mirror : str, optional
        A base address to use in place of GitHub's; else the environment's ``CCMN_MIRROR``.
    cache_dir : path, optional
        Where files are kept; else the environment's ``CCMN_CACHE``, else the user's cache folder.

    Raises
    ------
    ImportError
        Without pooch.
    OSError
        When the server cannot be reached or does not have the file.
    ValueError
        When what came is not the file expected. Nothing is kept of it.
    """
    try:
        import pooch
    except ImportError:
        raise ImportError("downloading needs pooch: pip install 'ccmn[download]'") from None
    url = source.url(mirror)
    pooch.get_logger().setLevel("WARNING")  # it announces every download on stderr otherwise
    try:
        found = pooch.retrieve(
            url,
            known_hash=f"sha256:{source.sha256}",
            fname=source.file,
            path=cache_path(source, cache_dir).parent,
            downloader=pooch.HTTPDownloader(progressbar=sys.stderr.isatty()),
        )
    except OSError as error:
        raise OSError(f"could not download {url}: {_reason(error)}") from None
    except ValueError:
        raise ValueError(
            f"{url} is not the file expected: its checksum (SHA-256) is not {source.sha256}. It was not kept; "
            "try again, or another network or mirror."
        ) from None
    return Path(found)


def cache_path(source: Source, cache_dir: PathLike | None = None) -> Path:
    """Where a download is kept, whether it is there or not."""
    import pooch

    folder = Path(cache_dir or os.environ.get("CCMN_CACHE") or pooch.os_cache("ccmn"))
    return folder / source.repository / source.commit / source.file


def is_cached(source: Source) -> bool:
    """Was the file downloaded before? Never, without pooch."""
    return find_spec("pooch") is not None and cache_path(source).is_file()


def _reason(error: OSError) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered {status}"
    if type(error).__module__.startswith("requests"):
        return "the server cannot be reached"
    return str(error)
