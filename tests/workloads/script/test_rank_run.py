"""Scripts of all kinds, each run in a fork of a server as a rank runs it: what is seen of them, and how they end."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
import time

import pytest

from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.script.config import ScriptConfig
from dmls_ray.workloads.script.flags import ScriptFlag
from tests.workloads.script.conftest import BEGIN, LOOP, Runner


def test_a_script_is_ended_after_its_steps_and_its_samples_are_known_from_loader_and_model(run: Runner) -> None:
    result = run.one(BEGIN + LOOP)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.metrics["steps"] == 20
    assert result.values["samples_per_step"] == 16
    assert result.run.facts["counted_by"] == "loader and model agree"
    assert result.values["samples_per_s"] > 0
    assert result.run.metrics["last_loss"] > 0
    assert result.values["backward_ms"] > 0


@pytest.mark.parametrize(
    ("end", "outcome", "reason"),
    [
        ("raise ArithmeticError('a fault')", Outcome.ERROR, "ArithmeticError: a fault (train.py, line "),
        ("sys.exit(3)", Outcome.ERROR, "exit code 3"),
        ("sys.exit('no data')", Outcome.ERROR, "exit code 1 after 1 steps"),
        ("os._exit(5)", Outcome.ERROR, "exit code 5"),
        (
            "import threading; threading.Thread(target=os._exit, args=(5,)).start(); time.sleep(60)",
            Outcome.ERROR,
            "exit code 5 after 1 steps",
        ),
        ("import ctypes; ctypes.CDLL(None).exit(0)", Outcome.ERROR, "exit code 0 in the middle of the run"),
        ("import ctypes; ctypes.CDLL(None)._exit(0)", Outcome.ERROR, "exit code 0 in the middle of the run"),
        ("import posix; posix._exit(0)", Outcome.ERROR, "exit code 0 in the middle of the run"),
        ("os.kill(os.getpid(), 11)", Outcome.KILLED, "-11"),
        ("os.kill(os.getpid(), 9)", Outcome.KILLED, "-9"),
        ("os.fork() and os._exit(0); time.sleep(60)", Outcome.OK, ""),
        ("import atexit; atexit.register(os._exit, 0)", Outcome.OK, ""),
        ("torch.empty(2**48)", Outcome.OOM, "can't allocate memory"),
        ("loss = step(x * float('nan'), y)", Outcome.DIVERGED, "the loss of step 2 is not finite"),
        ("print(open('/dev/stdin').read() == '')", Outcome.OK, ""),
        ("print('x' * 2**22)", Outcome.OK, ""),
    ],
)
def test_a_run_says_how_its_script_ended(run: Runner, end: str, outcome: Outcome, reason: str) -> None:
    result = run.one(BEGIN + f"x, y = next(iter(loader))\nstep(x, y)\n{end}\n")
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


WENT_ON = "its process closed its connection, or became another program, and went on where nothing is measured"


@pytest.mark.parametrize(
    "way",
    [
        "os.closerange(3, 256); time.sleep(60)",
        "ctypes.CDLL(None).execvp(b'sleep', (ctypes.c_char_p * 3)(b'sleep', b'60', None))",
    ],
)
def test_a_script_that_goes_on_without_its_connection_is_ended(run: Runner, way: str) -> None:
    began = time.monotonic()
    result = run.one(f"import ctypes, os, time\n{way}")
    assert (result.outcome, result.reason) == (Outcome.ERROR, WENT_ON)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("os.environ['X'] = '0'; os.execv(sys.executable, [sys.executable])", "os.execv, {}; set X=0 by --env"),
        ("os.execve(sys.executable, ['python'], {'Y': 'a b', 'X': '1'})", "os.execve, {}; set X=1 'Y=a b' by --env"),
        ("os.execvpe('sleep', ['sleep', '60'], {**os.environ, 'X': '1'})", "os.execvpe, {}; set X=1 by --env"),
        ("os.execlp('sleep', 'sleep', '60')", "os.execlp, {}; let it train in the process in which it starts, or sweep "
         "what it starts: sleep 60"),
        ("import threading; threading.Thread(target=os.execlp, args=('sleep', 'sleep', '60')).start(); time.sleep(60)",
         "os.execlp, {}; let it train in the process in which it starts, or sweep what it starts: sleep 60"),
    ],
)  # fmt: skip
def test_a_script_that_replaces_its_process_says_so_and_names_what_it_has_set(
    run: Runner, way: str, reason: str
) -> None:
    result = run.one(f"import os, sys, time\n{way}")
    expected = f"the script replaced its process by {reason.format('which is not measured')}"
    assert (result.outcome, result.reason) == (Outcome.ERROR, expected)


def test_ranks_that_replace_their_processes_say_so(run: Runner) -> None:
    source = "import os, sys\nos.environ['X'] = '0'\nos.execv(sys.executable, [sys.executable, *sys.argv])"
    for result in run.ranks(source, world_size=2):
        assert (result.outcome, result.reason.endswith("; set X=0 by --env")) == (Outcome.ERROR, True), result.reason


def test_a_rank_that_loses_the_others_is_not_the_cause(run: Runner) -> None:
    source = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank():
    time.sleep(1)
    os.kill(os.getpid(), 9)
dist.all_reduce(torch.ones(1))
"""
    waiting, killed = run.ranks(source, world_size=2)
    assert (waiting.outcome, waiting.is_symptom) == (Outcome.ERROR, True), waiting.reason
    assert (killed.outcome, killed.is_symptom) == (Outcome.KILLED, False)


