"""The keyed randomness: known answers, independence of batching and device, statistics."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from dubito import _random as R

WORD = (1 << 64) - 1


def splitmix(state: int) -> int:
    """SplitMix64's output function as published (Steele, Lea, Flood 2014), in Python integers."""
    z = state & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def test_known_answers_of_splitmix64():
    # The first outputs for seed 1234567 are published with the reference implementation.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [int(R.bits(i + 1, 1234567)) & WORD for i in range(4)] == known
    tensors = R.bits(torch.arange(1, 5), 1234567)
    assert [int(v) & WORD for v in tensors] == known


def test_bits_equal_the_chain_in_python_integers():
    golden, state = 0x9E3779B97F4A7C15, R.key("crop")
    for counter in (5, 2, 77):
        state = splitmix(state + golden * counter)
    for combination in (
        R.bits(5, "crop", 2, 77),
        R.bits(5, "crop", torch.tensor(2), 77),
        R.bits(torch.tensor(5), "crop", 2, torch.tensor([77]))[0],
        R.bits(5, R.key("crop"), torch.tensor([[2]]), torch.arange(100))[0, 77],
    ):
        assert int(combination) & WORD == state


def test_negative_and_large_seeds():
    assert int(R.bits(-1, "a", 0)) == int(R.bits(torch.tensor(-1), "a", 0))
    assert int(R.bits(2**64 + 3, "a")) == int(R.bits(3, "a"))


def test_a_draw_does_not_depend_on_its_batch_or_order():
    index = torch.tensor([9, 2, 2, 500])
    everything = R.uniform(1, "flip", 3, torch.arange(1000))
    assert torch.equal(R.uniform(1, "flip", 3, index), everything[index])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_is_uniform_in_every_counter(dtype):
    n = 40_000
    for u in (
        R.uniform(0, "u", torch.arange(n), dtype=dtype),
        R.uniform(torch.arange(n), "u", 0, dtype=dtype),
        R.uniform(0, "u", torch.arange(n), 1, dtype=dtype),
    ):
        assert u.dtype == dtype
        assert 0 <= float(u.min()) < float(u.max()) < 1
        counts = np.bincount((u.double() * 100).long().numpy(), minlength=100)
        chi_square = float(((counts - n / 100) ** 2 / (n / 100)).sum())
        assert chi_square < 160  # 99 degrees of freedom: exceeded with probability 1e-4
        lag = torch.corrcoef(torch.stack([u[:-1], u[1:]]).double())[0, 1]
        assert abs(float(lag)) < 4 / n**0.5


def test_purposes_seeds_and_epochs_are_independent():
    base = R.uniform(0, "a", 0, torch.arange(20_000)).double()
    for other in (("b", 0, 0), ("a", 1, 0), ("a", 0, 1)):
        purpose, seed, epoch = other
        u = R.uniform(seed, purpose, epoch, torch.arange(20_000)).double()
        assert abs(float(torch.corrcoef(torch.stack([base, u]))[0, 1])) < 0.03


def test_integers_cover_the_range_evenly():
    draws = R.integers(9, 0, "crop", torch.arange(90_000))
    counts = torch.bincount(draws, minlength=9).double()
    assert len(counts) == 9
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 32  # 8 degrees of freedom, 1e-4
    assert int(R.integers(2**31 - 1, 0, "x", torch.arange(1000)).min()) >= 0


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_permutation(n):
    p = R.permutation(n, seed=0, epoch=1)
    assert sorted(p.tolist()) == list(range(n))
    assert torch.equal(p, R.permutation(n, seed=torch.tensor(0), epoch=torch.tensor(1)))
    if n == 1000:
        assert not torch.equal(p, R.permutation(n, seed=0, epoch=2))
        assert not torch.equal(p, R.permutation(n, seed=0, epoch=1, purpose="split"))


def test_generators_are_keyed_and_the_global_ones_untouched():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    draws = {
        (seed, step, purpose): torch.rand(2, generator=R.generator(seed, step, purpose)).tolist()
        for seed in (0, 1)
        for step in (0, 1)
        for purpose in ("a", "b")
    }
    assert len({tuple(v) for v in draws.values()}) == 8
    assert torch.rand(2, generator=R.generator(1, 0, "b")).tolist() == draws[1, 0, "b"]
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


def test_the_highest_bits_make_the_number():
    """53 of the 64 for double precision, 24 for single; a key is the first 63 bits of SHA-256."""
    words = [int(v) & WORD for v in R.bits(3, "flip", torch.arange(200))]
    double = R.uniform(3, "flip", torch.arange(200), dtype=torch.float64)
    single = R.uniform(3, "flip", torch.arange(200))
    half = R.uniform(3, "flip", torch.arange(200), dtype=torch.bfloat16)
    assert double.tolist() == [(w >> 11) / 2**53 for w in words]
    assert single.tolist() == [(w >> 40) / 2**24 for w in words]
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    assert torch.equal(half, single.bfloat16())
    assert R.key("flip") == int(hashlib.sha256(b"flip").hexdigest()[:16], 16) >> 1
    order = sorted(range(50), key=lambda i: int(R.bits(4, "shuffle", 0, i)))
    assert R.permutation(50, 4).tolist() == order
    assert R.generator(5, 6, "mask").initial_seed() == int(R.bits(5, "mask", 6)) & (WORD >> 1)


def test_key_is_not_pythons_hash():
    assert R.key("shuffle") == int(hashlib.sha256(b"shuffle").hexdigest()[:16], 16) // 2


def test_traces_as_one_graph():
    flip = R.key("flip")

    def draw(seed, epoch, index):
        return R.uniform(seed, flip, epoch, index), R.integers(9, seed, flip, epoch, index)

    compiled = torch.compile(draw, fullgraph=True, backend="aot_eager")
    arguments = torch.tensor(3), torch.tensor(4), torch.arange(50)
    for mine, theirs in zip(compiled(*arguments), draw(*arguments)):
        assert torch.equal(mine, theirs)


@pytest.mark.gpu
def test_the_same_bits_on_cuda_and_in_a_captured_graph():
    index = torch.arange(5000, device="cuda")
    seed, epoch = torch.tensor(3, device="cuda"), torch.tensor(4, device="cuda")
    R.uniform(seed, "flip", epoch, index)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = R.uniform(seed, "flip", epoch, index)
    epoch.fill_(9)
    graph.replay()
    assert torch.equal(drawn.cpu(), R.uniform(3, "flip", 9, torch.arange(5000)))
    assert torch.equal(R.permutation(5000, 3, 4, device="cuda").cpu(), R.permutation(5000, 3, 4))
