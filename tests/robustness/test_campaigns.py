"""Every campaign in small, clients of the review server, the failures that the runner counts, and past failures."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from helpers import ReviewProcess
from robustness import fits, processes
from robustness.campaign import Campaign, Failure, campaigns, command, run

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SMALL = {
    "malformed": 60,
    "kills": 6,
    "interrupts": 6,
    "faults": 4,
    "terminals": 4,
    "fits": 20,
    "workers": 2,
}
CAMPAIGNS = campaigns()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CAMPAIGNS if name != "leaks"])
def test_campaign(name):
    assert run(CAMPAIGNS[name], SMALL.get(name, 10), seed=0).failures == []


@pytest.mark.slow
def test_memory_of_many_fits_is_flat(tmp_path):
    assert "flat" in fits.leak(np.random.default_rng(0), tmp_path, 100)


@pytest.mark.slow
def test_many_clients(tmp_path, request):
    """50 clients ask every .2 s for CCMN_CLIENT_SECONDS: no errors; the times are printed."""
    server = ReviewProcess(tmp_path, "--demo")
    request.addfinalizer(server.kill)
    host, _, query = server.url.removeprefix("http://").partition("/")
    cookie = processes.ask(host, "GET", f"/{query}")[1]["set-cookie"].partition(";")[0]
    row = processes.ask(host, "GET", "/", None, cookie)[1]["location"]
    end, taken = time.monotonic() + float(os.environ.get("CCMN_CLIENT_SECONDS", "2")), []

    def client(_):
        while time.monotonic() < end:
            start = time.monotonic()
            assert processes.ask(host, "GET", row, None, cookie)[0] == 200
            taken.append(time.monotonic() - start)
            time.sleep(0.2)

    with ThreadPoolExecutor(50) as clients:
        list(clients.map(client, range(50)))
    print(f"{len(taken)} requests, median {np.median(taken):.3f} s, 99 % in {np.quantile(taken, 0.99):.3f} s")


# -- The runner


def passes(rng, folder):
    (folder / "file").write_bytes(b"")
    return str(rng.integers(1000))


def fails(rng, folder):
    raise Failure("misread", "1 instead of 2")


def raises(rng, folder):
    raise KeyError("x")


def hangs(rng, folder):
    time.sleep(60)


def crashes(rng, folder):
    os._exit(3)


def grows(rng, folder):
    return str(len(np.ones(40_000_000)))


@pytest.mark.parametrize(
    ("case", "outcome"),
    [(fails, "misread"), (raises, "traceback"), (hangs, "hang"), (crashes, "crash"), (grows, "memory")],
)
def test_failures_are_counted(case, outcome):
    seconds = 1 if case is hangs else 60
    result = run(Campaign("example", case, 1, seconds=seconds, max_bytes=100_000_000), 1, seed=0)
    assert dict(result.outcomes) == {outcome: 1}
    assert [failure[:2] for failure in result.failures] == [(0, outcome)]
    assert "in hangs" in result.failures[0][2] or case is not hangs


def test_runs_continue_and_do_not_depend_on_batches(tmp_path):
    outcomes = [run(Campaign("example", passes, 6, batch=n), 6, seed=3).outcomes for n in (6, 1)]
    log = tmp_path / "log.jsonl"
    run(Campaign("example", passes, 6), 2, seed=3, log=log)
    continued = run(Campaign("example", passes, 6, batch=4), 6, seed=3, log=log)
    assert outcomes[0] == outcomes[1] == continued.outcomes
    assert len(log.read_text().splitlines()) == 6


# -- Failures that campaigns have found


def test_interrupted_reproduction_stores_no_partly_trained_results(tmp_path, monkeypatch):
    """Ctrl-C keeps the best weights of a fit so far; results of tables need all epochs."""
    from ccmn.training import loop

    make_step, steps = loop.make_step, iter(range(70))  # of 100

    def make_interrupted(*arguments, **options):
        step = make_step(*arguments, **options)

        def one(batch):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return step(batch)

        return one

    monkeypatch.setattr(loop, "make_step", make_interrupted)
    assert command(tmp_path, processes.REPRODUCE).code == 130
    monkeypatch.undo()
    assert processes._results(tmp_path).splitlines()[1:]
    assert sorted(processes._results(tmp_path).splitlines()) == processes.reproduced()
