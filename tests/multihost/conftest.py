"""What the tests of several hosts share: networks of hosts, and the reason where there can be none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.multihost.hosts import HostsError, Network, install_folders


@pytest.fixture(scope="session")
def shared_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The disk that all hosts share: this project, Python's packages, and the folders of the tests."""
    return [PROJECT, tmp_path_factory.getbasetemp(), *install_folders()]


@pytest.fixture(scope="session")
def hosts_possible(shared_folders: list[Path]) -> None:
    """Skips where hosts cannot be had, with the reason."""
    try:
        with Network(shared_folders) as network:
            network.add()
    except HostsError as error:
        pytest.skip(f"several hosts cannot be had here: {error}")


@pytest.fixture
def network(hosts_possible: None, shared_folders: list[Path]) -> Iterator[Network]:
    """A network without hosts; `network.add(2)` gives it two. All of it is gone after the test."""
    with Network(shared_folders) as network:
        yield network
