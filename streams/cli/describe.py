"""`headwater describe`: what an application's topology looks like. It owns the options; the description is the
topology's."""

import argparse
from typing import TYPE_CHECKING

from headwater.streams.cli.options import add_command
from headwater.streams.cli.output import print_json

if TYPE_CHECKING:
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
""",
        "The text is the one Kafka Streams prints.",
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


def _describe(args: argparse.Namespace) -> int:
    from headwater.streams.cli.app_file import load_app

    topology, app_id = load_app(args.app)
    if args.mermaid:
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
