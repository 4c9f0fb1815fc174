"""Readers of files from elsewhere, given more than 10,000 damaged ones: each is read, or refused in one line.

None leads to an endless wait, to an exception that is not for the user, to a command to the terminal, or to code that
runs. The seed is fixed, so that a failure repeats.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dmls_ray.analysis.results import load
from dmls_ray.cli.main import main
from dmls_ray.storage.folder import read_sweep
from dmls_ray.training.checkpoint import _UNREADABLE as UNREADABLE_CHECKPOINT
from dmls_ray.training.checkpoint import _read_complete
from dmls_ray.util.errors import DataError, InputError
from dmls_ray.workloads.image_files import read_rgb
from tests.analysis.samples import results
from tests.cli.test_main import keep
from tests.conftest import jpeg

SEED = 20_261_122
INPUTS = {"runs.jsonl": 7_000, "sweep.json": 2_000, "images": 1_000, "checkpoints": 300}
"""Damaged inputs of each kind."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**400, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e400,
    "", " ", "nan", "None", "../../etc/passwd", "/dev/zero", "payload:run", "a" * 5_000, "\x1b]0;owned\x07", "\u202e",
    "\ud800", "\x00", "<img src=x>", "=cmd|' /C calc'!A0", "[red]", "$\\input{x}$", "{{7*7}}", "2026-13-45", "9" * 400,
    "2026-01-02T03:04:05", "ok", "skipped", "cuda", "1e9999", [], {}, [None], [[]], [{}], {"": None}, {"a": {"b": []}},
    [1, "a", None], [0.5] * 300, {"world_size": 0}, {"payload:run": 1},
)  # fmt: skip
"""What replaces a value of a JSON document."""


class Watch:
    """Records forbidden actions of this process while it reads."""

    forbidden = frozenset({
        "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class", "socket.connect",
        "ctypes.dlopen",
    })  # fmt: skip

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        self.allowed = ""
        """The folder that files may be written into."""
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event in self.forbidden or (event == "import" and arguments[0] == "payload"):
            self.seen.append(f"{event} {arguments[:2]}")
        elif event == "open" and str(arguments[0]).endswith(("etc/passwd", "/dev/zero")):
            self.seen.append(f"{event} {arguments}")
        elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            path = os.fspath(arguments[0]) if isinstance(arguments[0], str | os.PathLike) else self.allowed
            if not path.startswith((tempfile.gettempdir(), self.allowed, os.devnull)):
                self.seen.append(f"{event} {arguments}")


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@contextlib.contextmanager
def reading(watch: Watch, example: object, *refusals: type[BaseException]) -> Iterator[None]:
    """Run the block, which may raise one of the refusals, with a message of one line."""
    watch.seen.clear()
    watch.is_on = True
    try:
        yield
    except refusals as error:
        if isinstance(error, InputError) and "\n" in str(error):
            raise AssertionError(example) from error
    except Exception as error:
        raise AssertionError(example) from error
    finally:
        watch.is_on = False
    assert not watch.seen, example


def damaged_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return a content with bytes changed, inserted, removed, repeated, or cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((1, 1, 2, 4, 16, 200)))
        kind = rng.randrange(6)
        if kind == 0:
            data[start:stop] = rng.randbytes(stop - start)
        elif kind == 1:
            data[start:start] = rng.choice((b"\x00", b"\n", b"\xff\xfe", b"{", b"[" * 50, b'"', b"1e999", b"NaN", b"-"))
        elif kind == 2:
            del data[start:stop]
        elif kind == 3:
            data[stop:stop] = data[start:stop]
        elif kind == 4 and start < len(data):
            data[start] ^= 1 << rng.randrange(8)
        elif kind == 5 and rng.random() < 0.3:
            del data[start:]
    return bytes(data)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each container of a JSON document with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in ((value, key), *places(item))]


def damaged_json(rng: random.Random, document: Any) -> bytes:
    """Return a JSON document with values of other types or sizes, with keys that are missing, new or renamed, and now
    and then with damaged bytes.
    """
    document = copy.deepcopy(document)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        found = places(document)
        if not found:
            break
        container, key = rng.choice(found)
        kind = rng.randrange(8)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[rng.choice((f"{key} ", "", "\x1b[2J", "schema", "rank", "epoch"))] = container.pop(key)
        elif kind == 2:
            other, other_key = rng.choice(found)
            container[key] = copy.deepcopy(other[other_key])
        elif kind == 3:
            container[key] = [container[key]] * rng.choice((1, 2, 40))
        elif kind == 4 and isinstance(container[key], int | float) and abs(container[key]) < 2**64:
            container[key] = rng.choice(
                (-container[key], container[key] * 1e300, str(container[key]), [container[key]])
            )
        else:
            container[key] = copy.deepcopy(rng.choice(VALUES))
    content = json.dumps(document).encode()
    return damaged_bytes(rng, content) if rng.random() < 0.35 else content


