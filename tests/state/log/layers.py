"""File layers for tests: one that fails or dies at a chosen operation, one that forgets what was not synced, one that
is fast because it syncs nothing."""

import errno
import json
import os
import shutil
from pathlib import Path
from random import Random

from headwater.state.log import Files


class Unsynced(Files):
    """Files whose syncs do nothing, for tests that lose no power."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


class Killed(BaseException):
    """The process dies here: no handler of the code under test may catch it and go on."""


class Faulty(Unsynced):
    """Files whose operation number `at`, counted from 0 over all that change something, fails or is the last.

    A write that fails has written half of its bytes. After a kill nothing happens any more but what the kernel does for
    a dead process: descriptors are closed, and with them locks undone.
    """

    def __init__(self, at: int | None = None, code: int | None = errno.ENOSPC, *, times: int = 1) -> None:
        self.at, self.code, self.times = at, code, times
        self.count = 0
        self.dead = False

    def _step(self, what: str, path: Path | None = None) -> bool:
        """Raise if this is the operation, except for a write, which is told to do it in part."""
        if self.dead:
            raise Killed
        number = self.count
        self.count += 1
        if self.at is None or not self.at <= number < self.at + self.times:
            return False
        if what == "write":
            return True
        self._fail()
        return False

    def _fail(self) -> None:
        if self.code is None:
            self.dead = True
            raise Killed
        raise OSError(self.code, os.strerror(self.code))

    def create(self, path: Path, *, empty: bool = True) -> int:
        self._step("create")
        return super().create(path, empty=empty)

    def write(self, fd: int, data: bytes, position: int) -> None:
        if self._step("write"):
            super().write(fd, data[: len(data) // 2], position)
            self._fail()
        super().write(fd, data, position)

    def truncate(self, fd: int, size: int) -> None:
        self._step("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._step("sync")

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory")

    def replace(self, source: Path, target: Path) -> None:
        self._step("replace")
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self._step("remove")
        super().remove(path)

    def make_directory(self, path: Path) -> None:
        self._step("make_directory")
        super().make_directory(path)

    def read(self, fd: int, size: int, position: int) -> bytes:
        if self.dead:
            raise Killed
        return super().read(fd, size, position)


class ReadOnly(Unsynced):
    """Files of a file system that is mounted read-only."""

    def _refuse(self) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS))

    def open(self, path: Path, *, write: bool = False) -> int:
        if write:
            raise self._refuse()
        return super().open(path)

    def create(self, path: Path, *, empty: bool = True) -> int:
        raise self._refuse()

    def make_directory(self, path: Path) -> None:
        if not path.is_dir():
            raise self._refuse()


class Lossy(Files):
    """Files that `lose_power` takes back to what was synced: contents by `sync`, names by `sync_directory`.

    What is durable is kept in a shadow directory beside, so that several processes can share it. A file whose name is
    durable and whose content never was is empty afterwards.
    """

    def __init__(self, root: Path, shadow: Path) -> None:
        self.root, self.shadow = root, shadow
        (shadow / "content").mkdir(parents=True, exist_ok=True)
        (shadow / "names").mkdir(exist_ok=True)

    def _content(self, inode: int) -> Path:
        return self.shadow / "content" / str(inode)

    def _names(self, inode: int) -> Path:
        return self.shadow / "names" / str(inode)

    def make_directory(self, path: Path) -> None:
        new = not path.exists()
        super().make_directory(path)
        if new:
            self._names(path.stat().st_ino).unlink(missing_ok=True)

    def create(self, path: Path, *, empty: bool = True) -> int:
        new = not path.exists()
        fd = super().create(path, empty=empty)
        if new:
            # The number may have been another file's, which is gone.
            self._content(os.fstat(fd).st_ino).unlink(missing_ok=True)
        return fd

    def _put(self, path: Path, data: bytes) -> None:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_bytes(data)
        fresh.replace(path)

    def sync(self, fd: int) -> None:
        self._put(self._content(os.fstat(fd).st_ino), os.pread(fd, os.fstat(fd).st_size, 0))

    def sync_directory(self, path: Path) -> None:
        with os.scandir(path) as entries:
            names = {entry.name: (entry.is_dir(), entry.inode()) for entry in entries}
        self._put(self._names(path.stat().st_ino), json.dumps(names).encode())

    def lose_power(self, random: Random | None = None) -> None:
        """Take the root back to what is durable; of what was appended to a file since, a random prefix may be left."""
        fresh = self.root.with_name(self.root.name + ".after")
        self._restore(self.root.stat().st_ino, self.root, fresh, random)
        shutil.rmtree(self.root)
        fresh.replace(self.root)
        shutil.rmtree(self.shadow)
        self.__init__(self.root, self.shadow)  # type: ignore[misc]
        for folder, _, files in os.walk(self.root):
            for name in files:
                fd = os.open(Path(folder, name), os.O_RDONLY)
                self.sync(fd)
                os.close(fd)
            self.sync_directory(Path(folder))

    def _restore(self, directory: int, source: Path, target: Path, random: Random | None) -> None:
        target.mkdir()
        names = self._names(directory)
        for name, (is_directory, inode) in (json.loads(names.read_bytes()) if names.exists() else {}).items():
            if is_directory:
                self._restore(inode, source / name, target / name, random)
                continue
            content = self._content(inode)
            data = content.read_bytes() if content.exists() else b""
            now = source / name
            if random and now.is_file() and now.stat().st_ino == inode and now.read_bytes().startswith(data):
                more = now.read_bytes()[len(data) :]
                data += more[: random.randint(0, len(more))]
            (target / name).write_bytes(data)
