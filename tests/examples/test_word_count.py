"""Words are counted whole, wherever they occur."""

from collections import Counter

import pytest

from examples import data
from examples.word_count import topology
from headwater import TopologyTestDriver


def test_case_and_punctuation_make_no_other_word() -> None:
    with TopologyTestDriver(topology) as driver:
        driver.input("lines").send(None, "To be, or not to be? Don't ask -- I don't know.", at=0)
        counts = dict(driver.store("counts").all())
    assert counts == {"to": 2, "be": 2, "or": 1, "not": 1, "don't": 2, "ask": 1, "i": 1, "know": 1}


def test_each_update_replaces_the_last() -> None:
    with TopologyTestDriver(topology) as driver:
        driver.input("lines").send(None, "tea, more tea", at=5)
        updates = driver.output("word-counts").read_all()
    assert [(update.key, update.value) for update in updates] == [("tea", 1), ("more", 1), ("tea", 2)]


def test_a_line_without_words_counts_nothing() -> None:
    with TopologyTestDriver(topology) as driver:
        driver.input("lines").send(None, " ... ", at=0)
        assert driver.output("word-counts").read_all() == []


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_counts_are_right_in_any_number_of_partitions(partitions: int) -> None:
    lines = list(data.word_count(50))
    with TopologyTestDriver(topology, partitions=partitions) as driver:
        driver.send_all(lines)
        counts = dict(driver.store("counts").all())
        last = {update.key: update.value for update in driver.output("word-counts").read_all()}
    words = (word.strip(",.") for _, _, line, _ in lines for word in line.lower().split())
    assert counts == last == Counter(words)
