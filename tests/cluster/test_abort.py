from __future__ import annotations

import socket
import threading

from dmls_ray.cluster.abort import abort_pending_collectives


def test_what_waits_for_a_lost_address_ends_and_what_waits_for_another_goes_on() -> None:
    with socket.create_server(("127.0.0.2", 0)) as there, socket.create_server(("127.0.0.3", 0)) as elsewhere:
        lost = socket.create_connection(there.getsockname(), source_address=("127.0.0.1", 0))
        other = socket.create_connection(elsewhere.getsockname(), source_address=("127.0.0.1", 0))
        accepted = [there.accept()[0], elsewhere.accept()[0]]
        heard: list[bytes] = []
        waits = threading.Thread(target=lambda: heard.append(lost.recv(1)))
        waits.start()
        abort_pending_collectives(["127.0.0.2"])
        waits.join(5)
        assert heard == [b""], "the end of a connection, as gloo sees it"
        accepted[1].sendall(b"x")
        assert other.recv(1) == b"x"
        for one in (lost, other, *accepted):
            one.close()


def test_a_rank_lost_on_this_very_machine_breaks_nothing_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        two, _ = server.accept()
        abort_pending_collectives(["127.0.0.1"])
        two.sendall(b"x")
        assert one.recv(1) == b"x"
        one.close()
        two.close()