def say(*words: object) -> None:
    """Run a command of dmls-ray: it exits with 0, or with 2 and one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code, err.getvalue().count("\n")) in ((0, 0), (2, 1)), err.getvalue()
    assert not CONTROL.search(out.getvalue() + err.getvalue())


def commands(folder: Path, sound: Path, run_id: str) -> list[tuple[object, ...]]:
    """Return the commands that read a results folder, the fast ones more often."""
    fast = [("ls", folder), ("table", folder), ("show", run_id, folder), ("advise", folder), ("compare", folder, sound)]
    written = [("export", folder), ("export", folder, "--format", "json"), ("table", folder, "--by", "rank")]
    slow = [("report", folder), ("figures", folder), ("tensorboard", folder), ("export", folder, "--format", "parquet")]
    return [*fast * 20, *written * 5, *slow]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """Results folder of a small sweep in which every kind of field has a value."""
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0 + repeat, repeats=1)
    for record in runs.records:
        record.metrics["perplexity"], record.facts["layers"] = 3.5, {"a": [1, 2.5, "x"]}
        record.picture, record.git, record.code = jpeg(), {"commit": "abc", "dirty": False}, {"model.py": "12ab"}
        record.earlier_attempts = [{"outcome": "killed", "reason": "a rank died", "attempt": 1, "seconds": 2.5}]
        record.ranks[0].utilization = {"cpu": [0.5, 0.75]}
    return keep(runs, tmp_path / "sound")


def run_commands(watch: Watch, sound: Path, kind: str, damage: Callable[[random.Random, Path], bytes]) -> None:
    """Damage a copy of a results folder, and read it with each command."""
    rng = random.Random(SEED)
    watch.allowed = str(sound.parent)
    (first, *_) = load(sound).records
    folder = sound.with_name("damaged")
    # Commands load their libraries at their first use.
    for words in dict.fromkeys(commands(sound, sound, first.run_id)):
        say(*words)
    every = commands(folder, sound, first.run_id)
    for number in range(INPUTS[kind]):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ("runs.jsonl", "sweep.json"):
            shutil.copy(sound / name, folder)
        example = damage(rng, folder)
        words = every[number % len(every)] if number % 2 else ("table", folder)
        with reading(watch, (number, words, example), InputError):
            say(*words)
            for record in load(folder, stale=True).records:
                _ = record.epochs, record.ranks
            read_sweep(folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_damaged_records_are_read_or_refused_in_one_line(watch: Watch, sound: Path) -> None:
    lines = (sound / "runs.jsonl").read_bytes().splitlines()
    documents = [json.loads(line) for line in lines]

    def damage(rng: random.Random, folder: Path) -> bytes:
        number = rng.randrange(len(lines))
        changed = [*lines]
        changed[number] = damaged_json(rng, documents[number])
        (folder / "runs.jsonl").write_bytes(b"\n".join(changed) + rng.choice((b"\n", b"\n", b"\n", b"")))
        return changed[number]

    run_commands(watch, sound, "runs.jsonl", damage)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_damaged_descriptions_of_sweeps_are_read_or_refused_in_one_line(watch: Watch, sound: Path) -> None:
    document = json.loads((sound / "sweep.json").read_text())
    document["sessions"] *= 2
    document["sessions"][0] |= {
        "name": "batch_size", "metric": "test_loss", "mode": "search", "changed": ["lr"], "repeats": 3,
        "started_at": "2026-01-02T03:04:05", "trials": ["a", "b"], "machine": {"host": "lab", "gpus": []},
        "versions": {"torch": "2"}, "git": {"commit": "abc"}, "code": {"model.py": "12ab"}, "data": {"digits": "1"},
    }  # fmt: skip

    def damage(rng: random.Random, folder: Path) -> bytes:
        content = damaged_json(rng, document)
        (folder / "sweep.json").write_bytes(content)
        return content

    run_commands(watch, sound, "sweep.json", damage)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_image_files_are_decoded_or_refused(watch: Watch, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    watch.allowed = str(tmp_path)
    sound = {}
    for image_format in ("JPEG", "PNG", "TIFF", "BMP", "PPM", "WEBP", "GIF"):
        content = io.BytesIO()
        Image.effect_noise((24, 16), 50).convert("RGB").save(content, image_format)
        sound[image_format] = content.getvalue()
    for _ in range(INPUTS["images"]):
        image_format = rng.choice([*sound])
        # Headers say more than pixels.
        head, tail = sound[image_format][:120], sound[image_format][120:]
        whole = rng.random() < 0.5
        content = damaged_bytes(rng, sound[image_format]) if whole else damaged_bytes(rng, head) + tail
        path = tmp_path / f"image.{image_format.lower()}"
        path.write_bytes(content)
        with reading(watch, (image_format, content), DataError):
            read_rgb(path)


@pytest.mark.slow
def test_damaged_checkpoints_are_read_or_refused(watch: Watch, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    watch.allowed = str(tmp_path)
    path = tmp_path / "1.rank-0.pt"
    torch.save({"trial": "a", "own": {"x": torch.ones(3)}, "random": {"torch": torch.get_rng_state()}}, path)
    sound = path.read_bytes()
    for number in range(INPUTS["checkpoints"]):
        path.write_bytes(damaged_bytes(rng, sound))
        with reading(watch, number, *UNREADABLE_CHECKPOINT):
            _read_complete(path, torch.device("cpu"))
