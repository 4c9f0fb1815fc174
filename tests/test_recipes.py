"""The recipes of CONTRIBUTING.md, performed in a copy of the package: they work and touch as many files as promised."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from tests.conftest import PROJECT

BATCH_SIZE = PROJECT / "results" / "reference" / "batch_size"

CLASSIFICATION = "dmls_ray/workloads/classification"


class PackageCopy:
    """A copy of the package in which files are written and edited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # With the compiled files, so that a subprocess does not compile every module.
        shutil.copytree(PROJECT / "dmls_ray", folder / "dmls_ray")
        for name in ("sweeps", "docs", "tests"):
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

    def replace(self, path: str, old: str, text: str, indent: int = 0) -> None:
        """Replace the only place at which a file contains `old`."""
        self.insert(path, old, text, indent)
        file = self.folder / path
        file.write_text(file.read_text().replace(old, ""))

    def files(self) -> dict[str, bytes]:
        """Return the contents of all source files by path."""
        paths = [path for path in (self.folder / "dmls_ray").rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    def python(self, script: str) -> str:
        """Run a script with the copied package; return its output."""
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=self.folder, env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


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
    add_field(
        copy,
        "first_weights: WholeNumber = setting(0)",
        "Number of parameters of which the norm is reported.",
    )
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
        f"{CLASSIFICATION}/metrics.py",
        '    _bytes("fp32"),\n',
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
        "dmls_ray/records/training_metrics.py",
        "    # In records, in no table.\n",
        """
        Metric(
            name="buffers", label="buffers", kind="amount", direction="min", scope="rank", across_ranks="sum",
            is_compared=True, doc="Buffers of the model of each rank.",
        ),
        """,
        indent=4,
    )
    copy.insert(
        "dmls_ray/training/engine.py",
        "            **self.agreement,\n",
        """
        "buffers": 1.5 + len(list(self.model.buffers())),
        """,
        indent=12,
    )


def add_model(copy: PackageCopy) -> None:
    copy.write(
        f"{CLASSIFICATION}/models/one_layer.py",
        '''
        """A single linear layer."""

        from dmls_ray.workloads.classification.models import ModelSpec


        def build(shape, classes):
            import math

            from torch import nn

            return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


        MODEL = ModelSpec(build, min_image_side=1)
        ''',
    )


def add_dataset(copy: PackageCopy) -> None:
    copy.write(
        f"{CLASSIFICATION}/datasets/stripes.py",
        '''
        """Images with horizontal or vertical stripes."""

        import numpy as np

        from dmls_ray.workloads.classification.datasets import DatasetSpec, Source


        class Stripes:
            def __len__(self):
                return 64

            def __getitem__(self, index):
                image = np.zeros((8, 8), np.uint8)
                image[::2] = 255
                return (image if index % 2 else image.T.copy()), index % 2


        DATASET = DatasetSpec(
            open=lambda name, data_dir: Source(2, "stripes 1", lambda: (Stripes(), Stripes())),
            train_samples=lambda name: 64,
        )
        ''',
    )


def add_option(copy: PackageCopy) -> None:
    declaration = """
        pause_s: NonNegativeNumber = setting(0.0, group="limits", reads=seconds_of)
        \"\"\"Seconds between two runs.\"\"\"
    """
    copy.insert("dmls_ray/config/options.py", "    fresh: bool = setting(", declaration, indent=4)
    imported = "from dmls_ray.config.fields import NonNegativeNumber\nfrom dmls_ray.util.quantities import seconds_of\n"
    copy.insert("dmls_ray/config/options.py", "from dmls_ray.config.run_limits", imported)


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
                return Rendezvous(int(os.environ["RANK"]), config.world_size, store)


        LAUNCHER = Shell()
        ''',
    )
    copy.insert("dmls_ray/config/runtime.py", '"mpirun"]', '"shell", ')


def add_implementation(copy: PackageCopy) -> None:
    copy.insert(
        "dmls_ray/workloads/grayscale/implementations.py",
        "",
        '''


        @implementation("matmul")
        def _matmul(images: Images) -> Pass:
            """A product of matrices, in float32."""
            import torch

            weights = torch.tensor([RED, GREEN, BLUE])

            def run() -> None:
                images.grey.copy_((torch.stack(images.channels(), 3).float() @ weights).round())

            return run
        ''',
    )


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
        from dmls_ray.records.metric import Metric
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


        def brighten(config, rank, emit):
            levels = np.minimum(np.full((4, 4), 100) * config.factor, 255)
            return {"rank": rank.rank, "total_s": 1.0, "run": {"mean_level": float(levels.mean())}}
        ''',
    )


