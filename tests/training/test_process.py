from __future__ import annotations

import psutil

from dmls_ray.training.process import store_at


def test_a_store_listens_at_its_address_only() -> None:
    store = store_at("127.0.0.1")
    links = psutil.Process().net_connections("inet")
    assert [link.laddr.ip for link in links if link.laddr and link.laddr.port == store.port and not link.raddr] == [
        "127.0.0.1"
    ]
