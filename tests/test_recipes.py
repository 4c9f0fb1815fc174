"""The recipes of CONTRIBUTING.md, performed in a copy of the package: they work and touch as many files as promised."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PROJECT, call

CLASSIFICATION = "dmls_ray/workloads/classification"


class PackageCopy:
    """A copy of the package in which files are written and edited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # With the compiled files, so that a subprocess does not compile every module.
        shutil.copytree(PROJECT / "dmls_ray", folder / "dmls_ray")
        for name in ("sweeps", "docs", "tests", "results/reference/batch_size"):
            shutil.copytree(PROJECT / name, folder / name)
        shutil.copy(PROJECT / "pyproject.toml", folder)

    def write(self, path: str, text: str) -> None:
        """Create a file."""
        file = self.folder / path
        assert not file.exists(), f"{path} exists already; the recipe needs another name"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip("\n"))

    def insert(self, path: str, before: str, text: str, indent: int = 0) -> None:
        """Insert text before the only place at which a file contains `before`; without it, at the end of the file."""
        file = self.folder / path
        content = file.read_text()
        assert not before or content.count(before) == 1, f"{path} contains {content.count(before)} times: {before}"
        at = content.index(before) if before else len(content)
        inserted = textwrap.indent(textwrap.dedent(text).lstrip("\n"), " " * indent)
        file.write_text(content[:at] + inserted + content[at:])

    def files(self) -> dict[str, bytes]:
        """Return the contents of all source files by path."""
        paths = [path for path in (self.folder / "dmls_ray").rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}


def add_field(copy: PackageCopy, declaration: str, docstring: str) -> None:
    """Add a field to the configuration of classification."""
    field = f'{declaration}\n"""{docstring}"""\n\n'
    copy.insert(f"{CLASSIFICATION}/config.py", "    label_smoothing: Share = setting(", field, indent=4)


def add_axis(copy: PackageCopy) -> None:
    add_field(copy, "logit_scale: Annotated[float, Meta(gt=0)] = setting(1.0)", "Factor of the logits.")
    copy.insert(
        f"{CLASSIFICATION}/train.py",
        "        return F.cross_entropy(outputs, ",
        "outputs = outputs * self.config.logit_scale\n",
        indent=8,
    )


def add_axis_with_a_number(copy: PackageCopy) -> None:
    add_field(copy, "first_weights: WholeNumber = setting(0)", "Number of parameters of which the norm is reported.")
    copy.insert(
        f"{CLASSIFICATION}/train.py",
        '        if self.config.quantization != "off":\n            self._fp32_accuracy',
        """
        if self.config.first_weights:
            weights = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
            metrics["weight_norm"] = float(weights[: self.config.first_weights].norm())
        """,
        indent=8,
    )
    copy.insert(
        f"{CLASSIFICATION}/workload.py",
        '    _row("fp32_checkpoint_bytes"',
        """
        Metric(
            name="weight_norm", label="weight norm", kind="amount", direction="none", scope="run", is_compared=True,
            doc="Norm of the first weights.",
        ),
        """,
        indent=4,
    )


def add_metric_of_ranks(copy: PackageCopy) -> None:
    copy.insert(
        "dmls_ray/records/metrics.py",
        "    # In records, in no table.\n",
        """
        Metric(
            name="process_threads", label="process threads", kind="amount", direction="min", scope="rank",
            across_ranks="sum", is_compared=True, doc="Threads of the process of each rank.",
        ),
        """,
        indent=4,
    )
    meter = "dmls_ray/training/rank_meter.py"
    measured = 'result.add({"process_threads": threading.active_count()})\n'
    copy.insert(meter, "        result.add(self._utilization.read())", measured, indent=8)
    copy.insert(meter, "from collections.abc", "import threading\n")


def add_model(copy: PackageCopy) -> None:
    build = """
        def _one_layer(shape: Shape, classes: int) -> nn.Module:
            \"\"\"A single linear layer.\"\"\"
            import math

            from torch import nn

            return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


    """
    copy.insert(f"{CLASSIFICATION}/models.py", "MODELS: dict[str, ModelBuilder] = {\n", build)
    entry = '"one_layer": _one_layer,\n'
    copy.insert(f"{CLASSIFICATION}/models.py", '    "simplecnn": ', entry, indent=4)


def add_dataset(copy: PackageCopy) -> None:
    samples = """
        class Stripes:
            \"\"\"Images with horizontal or vertical stripes.\"\"\"

            def __len__(self):
                return 64

            def __getitem__(self, index):
                import numpy as np

                image = np.zeros((8, 8), np.uint8)
                image[::2] = 255
                return (image if index % 2 else image.T.copy()), index % 2


    """
    copy.insert(f"{CLASSIFICATION}/datasets.py", "DATASETS = {\n", samples)
    entry = """
        "stripes": DatasetSpec(
            open=lambda name, data_dir: Source(2, "stripes 1", lambda: (Stripes(), Stripes())),
        ),
    """
    copy.insert(f"{CLASSIFICATION}/datasets.py", '    "synthetic": ', entry, indent=4)


def add_option(copy: PackageCopy) -> None:
    declaration = """
        remark: str = setting("", group="results")
        \"\"\"Text that sweep.json keeps with the session.\"\"\"
    """
    copy.insert("dmls_ray/config/options.py", "    fresh: bool = setting(", declaration, indent=4)
    copy.insert(
        "dmls_ray/execution/recorder.py",
        '        "question": options.question,',
        '"remark": options.remark,\n',
        indent=8,
    )


