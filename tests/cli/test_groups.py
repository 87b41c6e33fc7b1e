"""`headwater groups`."""

from datetime import timedelta

import pytest

from headwater.streams.consumer import Consumer
from tests.brokers import BOTH
from tests.cli.conftest import Command


@pytest.fixture
def kitchen(headwater: Command) -> Command:
    """A group `kitchen` that has read four records of `orders`, which has two partitions of three."""
    headwater("topics", "create", "orders", "--partitions", "2")
    headwater("produce", "orders", "--timestamp", "1000", stdin=b"0\n1\n2\n")
    headwater("produce", "orders", "--timestamp", "5000", stdin=b"3\n4\n5\n")
    headwater("consume", "orders", "--group", "kitchen", "-n", "4")
    return headwater


def test_groups_are_listed_and_described(kitchen: Command) -> None:
    assert kitchen("groups", "list").lines == ["group    members  lag", "kitchen        0    2"]
    assert kitchen("groups", "list", "--json").json == [{"group": "kitchen", "members": 0, "lag": 2}]
    assert kitchen("groups", "describe").lines == [
        "kitchen (no live members)",
        "topic   partition  committed  end  lag  owner",
        "orders          0          4    4    0      -",
        "orders          1          0    2    2      -",
    ]
    (described,) = kitchen("groups", "describe", "kitchen", "--json").json
    assert described["members"] == []
    assert described["offsets"][1] == {
        "topic": "orders", "partition": 1, "committed": 0, "start": 0, "end": 2, "owner": None, "lag": 2,
    }  # fmt: skip


def test_live_members_are_shown_and_keep_their_offsets(kitchen: Command, broker: str) -> None:
    with Consumer(broker, "orders", group="kitchen", commit_interval=timedelta(0)) as consumer:
        lines = kitchen("groups", "describe", "kitchen").lines
        assert lines[0] == "kitchen"
        assert lines[2] == f"{consumer.member}  orders-0, orders-1"
        assert str(consumer.member) in lines[4]
        for words in (["reset-offsets", "kitchen", "--to-earliest"], ["delete", "kitchen"]):
            result = kitchen("groups", *words)
            assert (result.code, result.out) == (1, b"")
            assert "while it has live members" in result.err
            assert str(consumer.member) in result.err
        assert consumer.committed() == {("orders", 0): 4, ("orders", 1): 0}


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [4, 2]),
        (["--to-offset", "1"], [1, 1]),
        (["--to-offset", "9"], [4, 2]),
        (["--to-time", "1970-01-01T00:00:02Z"], [2, 1]),
        (["--to-time", "1h"], [4, 2]),
        (["--to-offset", "1", "--partition", "0"], [1]),
        (["--to-earliest", "--topic", "orders"], [0, 0]),
    ],
)
def test_offsets_are_reset(kitchen: Command, to: list[str], after: list[int]) -> None:
    dry = kitchen("groups", "reset-offsets", "kitchen", *to, "--dry-run", "--json").json
    assert [row["after"] for row in dry] == after
    before = [4, 0][: len(after)]
    assert [row["before"] for row in dry] == before
    # The dry run has changed nothing, so the real one says the same.
    assert kitchen("groups", "reset-offsets", "kitchen", *to, "--json").json == dry
    (described,) = kitchen("groups", "describe", "kitchen", "--json").json
    assert [at["committed"] for at in described["offsets"]][: len(after)] == after


def test_a_reset_is_shown_as_a_table(kitchen: Command) -> None:
    assert kitchen("groups", "reset-offsets", "kitchen", "--to-earliest", "--dry-run").lines == [
        "topic   partition  before  after",
        "orders          0       4      0",
        "orders          1       0      0",
        "(nothing was changed: --dry-run)",
    ]


@BOTH
def test_what_is_not_there(kitchen: Command) -> None:
    for words, message in [
        (["describe", "office"], "There is no group 'office'"),
        (["delete", "office"], "There is no group 'office'"),
        (["reset-offsets", "office", "--to-latest"], "There is no group 'office'"),
        (["reset-offsets", "kitchen", "--to-latest", "--topic", "nowhere"], "There is no topic 'nowhere'"),
        (["reset-offsets", "kitchen", "--to-latest", "--partition", "7"], "no offset there"),
    ]:
        result = kitchen("groups", *words)
        assert (result.code, result.out) == (1, b""), words
        assert message in result.err


@BOTH
def test_a_group_is_deleted(kitchen: Command) -> None:
    assert kitchen("groups", "delete", "kitchen").text == "kitchen is deleted\n"
    assert kitchen("groups", "list", "--json").json == []
    assert sorted(kitchen("consume", "orders", "--group", "kitchen").text.split()) == ["0", "1", "2", "3", "4", "5"]
