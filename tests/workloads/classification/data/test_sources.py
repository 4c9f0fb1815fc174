"""Each data set on small files in its true format, which the tests write."""

from __future__ import annotations

import hashlib
import io
import pickle
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision import datasets

from dmls_ray.util.errors import ConfigError, DataError, UnknownNameError, UserCodeError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.sources import (
    check_source,
    chosen_by_class,
    find_source,
    fingerprint_of,
)
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from tests.training.probes import Payload
from tests.workloads.classification.data.samples import (
    RANDOM,
    READ_ARRAYS,
    idx,
    write_arrays,
    write_folder,
    write_mnist,
)


def test_digits_are_the_1797_images_of_scikit_learn() -> None:
    train, test = find_source("digits", None).halves
    assert (len(train), len(test)) == (1438, 359)
    images = np.stack([train[index][0] for index in range(len(train))])
    assert images.shape == (1438, 8, 8)
    assert (images.min(), images.max()) == (0, 255)
    assert {test[index][1] for index in range(len(test))} == set(range(10))


def test_synthetic_data_are_seeded_and_learnable() -> None:
    name = "synthetic:shape=2x6x5,classes=3,train=60,test=20"
    (train, _), (again, _) = find_source(name, None).halves, find_source(name, None).halves
    assert np.array_equal(train[7][0], again[7][0])
    assert train[7][0].shape == (2, 6, 5)
    other, _ = find_source(f"{name},seed=1", None).halves
    assert not np.array_equal(train[7][0], other[7][0])
    # The nearest class mean finds the label: there is something to learn.
    images = np.stack([train[index][0] for index in range(60)]).astype(float)
    labels = np.array([train[index][1] for index in range(60)])
    means = np.stack([images[labels == label].mean(axis=0) for label in range(3)])
    nearest = ((images[:, None] - means) ** 2).sum(axis=(2, 3, 4)).argmin(axis=1)
    assert (nearest == labels).mean() > 0.95
    with pytest.raises(IndexError):
        train[60]


@pytest.mark.parametrize("options", ["shape=3x8", "size=3", "train=x", "train", "classes=0", "shape=0x8x8", "train=-1"])
def test_wrong_synthetic_options_are_refused_with_an_example(options: str) -> None:
    with pytest.raises(ConfigError, match=rf"dataset=synthetic:{options}: "):
        check_source(f"synthetic:{options}", None)


@pytest.mark.parametrize("name", ["imagenet", "Digits", "digits:all"])
def test_an_unknown_name_lists_the_right_ones(name: str) -> None:
    with pytest.raises((UnknownNameError, UserCodeError), match="cifar10, digits|no module named 'digits'"):
        check_source(name, None)


# --- image folder -----------------------------------------------------------------------------------------------


def test_any_tree_of_train_and_test_classes_is_a_data_set(tmp_path: Path) -> None:
    write_folder(tmp_path)
    source = find_source("image_folder", str(tmp_path))
    assert source.classes == 2
    assert [len(half) for half in source.halves] == [6, 6]
    assert source.halves[0][5][1] == 1


def test_an_image_belongs_to_the_class_in_whose_folder_it_is_however_deep_and_through_links(tmp_path: Path) -> None:
    write_folder(tmp_path)
    cat = tmp_path / "train" / "cat"
    (cat / "old" / "older").mkdir(parents=True)
    (cat / "0002.jpg").rename(cat / "old" / "older" / "0002.JPG")
    (cat / "old" / "round").symlink_to(cat)
    (tmp_path / "elsewhere").mkdir()
    (cat / "0001.jpg").rename(tmp_path / "elsewhere" / "0001.jpg")
    (cat / "linked").symlink_to(tmp_path / "elsewhere")
    train, _ = find_source("image_folder", str(tmp_path)).halves
    names = [(Path(path).name, label) for path, label in train.samples]  # type: ignore[attr-defined]
    assert names == [
        ("0000.jpg", 0), ("0001.jpg", 0), ("0002.JPG", 0), ("0000.jpg", 1), ("0001.jpg", 1), ("0002.jpg", 1),
    ]  # fmt: skip


