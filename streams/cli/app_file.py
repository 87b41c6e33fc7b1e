"""Application files: from `app.py[:name]` to the topology in it. It owns which topology of a file is meant and what is
said of a file that cannot be taken; nothing is run."""

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headwater.errors import StreamsError

if TYPE_CHECKING:
    from headwater.dsl.topology import Topology

__all__ = ["load_app"]


def load_app(path: str) -> "tuple[Topology, str]":
    """Return the topology of `app.py[:name]` and the application id that its file name gives.

    Without a name it is the file's `topology`, else its only Topology. The file runs as an imported module: its folder
    and the current one are searched for what it imports, and what stands under `if __name__ == "__main__"` is left out.
    """
    file, name = _split(path)
    module = _imported(file)
    return _chosen(file, module, name), file.stem


def _split(path: str) -> tuple[Path, str | None]:
    if Path(path).is_file():
        return Path(path), None
    text, separator, name = path.rpartition(":")
    if not separator:
        text, name = path, ""
    file = Path(text)
    if file.is_dir():
        raise StreamsError(f"{text} is a directory: name the file that defines the topology, such as {text}/app.py.")
    if not file.is_file():
        raise StreamsError(f"There is no file {text} (looked in {Path.cwd()}): correct the path.")
    if separator and not name.isidentifier():
        raise StreamsError(f"{path}: {name!r} is no name: write {text}:NAME, or {text} alone.")
    return file, name or None


def _imported(file: Path) -> ModuleType:
    for folder in (str(Path.cwd()), str(file.parent.absolute())):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    # Its own name, by which other processes find its functions, unless that is another module's, such as queue.py.
    name = file.stem
    try:
        found = importlib.util.find_spec(name) if name.isidentifier() else None
    except ValueError:
        found = None
    if found is None or found.origin is None or not file.samefile(found.origin):
        name = f"headwater_app_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StreamsError(f"{file} is no Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _telling(file):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _telling(file: Path) -> Iterator[None]:
    """Turn what the file raises into an error that says in which line."""
    try:
        yield
    except SyntaxError as error:
        where = f"{error.filename or file}:{error.lineno or 0}"
        raise StreamsError(f"{where}: {type(error).__name__}: {error.msg}.") from error
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, file)]
        where = f"{file}:{lines[-1]}" if lines else str(file)
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        raise StreamsError(f"{where}: {said} (run `python {file}` for the whole traceback)") from error


def _same(name: str, file: Path) -> bool:
    return Path(name).is_file() and file.samefile(name)


def _chosen(file: Path, module: ModuleType, name: str | None) -> "Topology":
    from headwater.dsl.builder import StreamsBuilder
    from headwater.dsl.topology import Topology

    public = {key: value for key, value in vars(module).items() if not key.startswith("__")}
    topologies = {key: value for key, value in public.items() if isinstance(value, Topology)}
    listed = f"It defines {', '.join(topologies)}." if topologies else "It defines no topology at all."
    if name is not None:
        if name in topologies:
            return topologies[name]
        if name not in public:
            raise StreamsError(f"{file} defines no {name!r}. {listed}")
        raise StreamsError(f"{file}: {name!r} is a {type(public[name]).__name__} and not a Topology. {listed}")
    if "topology" in topologies:
        return topologies["topology"]
    different = {id(value): value for value in topologies.values()}
    if len(different) == 1:
        return next(iter(different.values()))
    if different:
        raise StreamsError(f"{file} defines several topologies: say which, {file}:NAME. {listed}")
    builders = [key for key, value in public.items() if isinstance(value, StreamsBuilder)]
    remedy = f"topology = {builders[0]}.build()" if builders else "topology = builder.build()"
    raise StreamsError(f"{file} defines no topology: write `{remedy}` at its end, outside of any function.")