def test_a_script_that_a_thread_ends_has_its_steps(run: Runner) -> None:
    source = BEGIN + "import threading\nstep(*next(iter(loader)))\nthreading.Thread(target=os._exit, args=(0,)).start()"
    result = run.one(f"{source}\ntime.sleep(60)")
    assert (result.outcome, result.steps, result.run.metrics["steps"]) == (Outcome.OK, 1, 1)


def test_programs_that_forks_of_a_script_become_and_programs_that_are_not_there_end_no_script(run: Runner) -> None:
    others = """
if not os.fork():
    os.execvp("true", ["true"])
assert os.wait()[1] == 0
assert os.spawnlp(os.P_WAIT, "true", "true") == 0
try:
    os.execvp("not-there", ["not-there"])
except FileNotFoundError:
    print("not there")
"""
    result = run.one(BEGIN + others + LOOP)
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 20), result.reason
    assert "not there" in run.log


def test_a_script_that_ends_before_it_trains_says_why(run: Runner) -> None:
    assert run.one("raise SystemExit('no data')").reason == "exit code 1 after 0 steps: no data"


def test_a_script_that_ends_within_its_warm_up_has_a_rate(run: Runner) -> None:
    result = run.one(BEGIN + "for x, y in loader:\n    step(x, y)\n", steps=200)
    assert result.run.metrics["steps"] == 16
    assert result.values["samples_per_step"] == 16
    assert result.values["samples_per_s"] > 0


def test_a_script_that_trains_nothing_says_so_with_its_last_line(run: Runner) -> None:
    reason = run.one("print('hello')").reason
    assert "no optimizer step" in reason
    assert reason.endswith("--metric-regex NAME PATTERN reads a rate that it prints. Its last line: hello")
    assert "--world-size" not in reason


def test_a_script_without_steps_that_prints_the_number_that_is_asked_for_has_it(run: Runner) -> None:
    source = "for step in range(3): print('rate', 10.0 * step)"
    result = run.one(source, patterns={"rate": r"rate (\S+)"})
    assert (result.outcome, result.run.reported["rate"]) == (Outcome.OK, 20.0)
    assert run.one(source, patterns={"loss": r"loss (\S+)"}).outcome is Outcome.ERROR
    for result in run.ranks(source, world_size=2, patterns={"rate": r"rate (\S+)"}):
        assert (result.outcome, result.run.reported["rate"]) == (Outcome.OK, 20.0)
        assert not result.run.without_steps


def test_ranks_that_train_nothing_are_not_told_to_ask_for_ranks(run: Runner) -> None:
    source = "import subprocess\nsubprocess.run(['sleep', '0.01'])"
    assert "--world-size 2" in run.one(source).reason
    for result in run.ranks(source, world_size=2):
        assert "--world-size" not in result.run.without_steps
        assert "--metric-regex" in result.run.without_steps