def test_files_that_are_no_images_of_a_class_are_left_out_and_named_before_the_start(tmp_path: Path) -> None:
    write_folder(tmp_path)
    for name in ("train/cat/z.gif", "train/cat/.hidden", "test/0003.jpg"):
        (tmp_path / name).touch()
    notes: list[str] = []
    config = TrialConfig(dataset="image_folder", data_dir=str(tmp_path), batch_per_rank=2, loader="dataloader")
    ClassificationWorkload().prepare([config, config], notes.append)
    (note,) = notes
    assert note.startswith(f"dataset=image_folder leaves out 2 of the files, {tmp_path}/test/0003.jpg first: ")


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), share=st.floats(0.01, 1))
def test_a_subset_has_equal_shares_of_the_classes_as_far_as_they_have_samples(counts: list[int], share: float) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    count = max(1, round(share * len(labels)))
    chosen = chosen_by_class(labels, count)
    assert len(set(chosen.tolist())) == count
    assert chosen.tolist() == sorted(chosen.tolist())
    taken = np.bincount(labels[chosen], minlength=len(counts))
    largest = taken.max()
    assert all(one >= largest - 1 or one == there for one, there in zip(taken, counts, strict=True))


def test_a_subset_of_more_samples_than_there_are_is_refused_before_the_start() -> None:
    config = TrialConfig(batch_per_rank=2, train_samples=2000)
    with pytest.raises(ConfigError, match="train_samples=2000: digits has 1,438 training samples; give at most"):
        ClassificationWorkload().prepare([config], print)


def test_a_change_of_the_dropout_that_a_model_has_is_named_before_the_start() -> None:
    def notes(model: str, dropout: float | None) -> list[str]:
        said: list[str] = []
        config = TrialConfig(model=model, dropout=dropout, batch_per_rank=2)
        ClassificationWorkload().prepare([config, config.replace(lr=0.1)], said.append)
        return [note for note in said if "dropout" in note]

    assert notes("simplecnn", 0.3) == [
        "model=simplecnn has dropout of its own: dropout=0.3 changes it from 0.5 to 0.3."
    ]
    assert notes("simplecnn", None) == notes("simplecnn", 0.5) == notes("digits_convnet", 0.3) == []


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_samples_that_lie_by_class_are_named_before_a_training_that_leaves_them_so(tmp_path: Path, loader: str) -> None:
    write_folder(tmp_path, each=8)

    def notes(dataset: str, data_dir: str | None, shuffle: bool) -> list[str]:
        said: list[str] = []
        config = TrialConfig(dataset=dataset, data_dir=data_dir, batch_per_rank=2, loader=loader, shuffle=shuffle)
        ClassificationWorkload().prepare([config, config.replace(lr=0.1)], said.append)
        return [note for note in said if "by class" in note]

    (note,) = notes("image_folder", str(tmp_path), False)
    assert note.startswith("shuffle=false: the training samples of image_folder lie by class")
    assert notes("image_folder", str(tmp_path), True) == []
    assert notes("digits", None, False) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "there is no folder .*train; it holds train/<class>/<image>"),
        (["train/cat/a.jpg", "train/emu/a.jpg", "test/cat/a.jpg"], "same classes: emu"),
        (["train/cat/a.jpg", "train/dog/", "test/cat/a.jpg", "test/dog/a.jpg"], r"train/dog has no image \(\.bmp, "),
        (["train/cat/._a.jpg", "train/dog/a.jpg", "test/cat/a.jpg", "test/dog/a.jpg"], "train/cat has no image"),
        (["train/cat/a.jpg", "train/__MACOSX/._a.jpg", "test/cat/a.jpg"], "train/__MACOSX has no image"),
        (["train/cat/a.jpg", "test/cat/a.jpg"], "needs two classes or more"),
        (["train/.cat/a.jpg", "test/.cat/a.jpg"], "needs two classes or more"),
    ],
)
def test_an_image_folder_without_images_for_two_classes_is_refused(
    tmp_path: Path, names: list[str], message: str
) -> None:
    for name in names:
        folder, _, file = name.rpartition("/")
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch() if file else None
    with pytest.raises(DataError, match=message):
        find_source("image_folder", str(tmp_path))