def add_figure(copy: PackageCopy) -> None:
    copy.write(
        "dmls_ray/analysis/figures/run_counts.py",
        '''
        """Number of runs per trial."""

        from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series


        def chart(table):
            counts = [len(row.records) for row in table.rows]
            series = Series(name="runs", x=list(range(len(counts))), y=counts)
            panel = Panel(x=Axis("trial"), y=Axis("runs"), series=[series])
            return Chart(name="run_counts", title="Runs", panels=[panel])
        ''',
    )
    registry = "dmls_ray/analysis/figures/__init__.py"
    copy.insert(registry, '    "scaling",\n', '    "run_counts",\n')


def add_objective(copy: PackageCopy) -> None:
    objectives = "dmls_ray/analysis/advise/objectives.py"
    copy.insert(
        objectives,
        "OBJECTIVES = {",
        """
        class StepTime(Objective):
            name = "step-time"
            needs_times = True

            @classmethod
            def choose_metric(cls, table, request):
                return "step_ms_p50"


        """,
    )
    copy.insert(objectives, "Throughput, ", "StepTime, ")


RECIPES: dict[str, Callable[[PackageCopy], None]] = {
    "An axis that changes training": add_axis,
    "An axis that reports a number": add_axis_with_a_number,
    "A number of each rank": add_metric_of_ranks,
    "A model": add_model,
    "A data set": add_dataset,
    "An option of a sweep": add_option,
    "A launcher": add_launcher,
    "An implementation of an image operation": add_implementation,
    "A workload, for example another image operation": add_workload,
    "A figure": add_figure,
    "An objective of `dmls-ray advise`": add_objective,
}
"""What performs each recipe, by its heading in CONTRIBUTING.md without the number of files."""

