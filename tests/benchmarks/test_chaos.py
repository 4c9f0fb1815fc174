"""The suite of faults: what counts as lost, twice and wrong; scenarios of seeds; the proxy of a store; tables."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from benchmarks.chaos.check import Counts, Key, compare, measured
from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.places import PLACES
from benchmarks.chaos.runner import Played, Struck
from benchmarks.chaos.scenario import SHORT, Size, make_scenario
from benchmarks.chaos.store_proxy import Proxy
from benchmarks.chaos.table import by_kind, by_scenario, totals
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from tests.records.test_model import record

PLANNED: list[Key] = [(8, 1, 0), (8, 1, 1), (8, 2, 0)]


def row(key: Key, *, loss: float = 1.0, outcome: Outcome = Outcome.OK, **changes: object) -> RunRecord:
    batch, size, repeat = key
    made = record(repeat=repeat, config={"batch_per_rank": batch, "world_size": size}, outcome=outcome, **changes)
    made.epochs = [EpochRecord(epoch=1, metrics={"train_loss": loss})]
    return made


EXPECTED = {key: measured(row(key)) for key in PLANNED}


def lines(*rows: RunRecord) -> list[bytes]:
    return [item.to_json() for item in rows]


def test_each_run_with_one_equal_row_is_neither_lost_nor_twice_nor_wrong() -> None:
    earlier = row(PLANNED[0], outcome=Outcome.SKIPPED)
    counts = compare(lines(earlier, *map(row, PLANNED)), PLANNED, EXPECTED, reported=["a", "b", "c"])
    assert not counts.is_bad
    assert counts.ok == 3
    assert counts.examples == []


def test_a_run_without_an_ok_row_is_lost_unless_a_fault_explains_its_outcome() -> None:
    rows = lines(row(PLANNED[0]), row(PLANNED[1], outcome=Outcome.OOM))
    counts = compare(rows, PLANNED, EXPECTED)
    assert (counts.lost, counts.explained) == (2, 0)
    counts = compare(rows, PLANNED, EXPECTED, explained={"oom"})
    assert (counts.lost, counts.explained) == (1, 1)
    assert counts.examples == ["(8, 2, 0) is lost: no row"]


def test_a_row_that_was_printed_and_is_not_there_is_lost() -> None:
    rows = lines(*map(row, PLANNED))
    assert compare(rows, PLANNED, EXPECTED, reported=["a", "b", "c", "a"]).lost == 0
    assert compare(rows, PLANNED, EXPECTED, reported=["a", "b", "c", "d"]).lost == 1


def test_a_second_ok_row_is_twice_and_a_loss_that_differs_in_a_bit_is_wrong() -> None:
    again = row(PLANNED[0], loss=1.0 + 2**-52)
    counts = compare(lines(*map(row, PLANNED), again), PLANNED, EXPECTED)
    assert (counts.lost, counts.twice, counts.wrong) == (0, 1, 1)
    assert counts.is_bad


def test_a_seed_makes_the_same_scenario_each_time_and_another_seed_makes_another() -> None:
    assert make_scenario(7, Size()) == make_scenario(7, Size())
    assert len({make_scenario(seed, Size()) for seed in range(20)}) == 20


def test_every_kind_of_fault_and_every_place_occurs() -> None:
    scenarios = [make_scenario(seed, Size()) for seed in range(100)]
    assert {scenario.place for scenario in scenarios} == PLACES.keys()
    assert {strike.kind for scenario in scenarios for strike in scenario.strikes} == KINDS.keys()


@pytest.mark.parametrize("seed", range(20))
def test_faults_strike_in_their_order_where_they_are_possible_and_before_the_last_rows(seed: int) -> None:
    scenario = make_scenario(seed, SHORT)
    moments = [strike.after_rows for strike in scenario.strikes]
    assert moments == sorted(moments)
    assert len(moments) == SHORT.faults
    assert moments[-1] < scenario.sweep.runs - 1
    assert all(KINDS[strike.kind].is_possible_at(PLACES[scenario.place]) for strike in scenario.strikes)


def test_kinds_and_a_place_can_be_chosen() -> None:
    scenario = make_scenario(3, Size(), kinds=["full disk", "kill supervisor"], place="disk")
    assert {strike.kind for strike in scenario.strikes} == {"full disk", "kill supervisor"}
    assert make_scenario(3, Size(), kinds=["cut link"]).place in ("machines", "lanes")


class Behind:
    """The proxy with its mode, and what the server behind it has stored."""

    def __init__(self, folder: Path) -> None:
        self.stored = stored = []
        self.mode = folder / "mode"
        self.mode.write_text("pass")

        class Upstream(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                stored.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        self.upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        self.proxy = Proxy(0, self.upstream.server_port, self.mode)
        for server in (self.upstream, self.proxy):
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()

    def request(self, method: str, body: bytes | None = None) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.proxy.server_port, timeout=10)) as connection:
            connection.request(method, "/object", body=body)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    servers = Behind(tmp_path)
    yield servers
    for server in (servers.upstream, servers.proxy):
        server.shutdown()
        server.server_close()


def test_requests_pass_and_a_failure_is_an_answer_of_500(behind: Behind) -> None:
    assert behind.request("PUT", b"content") == behind.request("GET") == (200, b"hello")
    behind.mode.write_text("500")
    status, body = behind.request("PUT", b"more")
    assert status == 500
    assert b"InternalError" in body
    assert behind.stored == [b"content"]


def test_an_upload_is_cut_before_or_after_it_is_stored_and_other_requests_pass(behind: Behind) -> None:
    behind.mode.write_text("cut")
    for content in (b"first", b"second"):
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            behind.request("PUT", content)
    assert behind.stored == [b"second"]
    assert behind.request("GET") == (200, b"hello")


def test_a_silent_store_answers_no_request_until_the_mode_changes(behind: Behind) -> None:
    behind.mode.write_text("silent")
    began = time.monotonic()
    threading.Timer(0.3, behind.mode.write_text, args=("pass",)).start()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        behind.request("PUT", b"content")
    assert time.monotonic() - began >= 0.3
    assert behind.stored == []


def played(seed: int, *struck: Struck, **changes: object) -> Played:
    return Played(seed=seed, place="machine", runs=12, struck=[*struck], exit_codes=[0], **changes)  # type: ignore[arg-type]


def test_a_scenario_passes_unless_a_row_is_damaged_or_the_sweep_hangs_or_fails_without_a_reason() -> None:
    assert played(1, counts=Counts(ok=12)).passes
    assert not played(1, counts=Counts(lost=1)).passes
    assert not played(1, hung=["waiting"]).passes
    assert not played(1, gave_up=["exit code 1"]).passes


def test_the_tables_add_up_rows_and_faults() -> None:
    kill = Struck("kill rank", "rank", 3, lost_s=5.0)
    both = [
        played(1, kill, Struck("kill supervisor", "supervisor", 5, 20.0, ended_command=True), counts=Counts(ok=12)),
        played(2, Struck("kill rank", "rank", 4, lost_s=7.0), counts=Counts(ok=11, lost=1), hung=["x"]),
    ]
    assert [msgspec.json.decode(msgspec.json.encode(one), type=Played) for one in both] == both
    values = dict(totals(both).itertuples(index=False))
    assert (values["runs"], values["faults"], values["rows lost"], values["sweeps hung"]) == ("24", "3", "1", "1")
    rows = by_kind(both).set_index("fault")
    assert rows.loc["kill rank"].tolist() == ["2", "", "6.0", "5.0", "7.0"]
    assert rows.loc["kill supervisor"].tolist() == ["1", "1", "20.0", "20.0", "20.0"]
    assert by_scenario(both)["faults"].tolist() == ["kill rank, kill supervisor", "kill rank"]