# --- torchvision's, in their true formats ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_mnist_and_fashion_mnist_are_read_from_idx_files(tmp_path: Path, name: str, folder: str) -> None:
    write_mnist(tmp_path / folder / "raw")
    source = find_source(name, str(tmp_path))
    assert [len(half) for half in source.halves] == [5, 3]
    assert source.halves[0][0][0].size == (28, 28)


def tar_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_cifar10_is_unpacked_from_its_archive_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = datasets.CIFAR10
    files = {}
    for name, _ in kind.train_list + kind.test_list:
        batch = {"data": RANDOM.integers(0, 256, (2, 3072), dtype=np.uint8), "labels": [3, 7]}
        files[name] = pickle.dumps(batch)
    files["batches.meta"] = pickle.dumps({"label_names": [f"class {number}" for number in range(10)]})
    archive = tar_of({f"{kind.base_folder}/{name}": content for name, content in files.items()})
    (tmp_path / kind.filename).write_bytes(archive)
    monkeypatch.setattr(kind, "tgz_md5", md5(archive))
    for part in ("train_list", "test_list"):
        monkeypatch.setattr(kind, part, [[name, md5(files[name])] for name, _ in getattr(kind, part)])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5(files["batches.meta"])})
    source = find_source("cifar10", str(tmp_path))
    assert [len(half) for half in source.halves] == [10, 2]
    assert source.halves[1][1][1] == 7
    (tmp_path / kind.filename).unlink()
    monkeypatch.setattr(kind, "url", "http://127.0.0.1:9/cifar.tar.gz")
    marker = tmp_path / "it ran"
    for changed in (b"damaged", pickle.dumps(Payload(marker))):
        # CIFAR-10 comes as pickles, which are read only where their digests are those that torchvision knows.
        (tmp_path / kind.base_folder / "test_batch").write_bytes(changed)
        with pytest.raises(DataError, match="cannot be downloaded"):
            _ = find_source("cifar10", str(tmp_path)).halves
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "archives"),
    [("cifar10", "cifar-10-python.tar.gz"), ("mnist", "MNIST/raw/train-images-idx3-ubyte.gz, MNIST/raw/")],
)
def test_offline_the_error_names_the_archives_that_are_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, archives: str
) -> None:
    # Nothing listens on the discard port: every download fails at once, as without a network.
    monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/a")
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    message = f"{name} is not in {tmp_path} and cannot be downloaded .* put {archives}"
    with pytest.raises(DataError, match=message):
        _ = find_source(name, str(tmp_path)).halves


# --- user-defined -------------------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Function that makes a module of a text, and returns its name."""

    def make(text: str) -> str:
        name = f"data_{len(list(tmp_path.iterdir()))}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    monkeypatch.syspath_prepend(tmp_path)
    return make


USER_DATA = """
import numpy as np, torch
def plain(split):
    return [(np.full((4, 4, 3), 10 * label, dtype=np.uint8), label) for label in (0, 1, 2)]
def placed(split, data_dir):
    return [(torch.zeros(1, 4, 4), int(data_dir))]
def empty(split): return []
def number(split): return 3
def broken(split): raise FileNotFoundError('my file')
class Data(list): pass
def declared(split, data_dir):
    data = Data(plain(split))
    data.classes = eval(data_dir)
    return data
"""


@pytest.mark.parametrize(
    ("function", "data_dir", "expected"),
    [
        ("plain", None, 3),
        ("placed", "4", 5),
        ("declared", "np.int64(3)", 3),
        ("declared", "['a', 'b']", 2),
        ("declared", "None", 3),
    ],
)
def test_the_classes_of_a_user_defined_data_set_are_declared_or_counted(
    write: Callable[[str], str], function: str, data_dir: str | None, expected: int
) -> None:
    assert find_source(f"{write(USER_DATA)}:{function}", data_dir).classes == expected


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("empty", "train split is empty"),
        ("number", "returned no map-style data set"),
        ("broken", "FileNotFoundError: my file"),
    ],
)
def test_a_function_that_returns_no_data_set_is_refused(
    write: Callable[[str], str], function: str, message: str
) -> None:
    with pytest.raises((DataError, UserCodeError), match=message):
        find_source(f"{write(USER_DATA)}:{function}", None)


