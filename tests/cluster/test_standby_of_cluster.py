"""`dmls-ray up --address`, and commands that join its cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.test_standby import RUNS_OF_A_SECOND, SMALL, USED, VARIES, Machine
from tests.cluster.test_standby import SCRIPT as SCRIPT_OF_MACHINE
from tests.test_sweeps import RAY, Family, cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux alone"),
]

SCRIPT = SCRIPT_OF_MACHINE.replace(
    "seen = {", 'import psutil\nseen = {"parents": [one.cmdline() for one in psutil.Process().parents()], '
)
OF_THE_START = {"_", "OLDPWD", "PWD", "SHLVL", "TORCHINDUCTOR_CACHE_DIR"}
"""Variables that a shell sets, through which Ray starts a worker process that has a program of its own; and one that
PyTorch sets to its default in a process that imports it."""
TEMPLATE = "be_template"
"""In the command line of a template, and of a copy that has no name of its own."""


class Joined(Machine):
    """Commands that join a cluster, whose processes are known."""

    def __init__(self, folder: Path, family: Family, address: str) -> None:
        super().__init__(folder)
        self.family, self.address = family, address
        self.environment["RAY_AUTH_MODE"] = "disabled"
        (folder / "train.py").write_text(SCRIPT)

    def sweep(self, *words: str, out: str = "out", **environment: str) -> subprocess.Popen[str]:
        """Sweep the script on the cluster."""
        return super().sweep("--address", self.address, *words, out=out, **environment)

    def up(self) -> tuple[int, str, str]:
        """Hold on the cluster what commands need."""
        return self.do("up", "--address", self.address)

    def seen(self, rank: int = 1) -> dict[str, Any]:
        """What a rank of the last run has found."""
        found: dict[str, Any] = json.loads((self.folder / f"seen-{rank}.json").read_text())
        return found

    def templates(self) -> list[psutil.Process]:
        """The templates that the cluster runs."""
        self.family.look()
        found = []
        for process in self.family.members:
            with contextlib.suppress(psutil.Error):
                if TEMPLATE in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    with cluster(tmp_path, "--include-dashboard=false") as (family, address, _):
        found = Joined(tmp_path, family, address)
        code, printed, said = found.up()
        assert code == 0, said
        assert address in printed
        assert found.templates()
        yield found
        found.do("down")
        found.wait_for(lambda: not found.left())


def is_copy(seen: dict[str, Any]) -> bool:
    """Whether a rank is a copy of a template."""
    return TEMPLATE in str(seen["parents"])


def test_ranks_are_copies_and_find_what_they_find_without(joined: Joined) -> None:
    found = []
    for out in ("held", "own"):
        is_held = out == "held"
        code, _, said = joined.end(joined.sweep(out=out))
        assert code == 0, said
        assert (USED in said) == is_held
        seen = joined.seen()
        assert is_copy(seen) == is_held
        del seen["parents"]
        environment = {name: text.replace(f"/{out}/", "/OUT/") for name, text in seen.pop("environment").items()}
        found.append((seen, {name: environment[name] for name in environment.keys() - VARIES - OF_THE_START}))
        joined.do("down")
    assert found[0] == found[1]
    held, own = (
        [{key: row[key] for key in ("outcome", "config", "versions")} for row in joined.rows(out)]
        for out in ("held", "own")
    )
    assert held == own


def test_down_leaves_nothing_on_the_cluster_and_the_next_command_needs_nothing(joined: Joined) -> None:
    state = joined.state()
    assert state is not None
    assert joined.end(joined.sweep())[0] == 0
    folder = Path(state["templates"])
    assert len(list(folder.parent.glob(f"{folder.name}*"))) == 2
    code, printed, _ = joined.do("down")
    assert (code, printed) == (0, "Down.\n")
    joined.wait_for(lambda: not joined.templates())
    joined.wait_for(lambda: not joined.left())
    assert not list(folder.parent.glob(f"{folder.name}*"))
    code, _, said = joined.end(joined.sweep(out="next"))
    assert code == 0, said
    assert USED not in said


def test_a_command_goes_on_when_the_templates_of_its_machine_are_killed(joined: Joined) -> None:
    command = joined.sweep(*RUNS_OF_A_SECOND)
    joined.wait_for(joined.rows)
    for template in joined.templates():
        with contextlib.suppress(psutil.NoSuchProcess):
            template.kill()
    code, _, said = joined.end(command)
    assert code == 0, said
    assert [row["outcome"] for row in joined.rows()] == ["ok"] * 6
    code, _, said = joined.end(joined.sweep(out="next"))
    assert code == 0, said
    assert USED in said
    assert not is_copy(joined.seen())


def test_nothing_is_left_on_the_cluster_of_a_holder_that_was_killed(joined: Joined) -> None:
    state = joined.state()
    assert state is not None
    for process in (psutil.Process(state["holder"]), *psutil.Process(state["holder"]).children()):
        process.kill()
    joined.wait_for(lambda: not joined.templates())
    joined.wait_for(lambda: not joined.left())
    code, _, said = joined.end(joined.sweep())
    assert code == 0, said
    assert USED not in said


def test_down_waits_for_the_commands_that_use_it_and_two_use_it_at_once(joined: Joined) -> None:
    words = ("sweep", "batch_size", *SMALL, "--repeats", "6", "--address", joined.address, "--out")
    commands = {out: joined.start(*words, out) for out in ("one", "two")}
    joined.wait_for(lambda: joined.rows("one") and joined.rows("two"))
    assert "ends with the commands that use it" in joined.do("down")[1]
    for out, command in commands.items():
        code, _, said = joined.end(command)
        assert code == 0, said
        assert "restart" not in said
        assert [row["outcome"] for row in joined.rows(out)] == ["ok"] * 6
    joined.wait_for(lambda: not joined.templates())
    joined.wait_for(lambda: not joined.left())


def test_it_ends_with_the_head(joined: Joined) -> None:
    joined.family.look()
    [head] = [process for process in joined.family.members if process.name() == "gcs_server"]
    head.send_signal(signal.SIGKILL)
    joined.wait_for(lambda: not joined.left())
    assert joined.state() is None


def test_a_command_without_the_cluster_starts_its_own_ray(joined: Joined) -> None:
    code, _, said = joined.end(joined.sweep("--address", "local"))
    assert code == 0, said
    assert USED in said
    assert joined.state() is not None


def test_up_again_is_the_same_and_elsewhere_another(joined: Joined) -> None:
    before = joined.state()
    assert joined.up()[0] == 0
    assert joined.state() == before
    assert joined.do("up", "--address", "local")[0] == 0
    after = joined.state()
    assert after is not None
    assert after["joined"] is None
    joined.wait_for(lambda: not joined.templates())
    code, _, said = joined.end(joined.sweep())
    assert code == 0, said
    assert not is_copy(joined.seen())


def test_a_machine_that_joins_later_starts_its_ranks_without_a_template(joined: Joined) -> None:
    flags = ("--node-ip-address=127.0.0.2", "--num-cpus=2", "--block", "--disable-usage-stats")
    words = ["start", f"--address={joined.address}", *flags]
    with subprocess.Popen(
        [RAY, *words], env={**os.environ, "RAY_AUTH_MODE": "disabled"}, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as node:  # fmt: skip
        family = Family(node)
        try:
            assert node.stdout is not None
            assert any("Ray runtime started" in line for line in node.stdout)
            code, _, said = joined.end(joined.sweep("--world-size", "4"))
            assert code == 0, said
            assert USED in said
            assert [row["outcome"] for row in joined.rows()] == ["ok"]
            assert sorted(is_copy(joined.seen(rank)) for rank in range(4)) == [False, False, True, True]
        finally:
            family.look()
            for process in family.members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_an_address_that_is_no_cluster_is_refused(tmp_path: Path, address: str) -> None:
    machine = Machine(tmp_path)
    code, printed, said = machine.do("up", "--address", address)
    assert (code, printed) == (2, "")
    assert address in said
    assert machine.state() is None
    machine.wait_for(lambda: not machine.left())
