"""Stream: every row once per epoch, the same batches for any world size, labels that belong to their rows."""

from collections import namedtuple
from itertools import chain

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import ProcessGroup
from ccmn.training.stream import Stream

Group = namedtuple("Group", "rows start")


class Numbered:
    """Source whose row i has the feature i and the label i mod 3."""

    d, q = 1, 3

    def __init__(self, sizes, sparse=False):
        starts = np.cumsum([0, *sizes])
        self.groups = [Group(rows, start) for rows, start in zip(sizes, starts)]
        self.sparse, self.n, self.read_rows = sparse, int(starts[-1]), 0

    def read(self, group, at_once):
        for start in range(group.start, group.start + group.rows, at_once):
            rows = np.arange(start, min(start + at_once, group.start + group.rows))
            self.read_rows += len(rows)
            Y = np.eye(3, dtype=np.float32)[rows % 3]
            yield rows[:, None].astype(np.float32), scipy.sparse.csr_matrix(Y) if self.sparse else Y


def batches_of(stream, epoch=0):
    """Return the rows of each batch and check their labels."""
    found = []
    for index, weight in stream.epoch(epoch):
        rows = stream.features.gather(index)[0, :, 0].long()
        labels = stream.labels.targets(index)[0, 0]
        if weight:
            torch.testing.assert_close(labels, torch.eye(3)[rows % 3])
        found.append(rows.tolist() if weight else [])
    return found


def stream_of(source, batch=5, buffer=20, piece=4, seed=0, held_out=(), **options):
    return Stream(source, batch, buffer, piece, seed, held_out=dict(held_out), **options)


@given(
    sizes=st.lists(st.integers(1, 15), min_size=1, max_size=8),
    batch=st.integers(1, 6),
    room=st.integers(1, 30),
    piece=st.integers(1, 7),
    sparse=st.booleans(),
)
def test_every_row_occurs_once_per_epoch(sizes, batch, room, piece, sparse):
    source = Numbered(sizes, sparse)
    stream = stream_of(source, batch, batch + piece + room, piece)
    batches = batches_of(stream)
    assert sorted(chain(*batches)) == list(range(source.n))
    assert all(len(b) == batch for b in batches[:-1])
    assert stream.rows == source.n


@given(sizes=st.lists(st.integers(1, 15), min_size=1, max_size=8), world=st.integers(2, 4), sparse=st.booleans())
def test_batches_do_not_depend_on_the_world_size(sizes, world, sparse):
    alone = batches_of(stream_of(Numbered(sizes, sparse)), epoch=3)
    sources = [Numbered(sizes, sparse) for _ in range(world)]
    shares = [
        batches_of(stream_of(source, group=ProcessGroup(rank, world)), epoch=3) for rank, source in enumerate(sources)
    ]
    together = [sorted(chain(*parts)) for parts in zip(*shares, strict=True)]
    assert together == [sorted(batch) for batch in alone]
    assert sum(source.read_rows for source in sources) == sum(sizes)  # no row is read twice


def test_order_depends_on_seed_and_epoch():
    sizes = [10] * 6
    first, again = (batches_of(stream_of(Numbered(sizes))) for _ in range(2))
    assert first == again
    stream = stream_of(Numbered(sizes))
    assert batches_of(stream, 1) not in (first, batches_of(stream, 2))
    assert batches_of(stream_of(Numbered(sizes), seed=1)) != first
    assert list(chain(*first)) != sorted(chain(*first))


def test_rows_of_a_buffer_come_from_several_row_groups():
    first = batches_of(stream_of(Numbered([100] * 10), 8, 40))[0]
    assert len({row // 100 for row in first}) >= 3


def test_held_out_rows_are_not_used():
    mask = np.zeros(10, dtype=bool)
    mask[[2, 3, 9]] = True
    stream = stream_of(Numbered([10, 10, 10]), held_out={1: mask})
    assert sorted(chain(*batches_of(stream))) == [i for i in range(30) if i not in (12, 13, 19)]
    assert stream.rows == 27


@pytest.mark.parametrize("sparse", [False, True])
def test_labels_are_debiased_in_the_batch(sparse):
    noise = ClassConditionalNoise([0.1, 0.2, 0.0], [0.3, 0.0, 0.2])
    stream = stream_of(Numbered([6, 6], sparse), debias=noise.debiasing())
    index = next(stream.epoch(0)).index
    rows = stream.features.gather(index)[0, :, 0].long()
    expected = noise.debias(np.eye(3, dtype=np.float32)[rows.numpy() % 3])
    np.testing.assert_allclose(stream.labels.targets(index)[0, 0], expected, atol=1e-6)


def test_progress_callback():
    calls = []
    stream = stream_of(Numbered([10, 13]))
    stream.on_progress = lambda *call: calls.append(call)
    batches_of(stream, 2)
    assert calls[-1][:3] == ("epoch 3", 23, 23)


def test_row_group_with_too_few_rows():
    source = Numbered([10, 10])
    source.groups[0] = source.groups[0]._replace(rows=9)
    source.read = lambda group, at_once: iter([(np.zeros((2, 1), np.float32), np.zeros((2, 3), np.float32))])
    with pytest.raises(ValueError, match="damaged"):
        batches_of(stream_of(source))
