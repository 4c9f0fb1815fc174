"""Fixtures of the tests with several hosts. Where hosts are impossible, tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.multihost.hosts import HostsError, Network, install_folders


@pytest.fixture(scope="session")
def shared_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders that all hosts share: this project, Python's packages and the folders of the tests."""
    return [PROJECT, tmp_path_factory.getbasetemp(), *install_folders()]


@pytest.fixture(scope="session")
def hosts_possible(shared_folders: list[Path]) -> None:
    """Skip the test where hosts cannot be created, with the reason."""
    try:
        with Network(shared_folders) as network:
            network.add()
    except HostsError as error:
        pytest.skip(f"this machine cannot create several hosts: {error}")


@pytest.fixture
def network(hosts_possible: None, shared_folders: list[Path]) -> Iterator[Network]:
    """Network without hosts; `network.add(2)` adds two. Everything ends with the test."""
    with Network(shared_folders) as network:
        yield network
