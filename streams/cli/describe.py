"""`headwater describe`: what an application's topology looks like, and how Spark would run it. It owns the options; the
descriptions are the topology's and the query's."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headwater.errors import StreamsError, TopologyError
from headwater.streams.cli.options import add_broker, add_command, add_on, broker
from headwater.streams.cli.output import print_json
from headwater.streams.cli.settings import settings

if TYPE_CHECKING:
    from headwater.dsl.config import Config
    from headwater.dsl.topology import Topology
    from headwater.streams.cli.options import Commands

__all__ = ["add"]


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "describe",
        _describe,
        "show an application's topology",
        """
headwater describe revenue.py
headwater describe revenue.py:topology --mermaid > revenue.mmd
headwater describe revenue.py --dot | dot -Tsvg > revenue.svg
headwater describe revenue.py --on spark           # which step runs native, which in Arrow, which in the task
headwater describe revenue.py --on spark --plan    # Spark's own plan too
""",
        "The text is the one Kafka Streams prints; with --on spark, the stages of its query.",
    )
    parser.add_argument(
        "app",
        metavar="APP.PY[:NAME]",
        help="the file, and the topology's name in it (default: `topology`, else the only one there is)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--mermaid", action="store_true", help="as a Mermaid flow chart")
    form.add_argument("--dot", action="store_true", help="as a Graphviz graph")
    form.add_argument("--json", action="store_true", help="topics, stores and the text as JSON, for scripts")
    form.add_argument("--plan", action="store_true", help="with --on spark: Spark's plan of the query too")
    add_on(parser, "spark: how it would run as a Spark query, which needs its topics (default: local)")
    parser.add_argument("--app-id", metavar="ID", help="the application's id (default: the file's name without .py)")
    add_broker(parser)


def _describe(args: argparse.Namespace) -> int:
    from headwater.streams.cli.app_file import load_app

    if args.plan and args.on != "spark":
        raise StreamsError("--plan: only with --on spark.")
    topology, stem = load_app(args.app)
    app_id = args.app_id or stem
    if args.on == "spark":
        if args.mermaid or args.dot or args.json:
            raise StreamsError("--mermaid, --dot and --json show the topology, the same on Spark: leave out --on.")
        config = settings(args, {"app_id": app_id})
        print(_on_spark(topology, config, broker(args), args.plan).rstrip("\n"))
    elif args.mermaid:
        print(topology.to_mermaid(), end="")
    elif args.dot:
        print(topology.to_dot(), end="")
    elif args.json:
        from headwater.dsl.topology import Sink, Source

        nodes = topology.nodes.values()
        sinks = {node.topic for node in nodes if isinstance(node, Sink) and isinstance(node.topic, str)}
        print_json(
            {
                "app_id": app_id,
                "sources": sorted({topic for node in nodes if isinstance(node, Source) for topic in node.topics}),
                "sinks": sorted(sinks),
                "stores": sorted({*topology.stores, *topology.global_stores}),
                "description": topology.describe(),
            }
        )
    else:
        print(topology.describe(), end="")
    return 0


def _on_spark(topology: "Topology", config: "Config", address: str, plan: bool) -> str:
    # First of all: it says so where Spark is not installed.
    from headwater.streams.spark.session import broker_settings, open_session

    with TemporaryDirectory() as folder:
        # Spark plans nothing without a session.
        log, conf = Path(folder) / "spark.log", {"spark.ui.enabled": "false", **broker_settings(address)}
        spark = open_session(config.app_id, master="local[1]", conf=conf, log=log)
        try:
            from headwater.streams.spark.describe import describe

            return describe(spark, topology, config, address, plan=plan)
        except TopologyError as error:
            raise StreamsError("; ".join(error.faults)) from error
        finally:
            spark.stop()