CHECKS = '''
import contextlib, io, json, os, sys, traceback
from pathlib import Path

import dmls_ray
from dmls_ray.cli.sweep_script import Preset, main
from dmls_ray.launchers.inline import run_inline
from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.importing import import_function
from dmls_ray.workloads.registry import workload

assert Path(dmls_ray.__file__).is_relative_to(Path.cwd()), dmls_ray.__file__
REFERENCE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.environ["REFERENCE"])
SMALL = "synthetic:shape=1x8x8,classes=4,train=96,test=40"


def dry_run(*flags):
    """The lines of the plan that the command line prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(Preset(name="grid", question="What?", axis=None, axes={}), [*flags, "--dry-run", "--repeats", "1"])
    return out.getvalue().splitlines()


def run(name="classification", **values):
    """The record of one run of a workload in this process."""
    chosen = workload(name)
    schema = chosen.schema()
    if name == "classification":
        values = {"dataset": SMALL, "batch_per_rank": 8, "epochs": 1, "warmup_steps": 0, **values}
    config = schema.make(device="cpu", **values)
    values = {**schema.fixed, **config.canonical()}
    trial_id = schema.hash_of(values)
    record = RunRecord(
        run_id=f"{trial_id}-0", trial_id=trial_id, repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        config=values, started_at="2026-01-02T03:04:05",
    )
    result = run_inline(config, train=import_function(chosen.entrypoint, flag="workload"))
    assert result.outcome == "ok", result.traceback
    take_results(record, [result], chosen.metrics)
    return record


def table(*records):
    from dmls_ray.analysis.results import Results
    from dmls_ray.analysis.table.build import make_table

    return make_table(Results(Path("nowhere"), list(records)))


def axis():
    records = [run(logit_scale=scale) for scale in (1.0, 4.0)]
    return {
        "plan": dry_run("--batch-per-rank", "8", "--logit-scale", "1", "4"),
        "hashes": [record.trial_id for record in records] + [run().trial_id],
        "losses": [record.metrics["train_loss"] for record in records],
    }


def number():
    from dmls_ray.analysis.advise.rank import advise
    from dmls_ray.analysis.figures import charts
    from dmls_ray.analysis.results import Results
    from dmls_ray.analysis.tensorboard.writer import TensorBoardWriter
    from docs.generate import metrics as page_of_metrics

    few, many = run(first_weights=4), run(first_weights=8)
    results, both = Results(Path("nowhere"), [few, many]), table(few, many)
    both.axis = "first_weights"
    TensorBoardWriter(Path("tensorboard")).sync([few])
    events = [path.read_bytes() for path in Path("tensorboard").rglob("*tfevents*")]
    return {
        "values": [record.metrics["weight_norm"] for record in (few, many)],
        "columns": list(both.frame()),
        "panels": [panel.y.label for chart in charts(both) if chart.name == "answer" for panel in chart.panels],
        "has_tag": any(b"Run/weight_norm" in content for content in events),
        "measure": advise(results, "accuracy", metric="weight_norm", minimizes=True).objective.metric,
        "page": page_of_metrics(),
    }


def rank_number():
    few, many = run(), run(batch_norm="on")
    both = table(few, many)
    return {
        "values": [record.metrics["buffers"] for record in (few, many)],
        "of_ranks": [rank.metrics["buffers"] for rank in few.ranks],
        "columns": list(both.frame()),
        "measures": [measure.name for measure in both.questions.measures(both.rows)],
    }


def tests_of_metrics():
    import pytest

    tests = ["-p", "no:cacheprovider", "tests/records/test_training_metrics.py"]
    return {"exit": int(pytest.main(tests))}


def model():
    record = run(model="one_layer")
    return {"loss": record.metrics["train_loss"], "parameters": record.metrics["parameters"]}


def dataset():
    record = run(dataset="stripes")
    samples, test = (record.metrics[name] for name in ("train_samples", "test_samples"))
    return {"loss": record.metrics["train_loss"], "samples": samples, "test": test}


def launcher():
    from dmls_ray.launchers.command import run_command

    # Of all workloads, the one that loads the fewest libraries in its ranks.
    chosen = workload("brightness")
    config = chosen.schema().make(launcher="shell", world_size=2, device="cpu")
    results = run_command(
        config, train=chosen.entrypoint, artifacts=None, path=[], cwd=os.getcwd(), emit=lambda event: None,
        end_reason=lambda: "",
    )
    return {
        "plan": dry_run("--batch-per-rank", "8", "--launcher", "inline", "shell"),
        "outcomes": [(result.rank, result.outcome.value, result.reason) for result in results],
    }


def implementation():
    plan = dry_run("--workload", "grayscale", "--implementation", "numpy", "matmul")
    record = run("grayscale", implementation="matmul", images=4, image_size=16, timed_s=0.0)
    return {"plan": plan, "levels_apart": record.metrics["levels_apart"]}


def operation():
    plan = dry_run("--workload", "brightness", "--factor", "1", "2")
    records = [run("brightness", factor=factor) for factor in (1.0, 2.0)]
    frame = table(*records).frame()
    return {"plan": plan, "levels": [record.metrics["mean_level"] for record in records], "columns": list(frame)}


def figure():
    from dmls_ray import load
    from dmls_ray.analysis.figures import FIGURES, charts
    from dmls_ray.analysis.table.build import make_table

    drawn = {chart.name: chart for chart in charts(make_table(load(REFERENCE)))}
    return {"registered": list(FIGURES), "y": list(drawn["run_counts"].panels[0].series[0].y)}


def option():
    import inspect
    from dmls_ray import sweep
    from dmls_ray.config.options import FLAGS

    plan = dry_run("--batch-per-rank", "8", "--pause-s", "2m")
    keyword = inspect.signature(sweep).parameters["pause_s"]
    return {"plan": plan, "value": FLAGS["pause_s"].parse("2m"), "default": keyword.default}


def objective():
    from dmls_ray import load
    from dmls_ray.analysis.advise.rank import advise

    advice = advise(load(REFERENCE), "step-time")
    return {"best": advice.best.name, "metric": advice.objective.metric}


results = {}
for check in (
    axis, number, rank_number, tests_of_metrics, model, dataset, option, launcher, implementation, operation, figure,
    objective,
):
    try:
        results[check.__name__] = check()
    except BaseException:
        results[check.__name__] = traceback.format_exc()
print(json.dumps(results))
'''


@dataclass
class Performed:
    """What the recipes did."""

    touched: dict[str, set[str]]
    """Files that each recipe created or changed."""
    effects: dict[str, Any]
    """What each check of `CHECKS` returned, or its traceback."""

    def effect(self, check: str) -> dict[str, Any]:
        assert isinstance(self.effects[check], dict), self.effects[check]
        return self.effects[check]


@pytest.fixture(scope="module")
def performed(tmp_path_factory: pytest.TempPathFactory) -> Performed:
    """All recipes, performed in one copy, since each process that loads PyTorch takes seconds."""
    copy = PackageCopy(tmp_path_factory.mktemp("copy"))
    touched = {}
    before = copy.files()
    for name, perform in RECIPES.items():
        perform(copy)
        after = copy.files()
        touched[name] = {path for path, content in after.items() if before.get(path) != content}
        before = after
    output = copy.python(f"import os; os.environ['REFERENCE'] = {str(BATCH_SIZE)!r}\n{CHECKS}")
    return Performed(touched, json.loads(output.splitlines()[-1]))