def add_launcher(copy: PackageCopy) -> None:
    copy.write(
        "dmls_ray/launchers/shell.py",
        '''
        """Launcher `shell`: a shell starts one interpreter per rank."""

        import os
        import shlex
        import sys

        from dmls_ray.launchers.base import Launcher, Rendezvous


        class Shell(Launcher):
            def command(self, config, program):
                python = shlex.join([sys.executable, *program])
                ranks = [f"RANK={rank} STORE={program[-1]}/store {python} & " for rank in range(config.world_size)]
                return ["sh", "-c", f"{''.join(ranks)} wait"]

            def rendezvous(self, config):
                from torch.distributed import FileStore

                store = FileStore(os.environ["STORE"], config.world_size)
                return Rendezvous(int(os.environ["RANK"]), store)


        LAUNCHER = Shell()
        ''',
    )
    copy.insert("dmls_ray/config/runtime.py", '"mpirun"]', '"shell", ')


def add_workload(copy: PackageCopy) -> None:
    package = "dmls_ray/workloads/brightness"
    copy.write(f"{package}/__init__.py", '"""Brightening of images."""\n')
    copy.write(
        f"{package}/workload.py",
        '''
        """The workload that brightens images."""

        from dataclasses import dataclass

        from dmls_ray.config.fields import PositiveNumber
        from dmls_ray.config.runtime import RuntimeConfig
        from dmls_ray.records.metrics import Metric
        from dmls_ray.workloads.base import Workload


        @dataclass(frozen=True, kw_only=True)
        class BrightnessConfig(RuntimeConfig):
            factor: PositiveNumber = 1.5
            """Factor of each pixel."""


        class BrightnessWorkload(Workload):
            name = "brightness"
            config = BrightnessConfig
            entrypoint = "dmls_ray.workloads.brightness.train:brighten"
            metrics = (
                Metric(
                    name="mean_level", label="mean level", kind="value", direction="none", scope="run"
                ),
            )


        WORKLOAD = BrightnessWorkload
        ''',
    )
    copy.write(
        f"{package}/train.py",
        '''
        """Brightening of images on one rank."""

        import numpy as np

        from dmls_ray.records.run_events import RankResult, RunResult


        def brighten(config, rank, emit):
            levels = np.minimum(np.full((4, 4), 100) * config.factor, 255)
            run = RunResult(metrics={"mean_level": levels.mean()})
            return RankResult(metrics={"total_s": 1.0}, run=run)
        ''',
    )


def add_figure(copy: PackageCopy) -> None:
    copy.write(
        "dmls_ray/analysis/figures/run_counts.py",
        '''
        """Number of runs per trial."""

        from dmls_ray.analysis.figures.chart import PlotAxis, Chart, Panel, Point, PlotSeries


        def run_counts_chart(table):
            counts = [Point(trial, len(row.records)) for trial, row in enumerate(table.rows)]
            series = PlotSeries("runs", counts)
            panel = Panel(x=PlotAxis("trial"), y=PlotAxis("runs"), series=[series])
            return Chart(name="run_counts", title="Runs", panels=[panel])
        ''',
    )
    registry = "dmls_ray/analysis/figures/__init__.py"
    copy.insert(
        registry,
        "from dmls_ray.analysis.table.model",
        "from dmls_ray.analysis.figures.run_counts import run_counts_chart\n",
    )
    copy.insert(registry, '    "scaling": ', '    "run_counts": run_counts_chart,\n')


RECIPES: dict[str, Callable[[PackageCopy], None]] = {
    "An axis that changes training": add_axis,
    "An axis that reports a number": add_axis_with_a_number,
    "A number of each rank": add_metric_of_ranks,
    "A model": add_model,
    "A data set": add_dataset,
    "An option of a sweep": add_option,
    "A launcher on one machine": add_launcher,
    "A workload, for example another image operation": add_workload,
    "A figure": add_figure,
}
"""What performs each recipe, by its heading in CONTRIBUTING.md without the number of files."""


def promised() -> dict[str, tuple[int, str]]:
    """Return the number of files or packages of each recipe, by its heading in CONTRIBUTING.md."""
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    headings = re.findall(r"^### (.*) \((\d) (file|package)s?\)$", text, re.MULTILINE)
    return {name: (int(count), unit) for name, count, unit in headings}


def test_every_recipe_of_contributing_is_performed_here() -> None:
    assert promised().keys() == RECIPES.keys()


@pytest.mark.slow
def test_each_recipe_touches_as_many_files_as_it_promises_and_works(tmp_path: Path) -> None:
    """All recipes in one copy, since each process that loads PyTorch takes seconds."""
    copy = PackageCopy(tmp_path)
    before = copy.files()
    for name, perform in RECIPES.items():
        perform(copy)
        after = copy.files()
        touched = {path for path, content in after.items() if before.get(path) != content}
        count, unit = promised()[name]
        assert len({Path(path).parent for path in touched} if unit == "package" else touched) == count, touched
        before = after
    tests = ["tests/recipe_checks.py", "tests/records/test_metrics.py"]
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests]
    done = call(words, tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
