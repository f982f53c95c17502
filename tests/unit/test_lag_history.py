"""The samples of the tail's lag are bounded, and a peak stays."""

from migrator.pipeline.tail.metrics import MOST, LagSample, thinned


def test_few_samples_stay_as_they_are() -> None:
    samples = [LagSample(at, 1) for at in range(MOST)]
    assert thinned(samples) == samples


def test_the_older_half_is_joined_and_its_peak_stays() -> None:
    samples = [LagSample(at * 10, 900 if at == 3 else at % 3) for at in range(11)]
    found = thinned(samples, 10)
    assert len(found) <= 10
    assert found[-6:] == samples[-6:]
    assert LagSample(30, 900) in found
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)


def test_a_day_of_samples_is_bounded_and_begins_where_it_began() -> None:
    kept: list[LagSample] = []
    for at in range(8_640):
        kept = thinned([*kept, LagSample(at, int(at == 17))])
        assert len(kept) <= MOST
    assert kept[0].at_s < 100 or LagSample(17, 1) in kept
    assert LagSample(17, 1) in kept