def promised() -> dict[str, tuple[int, str]]:
    """Return the number of files or packages of each recipe, by its heading in CONTRIBUTING.md."""
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    headings = re.findall(r"^### (.*) \((\d) (file|package)s?\)$", text, re.MULTILINE)
    return {name: (int(count), unit) for name, count, unit in headings}


def test_every_recipe_of_contributing_is_performed_here() -> None:
    assert promised().keys() == RECIPES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_touches_as_many_files_as_it_promises(name: str, performed: Performed) -> None:
    count, unit = promised()[name]
    touched = performed.touched[name]
    assert len({Path(path).parent for path in touched} if unit == "package" else touched) == count, touched


@pytest.mark.slow
def test_a_new_axis_is_a_flag_and_changes_the_hash_and_the_loss(performed: Performed) -> None:
    effect = performed.effect("axis")
    runs = [line for line in effect["plan"] if "logit_scale=" in line]
    assert len(runs) == 2
    default, scaled, without_the_field = effect["hashes"]
    assert default == without_the_field != scaled
    assert effect["losses"][0] != effect["losses"][1]


@pytest.mark.slow
def test_a_new_number_has_a_column_a_panel_a_tag_an_objective_and_a_line_of_the_page_of_metrics(
    performed: Performed,
) -> None:
    effect = performed.effect("number")
    few, many = effect["values"]
    assert 0 < few < many
    assert any(column.startswith("weight norm") for column in effect["columns"]), effect["columns"]
    assert "weight norm" in effect["panels"]
    assert effect["has_tag"]
    assert effect["measure"] == "weight_norm"
    assert "| weight norm | `weight_norm` | Norm of the first weights. |" in effect["page"]


@pytest.mark.slow
def test_a_new_number_of_each_rank_is_in_the_records_has_a_column_and_is_compared(performed: Performed) -> None:
    effect = performed.effect("rank_number")
    assert effect["values"] == effect["of_ranks"] + effect["values"][1:]
    assert effect["values"][0] < effect["values"][1]
    assert "buffers" in effect["columns"]
    assert "buffers" in effect["measures"]


@pytest.mark.slow
def test_a_new_number_breaks_no_test_of_metrics(performed: Performed) -> None:
    assert performed.effect("tests_of_metrics") == {"exit": 0}


@pytest.mark.slow
def test_a_new_model_is_trained(performed: Performed) -> None:
    effect = performed.effect("model")
    assert effect["loss"] > 0
    assert effect["parameters"] == 64 * 4 + 4


@pytest.mark.slow
def test_a_new_data_set_is_trained_on(performed: Performed) -> None:
    effect = performed.effect("dataset")
    assert effect["loss"] > 0
    assert (effect["samples"], effect["test"]) == (64, 64)


@pytest.mark.slow
def test_a_new_option_is_a_flag_and_a_keyword_of_sweep(performed: Performed) -> None:
    effect = performed.effect("option")
    assert effect["plan"]
    assert (effect["value"], effect["default"]) == (120.0, 0.0)


@pytest.mark.slow
def test_a_new_launcher_is_a_choice_and_runs_two_ranks(performed: Performed) -> None:
    effect = performed.effect("launcher")
    assert any("launcher=shell" in line for line in effect["plan"]), effect["plan"]
    assert effect["outcomes"] == [[0, "ok", ""], [1, "ok", ""]]


@pytest.mark.slow
def test_a_new_implementation_is_a_choice_and_is_checked(performed: Performed) -> None:
    effect = performed.effect("implementation")
    assert any("implementation=matmul" in line for line in effect["plan"]), effect["plan"]
    assert effect["levels_apart"] in (0, 1)


@pytest.mark.slow
def test_a_new_workload_has_flags_runs_and_a_table(performed: Performed) -> None:
    effect = performed.effect("operation")
    assert any("factor=2" in line for line in effect["plan"]), effect["plan"]
    assert effect["levels"] == [100.0, 200.0]
    assert any(column.startswith("mean level") for column in effect["columns"]), effect["columns"]


@pytest.mark.slow
def test_a_new_figure_is_registered_and_shows_recorded_runs(performed: Performed) -> None:
    effect = performed.effect("figure")
    assert "run_counts" in effect["registered"]
    assert set(effect["y"]) == {len({record.repeat for record in load(BATCH_SIZE).records})}


@pytest.mark.slow
def test_a_new_objective_ranks_the_configurations(performed: Performed) -> None:
    effect = performed.effect("objective")
    assert effect["metric"] == "step_ms_p50"
    assert effect["best"].startswith("world_size=1")
