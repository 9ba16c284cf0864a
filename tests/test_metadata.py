"""Metadata of the package: citation, badges, and the checks before a release."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = dict(re.findall(r'^([\w-]+) = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
CITATION = (ROOT / "CITATION.cff").read_text()


def test_citation_matches_the_project():
    entries = dict(re.findall(r"^([\w-]+): +\"?(.+?)\"?$", CITATION, re.MULTILINE))
    assert {"cff-version", "message", "title", "version", "license", "type"} <= entries.keys()
    assert (entries["version"], entries["license"]) == (PROJECT["version"], PROJECT["license"])
    readme = " ".join((ROOT / "README.md").read_text().split())
    for text in re.findall(r"^  (?:title|doi): \"?(.+?)\"?$", CITATION, re.MULTILINE):
        assert text in readme


def test_badges_are_true():
    for name, value in {"license": PROJECT["license"], "python": PROJECT["requires-python"]}.items():
        badge = (ROOT / "docs" / "badges" / f"{name}.svg").read_text()
        shown = re.search("<title>(.+)</title>", badge)[1].replace("&gt;", ">").replace(" ", "")
        assert shown == f"{name}:{value}"
        assert f"](docs/badges/{name}.svg)" in (ROOT / "README.md").read_text()


@pytest.fixture
def released(tmp_path):
    """Return a folder with the files of a version that can be released."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ccmn"\nversion = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.0]\n\n### Added\n- Entry.\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("pyproject.toml", "1.2.0", "1.2.0+local", r"the version must be like 1\.2\.3"),
        ("CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.1.0", r"CITATION\.cff: the version is 1\.1\.0"),
        ("CHANGELOG.md", "[1.2.0]", "[1.1.0]", r"no section \[1\.2\.0\]"),
        ("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n### Added\n- New.\n", r"entries of \[Unreleased\]"),
    ],
)
def test_release_check_names_what_is_missing(released, name, old, new, message):
    problems = runpy.run_path(str(ROOT / ".ci" / "check-release"))["problems"]
    assert problems(released, "") == []
    assert problems(released, " M README.md\n") == ["git: commit or remove the changed files"]
    path = released / name
    path.write_text(path.read_text().replace(old, new, 1))
    assert re.search(message, "\n".join(problems(released, "")))