CAUGHT = """
import os, sys, traceback
try:
    raise ValueError("the cause")
except ValueError:
    traceback.print_exc()
    print("set FULL_ERROR=1 for more")
    END
"""


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("sys.exit(1)", "ValueError: the cause (train.py, line 4)"),
        ("raise SystemExit(2)", "ValueError: the cause (train.py, line 4)"),
        ("os._exit(3)", "exit code 3 after 0 steps: ValueError: the cause"),
        ("sys.exit('no data')", "exit code 1 after 0 steps: ValueError: the cause"),
    ],
)
def test_a_script_that_prints_an_exception_and_exits_fails_with_the_exception(
    run: Runner, end: str, reason: str
) -> None:
    assert run.one(CAUGHT.replace("END", end)).reason == reason


def test_a_module_is_run_as_python_runs_it(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder)
    package = run.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nARGUMENTS = sys.argv[0]")
    (package / "model.py").write_text("WIDTH = 8")
    check = """
from . import ARGUMENTS
from .model import WIDTH
import pickle
class Local: pass
pickle.loads(pickle.dumps(Local()))
assert (__name__, __package__, __spec__.name) == ("__main__", "package", "package.train")
assert ARGUMENTS == "-m" and sys.argv[0] == __file__, (ARGUMENTS, sys.argv)
assert sys.path[0] == os.getcwd()
"""
    (package / "train.py").write_text(BEGIN + check + LOOP)
    config = ScriptConfig(script="-m package.train", steps=20, seed_flag="none")
    (result,) = run.run(config)
    assert (result.outcome, result.run.metrics.get("steps")) == (Outcome.OK, 20), result.reason
    (result,) = run.run(ScriptConfig(script="package/train.py", seed_flag="none"))
    assert "run by its name: dmls-ray sweep -m package.train" in result.reason
    (package / "train.py").write_text("from .model import WIDTH\nraise ValueError('a fault')")
    (result,) = run.run(config)
    assert result.reason == "ValueError: a fault (train.py, line 2)"


@pytest.mark.parametrize("caught", ["Exception", "BaseException"])
def test_a_script_that_catches_errors_around_its_steps_is_ended_all_the_same(run: Runner, caught: str) -> None:
    loop = f"""
for epoch in range(100):
    for x, y in loader:
        try:
            step(x, y)
        except {caught} as error:
            print("caught", type(error).__name__)
"""
    result = run.one(BEGIN + loop)
    assert result.outcome is Outcome.OK
    assert 20 <= result.run.metrics["steps"] <= 25


def test_steps_of_the_first_optimizer_count_and_accumulation_is_seen(run: Runner) -> None:
    loop = """
other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
for epoch in range(100):
    for number, (x, y) in enumerate(loader):
        nn.functional.cross_entropy(model(x), y).backward()
        if number % 2:
            optimizer.step()
            other.step()
"""
    result = run.one(BEGIN + loop)
    assert result.run.metrics["steps"] == 20
    assert result.values["backward_passes"] == 2
    assert result.values["samples_per_step"] == 32


def test_a_script_that_changes_its_parameters_by_hand_makes_a_step_with_each_backward_pass(run: Runner) -> None:
    loop = """
del optimizer
for epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
"""
    source = BEGIN.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "optimizer = None")
    result = run.one(source + loop)
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 20), result.reason


def test_tests_between_steps_are_in_no_step(run: Runner) -> None:
    loop = """
for epoch in range(100):
    for x, y in loader:
        step(x, y)
    model.eval()
    with torch.no_grad():
        model(data.tensors[0])
        time.sleep(0.3)
    model.train()
"""
    result = run.one(BEGIN + loop, steps=40, evaluation="test")
    assert result.values["step_ms_p95"] < 100
    assert result.values["rest_ms"] < 30


def test_a_model_is_tested_within_what_holds_it(run: Runner) -> None:
    loop = """
class Wrapper(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return self.held(x)

net = nn.Sequential(model, nn.Identity())
model = Wrapper(net)
for epoch in range(100):
    for x, y in loader:
        step(x, y)
    net.eval()
    with torch.no_grad():
        for _ in range(3):
            net(data.tensors[0])
            time.sleep(0.1)
    net.train()
"""
    result = run.one(BEGIN + loop, steps=40, evaluation="test")
    assert result.values["counted_share"] < 0.8


