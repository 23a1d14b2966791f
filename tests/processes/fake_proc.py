"""A /proc made of ordinary files."""

import os
from pathlib import Path


class FakeProc:
    """Processes that are as one says."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        pid: int,
        *,
        parent: int = 1,
        start: int = 1000,
        comm: bytes = b"app",
        state: str = "S",
        arguments: tuple[str, ...] = ("/usr/bin/app",),
        cgroup: str = "/system.slice/app.service",
        executable: str = "/usr/bin/app",
        ticks: tuple[int, int] = (0, 0),
        uid: int = 1000,
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [state, parent, 0, 0, 0, 0, 0, 0, 0, 0, 0, *ticks, 0, 0, 0, 0, 1, 0, start, 0, 0]
        stat = b"%d (%s) %s\n" % (pid, comm, " ".join(map(str, fields)).encode())
        (folder / "stat").write_bytes(stat)
        (folder / "status").write_text("Name:\tapp\nUid:" + f"\t{uid}" * 4 + "\n")
        (folder / "cmdline").write_bytes(b"".join(each.encode() + b"\0" for each in arguments))
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        for name, target in (("exe", executable), ("cwd", "/srv")):
            (folder / name).unlink(missing_ok=True)
            os.symlink(target, folder / name)
