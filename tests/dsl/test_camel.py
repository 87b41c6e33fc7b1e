import copy
import pickle

import pytest

from headwater.dsl.camel import CamelCase


class Stream(CamelCase):
    def __init__(self) -> None:
        self.label = "s"

    def filter_not(self) -> str:
        return f"filter_not {self.label}"

    def group_by_key(self) -> str:
        return "group_by_key"

    def default(self) -> str:
        return "default"

    def my_own(self) -> str:
        return "my_own"


def test_kafka_streams_spellings_find_the_method() -> None:
    stream = Stream()
    assert stream.filterNot() == "filter_not s"  # type: ignore[attr-defined]
    assert stream.groupByKey() == "group_by_key"  # type: ignore[attr-defined]
    assert stream.defaultBranch() == "default"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["myOwn", "toStream", "mapValues"])
def test_only_known_names_of_methods_that_are_there(name: str) -> None:
    assert not hasattr(Stream(), name)


@pytest.mark.parametrize(
    ("typo", "hint"),
    [
        ("filterNto", ": did you mean 'filterNot'?"),
        ("filter_nto", ": did you mean 'filter_not'?"),
        ("groupByKye", ": did you mean 'groupByKey'?"),
        ("zzz", ""),
        ("_labell", ""),
    ],
)
def test_a_typo_gets_a_hint(typo: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(Stream(), typo)
    assert str(error.value) == f"'Stream' object has no attribute {typo!r}{hint}"


def test_copies_and_half_made_objects_are_left_alone() -> None:
    stream = Stream()
    assert copy.deepcopy(stream).label == copy.copy(stream).label == pickle.loads(pickle.dumps(stream)).label == "s"
    with pytest.raises(AttributeError, match="label"):
        Stream.__new__(Stream).filterNot()  # type: ignore[attr-defined]
