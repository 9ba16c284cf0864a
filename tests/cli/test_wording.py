"""Notes and errors speak of options, not of Python's arguments."""

from __future__ import annotations

import re

import numpy as np
import pytest
import typer

from ccmn.cli import app
from ccmn.cli.options import CHOICES
from ccmn.cli.wording import in_options, option_names
from ccmn.data import write_npz
from ccmn.estimation import METHODS
from ccmn.models.monitor import RiskParts, warning_about
from ccmn.models.solvers import NEEDS

OPTIONS = {**option_names(typer.main.get_command(app).commands.values()), "noise_type": "--noise"}  # type: ignore[attr-defined]
PYTHON = re.compile(r"\b\w+=(?!=)|\w\(.*\)|_true\b")


def test_options_are_those_of_all_commands():
    assert OPTIONS["weight_decay"] == "--weight-decay"
    assert OPTIONS["paper_draw"] == "--paper-draw"
    assert OPTIONS["as_json"] == "--json"
    assert "source" not in OPTIONS


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "Declare noise_type='partial' or 'missing', or pass rows as trusted=(rows, Y_true).",
            "Where labels were only added, or only lost, declare it with --noise partial or missing; else give a few "
            "dozen rows with true labels, taken at random: ccmn review asks you for them.",
        ),
        ("leave labels=['a', 'b'] out", "leave --labels out"),
        ("say which: labels=['sea', 'sky'], a pattern", "say which: --labels sea,sky, a pattern"),
        ("a.csv: no column matches labels='x*'", "a.csv: no column matches --labels 'x*'"),
        ("say how many there are, n_labels=...", "say how many there are, --n-labels"),
        ("use correction=None, or one process", "leave --correction out, or one process"),
        ("give memory='5MB' or more, or a smaller batch_size", "give --memory 5MB or more, or a smaller --batch-size"),
        ("lr must be positive; got (-1.0,)", "--lr must be positive; got (-1.0,)"),
        ("no folder was given (data_dir, or CCMN_DATA)", "no folder was given (--data-dir, or CCMN_DATA)"),
        ("give noise=ClassConditionalNoise(rho_pos, rho_neg)", "give --noise rates.json"),
    ],
)
def test_arguments_become_options(said, expected):
    assert in_options(said, OPTIONS) == expected


@pytest.mark.parametrize(
    "message",
    [
        "a.csv, line 3: 'x' in column 'batch_size' is not a number",
        "there is no file runs/lr=0.1/model=mlp.csv",
        "rho_pos + rho_neg must be below 1 for every label; got 0.5 + 0.5 for labels 3 and 7 (of 14)",
        "labels must be 0 or 1 (NaN: not observed); got 2.",
        "noise.json: not JSON (line 1: Expecting value)",
    ],
)
def test_names_of_columns_files_and_quantities_stay(message):
    assert in_options(message, OPTIONS) == message


def test_what_training_says():
    parts = RiskParts(np.full((2, 3), -1.0), np.zeros((2, 3)), np.ones((2, 3)))
    said = warning_about(parts, ("sea", "sky", "sun"), corrected=False)
    assert said is not None
    for message in (said, *NEEDS.values()):
        assert PYTHON.search(message)
        assert not re.search(r"\b\w+=", in_options(message, OPTIONS))
    assert "--correction abs or relu, --loss forward, more --weight-decay" in in_options(said, OPTIONS)


def test_methods_that_need_more_than_a_file_are_not_offered(refused, files):
    offered = set(CHOICES["method"]())
    assert offered < set(METHODS)
    assert set(METHODS) - offered == {"trusted", "dawid_skene", "known_prevalence"}
    assert "'trusted' is none of auto" in refused("noise", "estimate", "task.npz", "--method", "trusted", code=2)


class TestTyped:
    """Commands as they are typed."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("task.csv",), "which columns are labels: --labels sea,sky, a pattern 'label_*'"),
            (("task.csv", "--labels", "x_*"), "no column matches --labels 'x_*'"),
            (("task.csv", "--labels", "99"), "--labels 99 must count columns"),
            (("task.csv", "--labels", "sae,sky"), "there is no label column 'sae'; did you mean 'sea'?"),
            (("task.npz", "--labels", "sea"), "leave --labels out"),
            (("task.npz", "--lr", "-1"), "--lr must be a positive number"),
            (("task.npz", "--solver", "lbfgs"), "--solver lbfgs needs --model linear, --loss hamming"),
            (("task.npz", "--loss", "forward", "--correction", "abs"), "--correction abs does nothing with --loss"),
            (("task.npz", "--validation-fraction", "0"), "--validation-fraction must be between 0 and 1"),
        ],
    )
    def test_errors(self, refused, files, arguments, message):
        assert message in refused("fit", *arguments, "--noise", "none", "--out", "m.ccmn")

    def test_the_side_is_an_option_of_its_own_where_rates_are_estimated(self, run, unnamed, files):
        Y = np.random.default_rng(0).integers(0, 2, unnamed.Y.shape).astype(np.uint8)  # nothing to be learnt
        write_npz(type(unnamed)(unnamed.X, Y), "noise.npz")
        assert "Declare --sides partial or missing" in run("noise", "estimate", "noise.npz").stderr
        assert "Declare --noise partial or missing" in run("audit", "noise.npz").stderr