def test_a_rank_that_fails_before_it_makes_a_step_serves_no_other(run: Runner) -> None:
    loop = """
if os.environ["RANK"] == "1":
    raise RuntimeError("data server: Connection refused")
for epoch in range(100):
    for x, y in loader:
        step(x, y)
        time.sleep(0.05)
"""
    trained, failed = run.ranks(BEGIN + loop, world_size=2)
    assert (trained.outcome, failed.outcome) == (Outcome.OK, Outcome.ERROR)
    assert not failed.run.without_steps


def test_integers_of_two_dimensions_are_tokens(run: Runner) -> None:
    loop = """
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    text = torch.randint(0, 50, (4, 33))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
    optimizer.step()
"""
    result = run.one(BEGIN + loop)
    assert result.run.facts["counted_by"] == "tokens of the model"
    assert result.values["tokens_per_s"] > 0
    assert "samples_per_s" not in result.metrics


def test_what_a_script_prints_is_in_its_log_and_numbers_become_metrics(run: Runner) -> None:
    loop = (
        """
print("quality: 0.25")
print('{"perplexity": 7.5, "name": "x"}')
print("on stderr", file=sys.stderr)
"""
        + LOOP
    )
    result = run.one(BEGIN + loop, patterns={"quality": "quality: (.*)"})
    assert (result.run.reported["quality"], result.run.reported["perplexity"]) == (0.25, 7.5)
    assert "on stderr" in run.log


def test_a_script_is_the_main_module_and_its_arguments_are_those_of_the_run(run: Runner) -> None:
    source = """
import sys
assert __name__ == "__main__" and sys.modules["__main__"].__file__ == __file__
print(sys.argv[1:])
"""
    run.one(
        source,
        arguments="--data '/a b' --lr={rate}",
        values={"rate": 0.5},
        flags={"rate": ScriptFlag("rate", "template")},
    )
    assert "['--data', '/a b', '--lr=0.5']" in run.log


