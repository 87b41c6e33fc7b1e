"""What executors need beside Spark: this package, the modules that the topology's functions come from, and what those
import. It owns the zip files they travel in and the check, before a query starts, that every executor has the rest;
which executors there are is Spark's.

A zip holds each module twice, as source for tracebacks and compiled: an executor's workers would compile it one by one.
Its name ends in a hash of its content, so that the same package is sent once, and another never taken for it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import os
import pickle
import py_compile
import re
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it comes without types
from pyspark.sql import SparkSession

from headwater import errors
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError

__all__ = ["check_executors", "ship"]

# What the package imports beside Spark and, where there is Kafka, its client; protobuf is for Spark's state.
DEPENDENCIES = (
    *("cloudpickle", "google.protobuf", "lz4", "msgspec", "numpy", "pandas", "pyarrow", "rocksdict"),
    *("sortedcontainers", "zstandard"),
)
# These are sent, or looked for, anyway; what stands in a script or a notebook itself travels as it is.
_KNOWN = {"headwater", "pyspark", "__main__", *DEPENDENCIES}
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
# Which executors have said that they have what: session, Python, executors, modules.
_answered: set[tuple[str, str, frozenset[str], frozenset[str]]] = set()


def ship(spark: SparkSession, *things: object) -> list[str]:
    """Send this package to the executors, with the modules that the things (topologies, modules) need.

    A thing's modules are those of its functions and classes, and the local ones that these import, with the data beside
    those in packages. Installed ones are not sent; the names of those that are needed are returned, for
    `check_executors`. To be called before functions and data sources are given to Spark: those given earlier run
    without it.
    """
    local, installed = _closure(name for thing in things for name in _modules(thing))
    _send(spark, f"headwater-{version('headwater')}", dict(_package_files(Path(errors.__file__).parent)))
    if local:
        _send(spark, "application", dict(_application_files(local)))
    return sorted(installed)


def check_executors(spark: SparkSession, modules: Iterable[str] = (), *, kafka: bool = False) -> None:
    """Raise a StreamsError that says which executors lack what: a Python like ours, and modules that must be installed.

    It asks the executors that are there now, each once at least, unless they have been asked the same before.
    """
    wanted = [*DEPENDENCIES, *modules, *(["confluent_kafka"] if kafka else [])]
    context = spark.sparkContext

    # Inside, so that it travels as it is: a module of this package could not be imported where something is missing.
    def look(_: object) -> Iterator[tuple[str, list[str]]]:
        import importlib
        import socket

        lacking = []
        for name in wanted:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                lacking.append(name if error.name == name else f"{error.name} (for {name})")
            except Exception as error:
                lacking.append(f"{name} ({error})")
        yield socket.gethostname(), lacking

    executors = str(context._jsc.sc().getExecutorMemoryStatus().keySet().mkString(" ")).split()
    question = (context.applicationId, context.pythonExec, frozenset(executors), frozenset(wanted))
    if question in _answered:
        return
    # Spark deals them out in turn: no executor goes without.
    tasks = max(context.defaultParallelism, 2 * len(executors))
    try:
        answers = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    except Exception as error:
        hosts = " or ".join(sorted({executor.rpartition(":")[0] for executor in executors}))
        raise StreamsError(_why_no_answer(context.pythonExec, hosts, str(error))) from error
    lacking: dict[str, set[str]] = {}
    for host, missing in answers:
        if missing:
            lacking.setdefault(host, set()).update(missing)
    if lacking:
        told = "; ".join(f"{host} lacks {', '.join(sorted(missing))}" for host, missing in sorted(lacking.items()))
        raise StreamsError(
            f"Python modules are missing on executors: {told}. Install them into {context.pythonExec} there "
            "(pip install 'headwater[spark,kafka]' brings Headwater's own), or set PYSPARK_PYTHON to a Python that has "
            "them."
        )
    _answered.add(question)


def _why_no_answer(python: str, hosts: str, text: str) -> str:
    found = re.search(r"\(TID \d+\) \((\S+) executor", text)
    host = found[1] if found else hosts
    remedy = "set PYSPARK_PYTHON to one that is there on every host."
    if versions := re.search(r"Python in worker has different version: (\S+) than that in driver: ([^\s,]+)", text):
        there, here = versions.groups()
        return f"{python} on {host} is Python {there}, but this process runs {here}: install it there, or {remedy}"
    if "Cannot run program" in text:
        return f"There is no {python} on {host}: install it there, or {remedy}"
    return f"The executors on {hosts} cannot run Python ({python}): {text.strip()}"


# ---- which modules -----------------------------------------------------------------------------------------------


class _Finder(pickle.Unpickler):
    """Notes the modules that a pickle refers to by name."""

    def __init__(self, blob: bytes) -> None:
        super().__init__(io.BytesIO(blob))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str, /) -> Any:
        self.modules.add(module)
        found = super().find_class(module, name)
        if module.startswith("cloudpickle"):
            if name == "subimport":
                return self._module
            if name == "_make_skeleton_class":
                return lambda kind, *rest: found(_travelling(kind, rest[0]), *rest)
        return found

    def _module(self, name: str) -> ModuleType:
        self.modules.add(name)
        return cloudpickle.cloudpickle.subimport(name)  # type: ignore[no-any-return]  # it comes without types


def _travelling(kind: type, name: str) -> type:
    if kind.__module__.startswith("msgspec"):
        # Rebuilt elsewhere it would have no fields, and say nothing of it.
        raise StreamsError(
            f"{name} is a msgspec.Struct that executors cannot import: define it in a module of its own and not in the "
            "script that runs, or start the script with `headwater run`."
        )
    return kind


def _modules(thing: object) -> set[str]:
    """The modules that something needs where it is unpickled."""
    if isinstance(thing, ModuleType):
        return {thing.__name__}
    finder = _Finder(_pickled(thing))
    finder.load()
    return finder.modules


def _pickled(thing: object) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(thing)
        return data
    except (TypeError, pickle.PicklingError) as error:
        steps = thing.nodes.items() if isinstance(thing, Topology) else ()
        at = next((f"step {name!r}" for name, node in steps if not _travels(node)), "the application")
        raise StreamsError(
            f"{at} holds something that cannot be sent to executors ({error}): make it where it is used, inside the "
            "function, or in the init() of a processor"
        ) from error


def _travels(thing: object) -> bool:
    try:
        cloudpickle.dumps(thing)
    except (TypeError, pickle.PicklingError):
        return False
    return True


def _closure(names: Iterable[str]) -> tuple[dict[str, Path], set[str]]:
    """The modules that must be sent, with their files, and the top-level names of installed ones that are needed."""
    local: dict[str, Path] = {}
    installed: set[str] = set()
    seen: set[tuple[str, bool]] = set()
    waiting = [(name, True) for name in names]
    while waiting:
        name, needed = waiting.pop()
        top = name.partition(".")[0]
        if (name, needed) in seen or top in _KNOWN or top in sys.stdlib_module_names:
            continue
        seen.add((name, needed))
        file = _file(name)
        if file is None:
            continue
        if _is_installed(file):
            if needed:
                installed.add(top)
        else:
            local[name] = file
            parent = name.rpartition(".")[0]
            waiting += [(parent, needed)] if parent else []
            waiting += [(each, needed and at_once) for each, at_once in _imports(file, name)]
    return local, installed


def _file(name: str) -> Path | None:
    """A module's file, `__init__.py` for a package; None for what is no module, or has no file."""
    top, *rest = name.split(".")
    module = sys.modules.get(top)
    try:
        spec = importlib.util.find_spec(top) if module is None else module.__spec__
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return Path(spec.origin) if spec.origin is not None and spec.has_location and not rest else None
    # Looked up and not imported: nothing is run that would not be run anyway.
    for folder in spec.submodule_search_locations:
        place = Path(folder, *rest)
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return file
    return None