LISTED = f"""
{READ_ARRAYS}
import os
def fixed_place(split):
    return data(split, os.environ['PLACE'])
class Listed(list): pass
def listed(split):
    samples = Listed(fixed_place(split))
    samples.targets = [label for _, label in samples]
    return samples
def named(split):
    samples = listed(split)
    samples.fingerprint = os.environ['VERSION']
    return samples
"""


def fingerprint(module: str, function: str, data_dir: Path | None = None) -> str:
    return find_source(f"{module}:{function}", data_dir and str(data_dir)).fingerprint


@pytest.mark.parametrize("function", ["data", "fixed_place", "listed"])
def test_a_label_that_is_corrected_in_place_changes_the_fingerprint(
    tmp_path: Path, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    folder = write_arrays(tmp_path / "data")
    monkeypatch.setenv("PLACE", str(folder))
    module, data_dir = write(LISTED), folder if function == "data" else None
    before = fingerprint(module, function, data_dir)
    assert fingerprint(module, function, data_dir) == before
    write_arrays(folder, other_label=True)
    assert fingerprint(module, function, data_dir) != before


def test_the_fingerprint_that_a_data_set_offers_decides(
    tmp_path: Path, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", str(write_arrays(tmp_path / "data")))
    monkeypatch.setenv("VERSION", "1")
    module = write(LISTED)
    before = fingerprint(module, "named")
    write_arrays(tmp_path / "data", other_label=True)
    assert fingerprint(module, "named") == before
    monkeypatch.setenv("VERSION", "2")
    assert fingerprint(module, "named") != before


def test_images_that_swap_their_classes_change_the_fingerprint_of_a_folder_and_its_copy_has_the_same(
    tmp_path: Path,
) -> None:
    write_folder(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    before = find_source("image_folder", str(tmp_path / "a")).fingerprint
    assert find_source("image_folder", str(tmp_path / "b")).fingerprint == before
    train = tmp_path / "a" / "train"
    for old, new in (("cat", "swap"), ("dog", "cat"), ("swap", "dog")):
        (train / old).rename(train / new)
    assert find_source("image_folder", str(tmp_path / "a")).fingerprint != before


def test_files_that_are_no_images_do_not_belong_to_the_fingerprint_of_a_folder(tmp_path: Path) -> None:
    write_folder(tmp_path)
    before = find_source("image_folder", str(tmp_path)).fingerprint
    (tmp_path / "train" / "cat" / "labels.txt").write_text("three cats")
    assert find_source("image_folder", str(tmp_path)).fingerprint == before
    shutil.copy(tmp_path / "train" / "cat" / "0001.jpg", tmp_path / "train" / "cat" / "0003.jpg")
    assert find_source("image_folder", str(tmp_path)).fingerprint != before


def test_archives_do_not_belong_to_the_fingerprint_of_unpacked_files(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    before = find_source("mnist", str(tmp_path)).fingerprint
    for archive in (tmp_path / "MNIST" / "raw").glob("*.gz"):
        archive.unlink()
    assert find_source("mnist", str(tmp_path)).fingerprint == before
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(5)))
    assert find_source("mnist", str(tmp_path)).fingerprint != before


@pytest.mark.parametrize(
    "numbers", ["random.random()", "np.random.rand()", "torch.rand(()).item()", "GENERATOR.random()"]
)
def test_augmentation_in_a_data_set_does_not_change_its_fingerprint_and_draws_no_number_of_a_run(
    write: Callable[[str], str], numbers: str
) -> None:
    name = write(
        "import random\n"
        "import numpy as np, torch\n"
        "GENERATOR = np.random.default_rng()\n"
        "class Turned(list):\n"
        "    def __getitem__(self, index):\n"
        "        image = np.arange(16, dtype=np.uint8).reshape(4, 4)\n"
        f"        return (image[::-1] if {numbers} < 0.5 else image), index % 4\n"
        "def data(split):\n"
        "    return Turned(range(40))\n"
    )
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    before = fingerprint_of(f"{name}:data", None)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states
    random.random(), np.random.rand(), torch.rand(())
    assert fingerprint_of(f"{name}:data", None) == before
