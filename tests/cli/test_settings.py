"""Where settings come from, which of them wins, and what is said of wrong ones."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from headwater.dsl.config import Config
from headwater.errors import StreamsError
from tests.cli.conftest import Command, settings

TOML = """
broker = "kafka://file:9092"
app_id = "shop"
cache_bytes = "64MiB"
standbys = 1

[app]
commit_interval = "2s"
optimize = ["self-join"]
exactly_once = false
replication_factor = "3"

[kafka]
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
"sasl.username" = "ann"
sasl.password = "hunter2"
enable.ssl.certificate.verification = false
"max.task.idle.ms" = 50
socket.timeout.ms = 7000
"""
CLIENT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "hunter2",
    "enable.ssl.certificate.verification": "false",
    "socket.timeout.ms": "7000",
}


def test_a_file_in_the_working_directory_is_read(folder: Path) -> None:
    (folder / "headwater.toml").write_text(TOML)
    assert settings([], {}) == Config(
        "shop",
        cache_bytes=64 << 20,
        standbys=1,
        commit_interval=timedelta(seconds=2),
        optimize={"self-join"},
        exactly_once=False,
        replication_factor=3,
        max_task_idle=timedelta(milliseconds=50),
        kafka=CLIENT,
    )


def test_each_place_wins_over_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.toml").write_text(TOML)
    monkeypatch.setenv("HEADWATER_KAFKA_SASL_USERNAME", "bob")
    monkeypatch.setenv("HEADWATER_KAFKA_SASL_PASSWORD", "hunter3")
    monkeypatch.setenv("HEADWATER_KAFKA_LOG_LEVEL", "3")
    given = settings(
        ["sasl.username=cat", "debug=broker", "cache_bytes=1000", "standbys=2"],
        {"standbys": 3},
        config="other.toml",
        bootstrap_server="localhost:9092",
    )
    changes = {"sasl.username": "cat", "sasl.password": "hunter3", "log_level": "3", "debug": "broker"}
    assert given.kafka == CLIENT | changes
    assert (given.cache_bytes, given.standbys, given.app_id) == (1000, 3, "shop")


def test_the_application_is_named_by_the_option_then_the_settings_then_its_file(folder: Path) -> None:
    assert settings([], {}).app_id == "headwater"
    assert settings(["application.id=a"], {}).app_id == "a"
    assert settings(["application.id=a", "app_id=b"], {}).app_id == "b"
    assert settings(["app_id=b"], {"app_id": "c"}).app_id == "c"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = ", "headwater.toml is no TOML: Invalid value"),
        ("cache_byte = 1", "headwater.toml: cache_byte: there is no setting 'cache_byte', only app_id, cache_bytes"),
        ("[spark]\nx = 1", "headwater.toml: spark: there is no setting 'spark'"),
        ("commit_interval = 5", "commit_interval must be a timedelta"),
        ('commit_interval = "soon"', "headwater.toml: commit_interval: 'soon' is no duration"),
        ('standbys = "one"', "headwater.toml: standbys: 'one' is no whole number"),
        ("kafka = 1", "headwater.toml: app and kafka must be tables"),
        ("[kafka]\nsasl.password = [1]", "headwater.toml: sasl.password must be text, a number, true or false"),
        ("broker = 9092", "headwater.toml: broker must be an address"),
        ('broker = "localhost:9092"', "Broker 'localhost:9092': the scheme is missing"),
    ],
)
def test_a_file_that_is_wrong_is_told_so(folder: Path, headwater: Command, text: str, told: str) -> None:
    (folder / "headwater.toml").write_text(text)
    (folder / "app.py").write_text("from headwater import Topology\ntopology = Topology()\n")
    found = headwater("run", "app.py")
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert told in found.err


def test_a_file_that_is_asked_for_must_be_there(folder: Path) -> None:
    with pytest.raises(StreamsError, match=r"Cannot read shop\.toml: No such file"):
        settings([], {}, config="shop.toml")


CODE = {
    "plugin.library.paths": '[kafka]\nplugin.library.paths = "./planted.so"\n',
    "sasl.kerberos.kinit.cmd": '[kafka.sasl.kerberos]\n"kinit.cmd" = "touch planted"\n',
    "ssl.engine.location": '[kafka]\n"ssl.engine.location" = "./planted.so"\n',
    "ssl.engine.id": '[kafka]\nssl.engine.id = "planted"\n',
    "ssl.providers": '[kafka]\nssl.providers = "planted"\n',
}


@pytest.mark.parametrize("name", CODE)
def test_a_planted_file_runs_no_code(folder: Path, headwater: Command, name: str) -> None:
    (folder / "headwater.toml").write_text(CODE[name])
    for words in (["topics", "list", "--broker", "kafka://localhost:1"], ["topics", "list"]):
        found = headwater(*words)
        assert found.code == 1
        assert f"headwater.toml: {name} can run code" in found.err
        assert "--config headwater.toml" in found.err
    # Both remedies: the file is named, or the setting is given itself.
    assert name in settings([], {}, config="headwater.toml").kafka
    (folder / "headwater.toml").unlink()
    assert settings([f"{name}=mine"], {}, broker="kafka://localhost:1").kafka == {name: "mine"}


def test_a_named_file_that_others_can_write_runs_no_code(folder: Path) -> None:
    file = folder / "mine" / "shop.toml"
    file.parent.mkdir()
    file.write_text(CODE["plugin.library.paths"])
    file.chmod(0o600)
    assert settings([], {}, config=str(file)).kafka == {"plugin.library.paths": "./planted.so"}
    for place, mode in ((file, 0o620), (file, 0o602), (file.parent, 0o777), (file.parent.parent, 0o770)):
        before = place.stat().st_mode
        place.chmod(mode)
        with pytest.raises(StreamsError, match=rf"plugin\.library\.paths can run code.*chmod go-w {place}\)"):
            settings([], {}, config=str(file))
        place.chmod(before)
    file.parent.chmod(0o1777)  # as /tmp: others may add files there, and replace none
    assert settings([], {}, config=str(file)).kafka == {"plugin.library.paths": "./planted.so"}


def test_a_named_file_of_another_user_runs_no_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "shop.toml").write_text(CODE["plugin.library.paths"])
    assert settings([], {}, config="shop.toml").kafka
    real = os.fstat

    def of_another(fd: int) -> os.stat_result:
        found = real(fd)
        return os.stat_result((*found[:4], os.geteuid() + 1, *found[5:]))

    monkeypatch.setattr(os, "fstat", of_another)
    with pytest.raises(StreamsError, match=r"shop\.toml belongs to another user \(uid \d+\)"):
        settings([], {}, config="shop.toml")


def test_settings_of_kafka_need_kafka_only_when_they_are_typed(folder: Path) -> None:
    (folder / "headwater.toml").write_text('[kafka]\nsecurity.protocol = "ssl"\n')
    assert settings([], {}).kafka == {"security.protocol": "ssl"}
    with pytest.raises(StreamsError, match=r"no counterpart of socket\.timeout\.ms: leave it out.*kafka://"):
        settings(["socket.timeout.ms=5"], {}, broker="log://x")


def test_the_broker_of_the_file_comes_last(folder: Path, headwater: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "headwater.toml").write_text('broker = "log://from-file"\n')
    assert headwater("topics", "create", "a").code == 0
    monkeypatch.setenv("HEADWATER_BROKER", "log://from-environment")
    assert headwater("topics", "create", "b").code == 0
    assert headwater("topics", "create", "c", "--broker", "log://from-option").code == 0
    assert {path.name for path in folder.iterdir()} == {
        "headwater.toml",
        "from-file",
        "from-environment",
        "from-option",
    }


def test_a_broker_is_named_once(headwater: Command) -> None:
    found = headwater("topics", "list", "--broker", "log://x", "--bootstrap-server", "localhost:9092")
    assert found.code == 2
    assert "not allowed with argument --broker" in found.err


def test_options_of_a_worker_that_do_not_go_together(folder: Path, headwater: Command) -> None:
    for options, told in (
        (("--instance-id", "w", "--workers", "2"), "--instance-id names one worker"),
        (("--on", "spark", "--standbys", "1", "--listen", "127.0.0.1:1"), "--standbys, --listen: only with --on local"),
        (("--listen", "8080"), "listen must be host:port"),
    ):
        (folder / "app.py").write_text("from headwater import Topology\ntopology = Topology()\n")
        found = headwater("run", "app.py", *options)
        assert found.code == 1
        assert told in found.err


def test_names_that_have_changed(folder: Path) -> None:
    (folder / "headwater.toml").write_text('[app.renamed]\ncounts = "sums"\nold = ""\n')
    assert settings([], {}).renamed == {"counts": "sums", "old": None}
    assert settings(["renamed=a=b,c="], {}).renamed == {"a": "b", "c": None}
    with pytest.raises(StreamsError, match=r"'a' should be OLD=NEW"):
        settings(["renamed=a"], {})
    with pytest.raises(StreamsError, match="renamed must be a mapping from old names to new ones, each new one once"):
        settings(["renamed=a=b,c=b"], {})