def _is_installed(file: Path) -> bool:
    inside = {"site-packages", "dist-packages"} & set(file.parts)
    return bool(inside) or file.suffix != ".py" or file.is_relative_to(sysconfig.get_path("stdlib"))


def _imports(file: Path, name: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, or may: names of modules, and whether it does so as soon as it is imported itself."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(file.read_bytes(), str(file))
    for node in ast.walk(tree):
        at_once = node in tree.body
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if node.level:
                base = importlib.util.resolve_name(base, package)
            yield base, at_once
            yield from ((f"{base}.{alias.name}", at_once) for alias in node.names)


# ---- zip files ---------------------------------------------------------------------------------------------------


def _application_files(modules: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    """(path in the zip, content) of modules, and of the data that lies beside those in packages."""
    for name, file in modules.items():
        path = name.replace(".", "/")
        for parent in PurePosixPath(path).parents[:-1]:
            # A folder without one is a package too, but not in a zip; those that have one come after it.
            yield f"{parent}/__init__.py", b""
        if file.name == "__init__.py":
            for beside in file.parent.iterdir():
                if beside.is_file() and beside.suffix not in (".py", ".pyc"):
                    yield f"{path}/{beside.name}", beside.read_bytes()
    for name, file in modules.items():
        # Under its name among the modules, by which its functions are looked up: not always that of the file.
        path = name.replace(".", "/")
        yield f"{path}/__init__.py" if file.name == "__init__.py" else f"{path}.py", file.read_bytes()


def _package_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(path in the zip, content) of this package, following links: in a checkout its folders are links."""
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [each for each in folders if each != "__pycache__"]
        for file in files:
            path = Path(parent, file)
            yield f"headwater/{path.relative_to(folder).as_posix()}", path.read_bytes()
    # As an installed distribution has it: the package asks for its own version.
    number = version("headwater")
    metadata = f"Metadata-Version: 2.1\nName: headwater\nVersion: {number}\n"
    yield f"headwater-{number}.dist-info/METADATA", metadata.encode()


def _send(spark: SparkSession, stem: str, contents: dict[str, bytes]) -> None:
    """Have the executors import files from a zip."""
    digest = hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()[:12]
    name = f"{stem}-{digest}.zip"
    context = spark.sparkContext
    if context._python_includes is None or name not in context._python_includes:
        # Executors may fetch it as long as the session lives, and so does this folder of it.
        path = Path(context._temp_dir) / name
        _write_zip(path, contents)
        context.addPyFile(str(path))
        # What Spark starts in the driver (readers of data sources, the set-up of stages) does not look where it has put
        # that file; elsewhere the path leads nowhere.
        paths = [str(path), context.environment.get("PYTHONPATH", "")]
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _write_zip(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive, tempfile.TemporaryDirectory() as scratch:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), content)
            if name.endswith(".py"):
                archive.writestr(zipfile.ZipInfo(f"{name}c", _LONG_AGO), _compiled(content, name, Path(scratch)))


def _compiled(source: bytes, name: str, scratch: Path) -> bytes:
    (scratch / "source").write_bytes(source)
    py_compile.compile(
        str(scratch / "source"),
        cfile=str(scratch / "compiled"),
        dfile=name,
        doraise=True,
        # Never compared with the source: a zip has no times that could be.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return (scratch / "compiled").read_bytes()
