"""Free memory: of the machine, or of the tightest control group."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from dmls_ray.util.free_memory import free_mib


def make_group(folder: Path, *, limit: str, used: int, names: tuple[str, str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used * 2**20}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {10 * 2**20}\n")


@pytest.mark.parametrize(
    ("line", "place", "names"),
    [
        ("0::/pod/box", "", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:memory:/pod/box",
            "memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_the_tightest_group_counts_without_its_pages_of_files(
    tmp_path: Path, line: str, place: str, names: tuple[str, str, str]
) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    make_group(cgroups / place / "pod" / "box", limit=str(100 * 2**20), used=70, names=names)
    assert free_mib(proc, cgroups) == 40
    make_group(cgroups / place / "pod", limit=str(90 * 2**20), used=80, names=names)
    assert free_mib(proc, cgroups) == 20


def test_without_a_limit_it_is_that_of_the_machine(tmp_path: Path) -> None:
    names = ("memory.max", "memory.current", "inactive_file")
    make_group(tmp_path / "cgroup", limit="max", used=1, names=names)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/\n")
    available = psutil.virtual_memory().available / 2**20
    assert free_mib(tmp_path, tmp_path / "cgroup") == pytest.approx(available, rel=0.2)
