"""Launcher `spawn`: torch.multiprocessing's way, one fresh process per rank on this machine."""

from __future__ import annotations

import multiprocessing

from dmls_ray.launchers.base import JobFolder, LaunchedJob, Launcher, Rendezvous, run_launched_rank
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult

_HOST = "127.0.0.1"


class Spawn(Launcher):
    """Starts one interpreter, which spawns the ranks."""

    def run(self, folder: JobFolder, job: LaunchedJob) -> None:
        from dmls_ray.training.process import store_at

        context = multiprocessing.get_context("spawn")
        store = store_at(_HOST)
        # Not daemons, which may have no children: a data loader has some.
        processes = [
            context.Process(target=_work, args=(folder, job, number, store.port))
            for number in range(job.config.world_size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        for number, process in enumerate(processes):
            if folder.read_result(number) is None:
                reason = f"rank {number} ended with exit code {process.exitcode}"
                folder.write_result(RankResult(rank=number, outcome=Outcome.KILLED, reason=reason))


def _work(folder: JobFolder, job: LaunchedJob, number: int, port: int) -> None:
    import torch.distributed as dist

    from dmls_ray.training.process import end_with_parent

    def meet() -> Rendezvous:
        store = dist.TCPStore(_HOST, port, is_master=False) if job.config.world_size > 1 else None
        return Rendezvous(number, store)

    end_with_parent()
    run_launched_rank(folder, job, meet)


LAUNCHER = Spawn()
