"""`headwater query`: rows of a running application's stores. It owns the options and how rows are shown; its workers
answer."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from headwater.errors import StreamsError
from headwater.streams.cli.options import add_broker, add_command, add_json, count, moment
from headwater.streams.cli.output import print_json, print_table, time_text
from headwater.streams.cli.running import add_running, app_id, reaching

if TYPE_CHECKING:
    from headwater.streams.cli.options import Commands

__all__ = ["add"]

_KEYS = {"get": 1, "range": 2, "all": 0, "fetch": 1}


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "query",
        _query,
        "read the stores of a running application",
        """
headwater query revenue                                  # which stores there are
headwater query revenue users get ann
headwater query revenue users range a c --json
headwater query revenue revenue fetch Italy --from 1h    # its windows that started in the last hour
headwater query revenue revenue all --limit 20
headwater query revenue users get ann --broker kafka://host:9092      # of workers anywhere that --listen
headwater query revenue users get ann --url http://host:8080 --stale
""",
        "Rows are those of the last commit. Keys are written as text, numbers or JSON, as the store's keys are.",
    )
    add_running(parser)
    parser.add_argument("store", nargs="?", metavar="STORE", help="which store (default: list them)")
    parser.add_argument(
        "how",
        nargs="?",
        choices=list(_KEYS),
        default="all",
        metavar="HOW",
        help="get KEY, range LO HI ('-' for no bound), fetch KEY (a key's windows or sessions), or all (the default)",
    )
    parser.add_argument("keys", nargs="*", metavar="KEY")
    parser.add_argument("--from", type=moment, dest="since", metavar="TIME", help="windows that start then or later")
    parser.add_argument("--to", type=moment, dest="until", metavar="TIME", help="windows that start then or earlier")
    parser.add_argument("--start", type=moment, metavar="TIME", help="get: the window that starts then")
    parser.add_argument("--end", type=moment, metavar="TIME", help="get: the session that ends then")
    parser.add_argument("--as-of", type=moment, metavar="TIME", help="get: the version that was valid then")
    parser.add_argument("--limit", type=count, default=1000, metavar="N", help="at most so many rows (1000)")
    parser.add_argument("--stale", action="store_true", help="a copy may answer for a task that is on its way")
    add_broker(parser)
    add_json(parser)


def _query(args: argparse.Namespace) -> int:
    from headwater.streams.queries import Query

    with reaching(args) as look:
        app = look()[app_id(args.app)]
        if args.store is None:
            return _list(app.stores(), args.json)
        found = app.query(_question(args, Query), stale=args.stale)
    if args.json:
        print_json(found)
    elif found.rows:
        head = [name for name in ("key", "start", "end", "value", "timestamp") if name in found.rows[0]]
        print_table(head, [[_cell(name, row[name]) for name in head] for row in found.rows])
    if found.more and not args.json:
        print(f"(there are more than {args.limit}: raise --limit)", file=sys.stderr)
    if found.missing and not args.json:
        print(f"(tasks {', '.join(found.missing)} are on their way to a worker: rows are missing)", file=sys.stderr)
    for task, lag in {} if args.json else found.stale.items():
        print(f"(the rows of task {task} are a copy's, {lag:,} records behind)", file=sys.stderr)
    if args.how == "get" and not found.rows:
        if not args.json:
            print(f"headwater: {args.store} has no row for {args.keys[0]}.", file=sys.stderr)
        return 1
    return 0


def _question(args: argparse.Namespace, query: Any) -> Any:
    wanted = _KEYS[args.how]
    if len(args.keys) != wanted:
        keys = f"{wanted or 'no'} key{'' if wanted == 1 else 's'}"
        raise StreamsError(f"{args.how} takes {keys}, but got {len(args.keys)}.")
    times = {
        name: None if (given := getattr(args, name)) is None else int(given.timestamp() * 1000)
        for name in ("since", "until", "start", "end", "as_of")
    }
    names = ("lo", "hi") if args.how == "range" else ("key",)
    bounds = {name: key for name, key in zip(names, args.keys, strict=False) if args.how != "range" or key != "-"}
    return query(store=args.store, how=args.how, limit=args.limit, text=True, **bounds, **times)


def _list(stores: list[dict[str, Any]], as_json: bool) -> int:
    if as_json:
        print_json(stores)
    else:
        rows = [[s["name"], s["kind"] + (" (global)" if s["global"] else ""), s["key"], s["value"]] for s in stores]
        print_table(["store", "kind", "key", "value"], rows)
    return 0


def _cell(name: str, value: Any) -> Any:
    if name in ("start", "end", "timestamp"):
        return time_text(value)
    if isinstance(value, str | int | float):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()
