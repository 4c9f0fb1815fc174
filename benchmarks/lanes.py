"""What lanes save and cost.

hosts       a script whose steps wait instead of computing, 8 trials x 8 repeats, on four hosts of this machine (network
            namespaces): seconds from the start of the first run to the last row, at 4 lanes and at 1, in turn
scheduler   the order of runs and the broker alone, with simulated ranks: 20,000 runs on 256 lanes of 4 ranks each,
            and a quarter of the runs, to see whether the cost of a run stays the same

    python benchmarks/lanes.py [--pairs 6] [--lanes 256] [--runs 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.broker import rank
from benchmarks.common import machine, print_table, with_interval, with_range
from dmls_ray.cluster.messages import ExpectedTrainer, Job, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.grid import Run
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.turns import Turns
from tests.cluster.scheduler.ranks import lane_of
from tests.multihost.hosts import Network, install_folders

PROJECT = Path(__file__).parents[1]
HOSTS, TRIALS, REPEATS = 4, 8, 8
RANKS = 4
"""Of a lane of the scheduler alone."""
SCRIPT = """
import argparse, time
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--waits", type=int, default=60)
args = parser.parse_args()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(args.waits):
    optimizer.zero_grad()
    model(torch.ones(args.batch_size, 8)).mean().backward()
    optimizer.step()
    time.sleep(0.02)
"""


def seconds_of_sweep(network: Network, folder: Path, lanes: int) -> float:
    """Seconds from the start of the first run to the last row.

    Raises:
        SystemExit: the sweep failed, or did not use its lanes.
    """
    out = folder / f"out-{lanes}-{time.monotonic_ns()}"
    words = [sys.executable, "-m", "dmls_ray", "sweep", "train.py", "--out", str(out), "--address", "auto"]
    words += ["--repeats", str(REPEATS), "--lanes", str(lanes), "--steps", "none", "--batch-size"]
    words += [*(str(8 + trial) for trial in range(TRIALS)), "--", "--waits", "120"]
    done = network.hosts[0].run(words, cwd=folder, env={"PYTHONPATH": str(PROJECT)}, timeout=900)
    file = out / "runs.jsonl"
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    used = {row.get("lane", 1) for row in rows}
    if len(rows) != TRIALS * REPEATS or len(used) != lanes or {row["outcome"] for row in rows} != {"ok"}:
        raise SystemExit(f"{len(rows)} rows on {len(used)} lanes")
    first = min(datetime.fromisoformat(row["started_at"]).timestamp() for row in rows)
    return file.stat().st_mtime - first


def measure_hosts(pairs: int) -> dict[str, str]:
    """A row of the output: the times at 4 lanes and at 1, and their ratio."""
    seconds: dict[int, list[float]] = {HOSTS: [], 1: []}
    with tempfile.TemporaryDirectory(prefix="lanes-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        with Network([PROJECT, folder, *install_folders()]) as network:
            network.add(HOSTS)
            network.cluster(*[1] * HOSTS, env={"PYTHONPATH": str(PROJECT), "RAY_worker_niceness": "0"})
            for pair in range(pairs):
                for lanes in (HOSTS, 1) if pair % 2 else (1, HOSTS):
                    seconds[lanes].append(seconds_of_sweep(network, folder, lanes))
                print(f"{lanes}: {seconds}", file=sys.stderr, flush=True)
    ratios = [many / one for many, one in zip(seconds[HOSTS], seconds[1], strict=True)]
    return {
        "runs": str(TRIALS * REPEATS),
        "s at 1 lane": with_range(seconds[1], 1),
        f"s at {HOSTS} lanes": with_range(seconds[HOSTS], 1),
        "ratio": with_interval(ratios, 3),
        "pairs": str(pairs),
    }


async def serve(lanes: int, runs: int) -> dict[str, str]:
    """A row of the output: the scheduler's cost of a run."""
    expected = {
        f"t-{lane}": ExpectedTrainer(ranks=RANKS, machine=f"m-{lane}", lane=lane) for lane in range(1, lanes + 1)
    }
    broker = Broker(expected)
    names = []
    for lane in range(1, lanes + 1):
        for index in range(RANKS):
            card = RankRegistration(
                trainer=f"t-{lane}", group="0", index=index, machine=f"m-{lane}", pid=index, device="cpu",
                store=("", 0), machine_order=lane,
            )  # fmt: skip
            names.append(await broker.join(card))
    ranks = [asyncio.ensure_future(rank(broker, name, 0.001)) for name in names]
    trials = 20
    plan = make_plan({"batch_per_rank": range(1, trials + 1), "world_size": RANKS}, repeats=runs // trials)
    by_id = {run.run_id: run for run in plan.runs}
    under_way: set[asyncio.Task[tuple[Run, int]]] = set()

    async def follow(run: Run) -> tuple[Run, int]:
        job = Job(
            run_id=run.run_id, trial_id=run.trial_id, config=run.seeded(), block=run.repeat, train="m:f", device="cpu",
            backend="gloo",
        )  # fmt: skip
        return run, await lane_of(broker, job)

    turns = Turns(plan.runs, lambda blocks: (), at_once=lambda: lanes, end_block=broker.dispatcher.end_block)
    began, processor = time.perf_counter(), time.process_time()
    for run_id in turns:
        if run_id is not None:
            under_way.add(asyncio.ensure_future(follow(by_id[run_id])))
            continue
        done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            assert turns.ended(*task.result()) == []
    seconds, processor_s = time.perf_counter() - began, time.process_time() - processor
    await broker.close()
    await asyncio.gather(*ranks)
    return {
        "lanes": str(lanes),
        "ranks": f"{lanes * RANKS:,}",
        "runs": f"{runs:,}",
        "s": f"{seconds:.1f}",
        "processor ms a run": f"{processor_s / runs * 1e3:.2f}",
        "MiB at most": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f}",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6, help="pairs of sweeps on four hosts; 0: none (default: 6)")
    parser.add_argument("--lanes", type=int, default=256, help="of the scheduler alone (default: 256)")
    parser.add_argument("--runs", type=int, default=20_000, help="of the scheduler alone (default: 20000)")
    args = parser.parse_args()
    if args.pairs:
        print_table([measure_hosts(args.pairs)])
    print_table([asyncio.run(serve(args.lanes, count)) for count in (args.runs // 4, args.runs)])
    print(f"\n{machine('ray', 'torch')}")


if __name__ == "__main__":
    main()