def test_two_ranks_meet_by_the_variables_of_torchrun(run: Runner) -> None:
    loop = (
        """
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
        + LOOP
    )
    for _ in range(2):
        results = run.ranks(BEGIN + loop, world_size=2)
        assert [result.outcome for result in results] == [Outcome.OK, Outcome.OK], results[0].reason
        assert all(result.values["comm_ms"] > 0 for result in results)


@pytest.mark.parametrize("actor_rank", [0, 1])
def test_a_rank_that_sends_batches_to_one_that_trains_is_no_failure(run: Runner, actor_rank: int) -> None:
    loop = f"""
import torch.distributed as dist
dist.init_process_group("gloo")
x, y = data[:16]
while True:
    if dist.get_rank() == {actor_rank}:
        dist.send(x, dst={1 - actor_rank})
    else:
        dist.recv(x, src={actor_rank})
        step(x, y)
"""
    began = time.perf_counter()
    results = run.ranks(BEGIN + loop, world_size=2)
    assert time.perf_counter() - began < 25  # the learner waits for no step of the actor
    actor, learner = results[actor_rank], results[1 - actor_rank]
    assert (learner.outcome, actor.is_symptom, actor.steps) == (Outcome.OK, True, 0)
    assert actor.run.without_steps


def test_a_later_run_is_that_of_a_fresh_process(run: Runner) -> None:
    source = """
import os, threading, time, torch
print("variable", os.environ.get("LEFT_BEHIND"), "threads", threading.active_count())
os.environ["LEFT_BEHIND"] = "yes"
torch.set_default_dtype(torch.float64)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""
    run.one(source)
    first = run.log
    run.one(source)
    assert run.log == first
    assert "variable None threads 1" in first or "variable None threads 2" in first


def test_one_rank_is_run_as_python_runs_it_and_says_what_lacks(run: Runner) -> None:
    result = run.one("import os; print(os.environ['LOCAL_RANK'])")
    assert result.outcome is Outcome.ERROR
    assert "KeyError: 'LOCAL_RANK' (train.py, line 1); without ranks as torchrun has them" in result.reason


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)", "raise OSError('disk')", pytest.param("", marks=pytest.mark.slow),
        pytest.param("raise SystemExit", marks=pytest.mark.slow),
        pytest.param("sys.exit('no more')", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_script_that_runs_to_its_end_prints_and_exits_as_under_python(run: Runner, end: str) -> None:
    source = f"""
import atexit, sys, torch
atexit.register(print, "at exit")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print("step", number, __name__, sys.argv[1:], flush=True)
print("to stderr", file=sys.stderr)
{end}
"""
    result = run.one(source, steps=None, arguments="--lr 1")
    command = [sys.executable, str(run.folder / "train.py"), "--lr", "1"]
    alone = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.run.metrics["exit_code"] == alone.returncode
    assert result.run.metrics["steps"] == 3
    printed = [line for line in run.log.splitlines() if not line.startswith(("Traceback", " "))]
    expected = [line for line in (alone.stdout + alone.stderr).splitlines() if not line.startswith(("Traceback", " "))]
    assert sorted(printed) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit(3)", 3), ("raise OSError('disk')", 1)])
def test_ranks_of_a_script_print_write_and_exit_as_under_torchrun(run: Runner, end: str, code: int) -> None:
    source = f"""
import os, sys, torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    line = f"step {{number}} of rank {{dist.get_rank()}} in {{dist.get_world_size()}} {{os.environ['LOCAL_RANK']}}\\n"
    os.write(1, line.encode())  # at once, since the lines of torchrun's ranks would mix
open(f"{{os.path.dirname(__file__)}}/written-{{dist.get_rank()}}", "a").write("x")
dist.barrier()
dist.destroy_process_group()
{end}
"""
    results = run.ranks(source, world_size=2, steps=None)
    assert [result.run.metrics["exit_code"] for result in results] == [code] * 2, results[0].reason
    printed = "".join((run.folder / f"rank{rank}.log").read_text() for rank in range(2))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    alone = subprocess.run([*torchrun, str(run.folder / "train.py")], capture_output=True, text=True, check=False)
    steps = re.compile(r"step \d of rank \d in 2 \d")
    assert sorted(steps.findall(printed)) == sorted(steps.findall(alone.stdout))
    assert (alone.returncode != 0) == (code != 0)
    assert f"exitcode  : {code}" in alone.stderr or not code
    assert {path.read_text() for path in run.folder.glob("written-*")} == {"xx"}


def test_a_rank_that_fails_at_once_waits_for_the_others_with_the_store_that_they_meet_in(run: Runner) -> None:
    run.late_s = 1.0
    results = run.ranks("raise SystemExit(3)", world_size=2)
    assert [result.reason for result in results] == ["exit code 3 after 0 steps"] * 2


def of_variables(**values: str) -> dict[str, object]:
    return {"values": values, "flags": {name: ScriptFlag(name, "variable") for name in values}}


FAULTS = """
import resource
large = 40 * 2**20 // 4  # above the largest threshold that glibc chooses by itself
for number in range(20):
    if number == 10:  # by then the heap has room for them
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(large)
print("faults", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library reads no such variable")
def test_variables_that_glibc_reads_at_the_start_of_a_process_have_the_same_effect_on_a_run(run: Runner) -> None:
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "4294967296"}  # more than mallopt takes
    faults = []
    for variables in ({}, kept):
        assert run.one(BEGIN + FAULTS + LOOP, **of_variables(**variables)).outcome is Outcome.OK
        found = re.search(r"faults (\d+)", run.log)
        assert found is not None
        faults.append(int(found[1]))
    without, with_them = faults
    assert without > 10 * 40 * 2**20 // resource.getpagesize() // 2
    assert with_them < without / 10


def test_a_value_of_such_a_variable_that_is_no_number_has_no_effect(run: Runner) -> None:
    assert run.one(BEGIN + LOOP, **of_variables(MALLOC_TOP_PAD_="much")).outcome is Outcome.OK


def test_a_variable_that_pytorch_reads_when_it_is_loaded_has_its_effect_on_a_run_alone(run: Runner) -> None:
    source = "import torch\nprint(torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32)\n"
    logs = []
    for variables in ({}, {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, {}):
        run.one(source, **of_variables(**variables))
        logs.append(run.log.strip())
    environment = {**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    fresh = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True)
    assert logs == ["highest False", fresh.stdout.strip(), "highest False"]
