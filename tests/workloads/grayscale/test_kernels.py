"""Our own kernels: what they refuse, and how they are built."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dmls_ray.util.errors import UnavailableError
from dmls_ray.workloads.grayscale import kernels
from dmls_ray.workloads.grayscale.kernels import cpu_kernel, cuda_home
from tests.new_processes import call_in_new_process

PIXELS, GREY = torch.zeros(2, 4, 6, 3, dtype=torch.uint8), torch.zeros(2, 4, 6, dtype=torch.uint8)

REFUSED = [
    (PIXELS.float(), GREY, False, "pixels are Float; give uint8"),
    (PIXELS, GREY.int(), False, "grey is Int; give uint8"),
    (PIXELS[0], GREY, False, "pixels have 3 dimensions; give 4"),
    (PIXELS.transpose(1, 2), GREY, False, "pixels have the strides .*; give a contiguous tensor"),
    (PIXELS, torch.zeros(2, 6, 4, dtype=torch.uint8).transpose(1, 2), False, "grey has the strides"),
    (PIXELS[..., :2].contiguous(), GREY, False, "pixels have 2 channels; give 3"),
    (PIXELS, GREY, True, "pixels have 4 channels; give 3"),
    (PIXELS, GREY[:1].contiguous(), False, r"grey has the shape \[1, 4, 6\], and the images \[2, 4, 6\]"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("pixels", "grey", "planar", "reason"), REFUSED)
def test_the_processors_kernel_refuses_what_it_cannot_take(
    pixels: torch.Tensor, grey: torch.Tensor, planar: bool, reason: str
) -> None:
    with pytest.raises(RuntimeError, match=reason):
        cpu_kernel()(pixels, grey, planar)


@pytest.mark.slow
@pytest.mark.parametrize("planar", [False, True])
def test_pixels_that_are_done_at_once_become_what_each_becomes_alone_and_nothing_else_is_written(planar: bool) -> None:
    pixels = torch.randint(256, (1500, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    alone = torch.empty(len(pixels), dtype=torch.uint8)
    for place, pixel in enumerate(pixels):
        cpu_kernel()(
            pixel.reshape(1, 3, 1, 1) if planar else pixel.reshape(1, 1, 1, 3), alone[place].reshape(1, 1, 1), planar
        )
    # Around 32 at once, and around where it looks ahead.
    for count in (*range(1, 100), 511, 512, 513, 1023, 1025, 1500):
        some = pixels[:count]
        image = some.T.reshape(1, 3, 1, count).contiguous() if planar else some.reshape(1, 1, count, 3)
        room = torch.full((count + 64,), 77, dtype=torch.uint8)
        cpu_kernel()(image, room[:count].reshape(1, 1, count), planar)
        assert torch.equal(room[:count], alone[:count]), count
        assert (room[count:] == 77).all(), count


@pytest.mark.slow
def test_a_set_of_no_images_is_turned_grey_at_once() -> None:
    cpu_kernel()(PIXELS[:0], GREY[:0], False)
    cpu_kernel()(torch.zeros(0, 3, 4, 6, dtype=torch.uint8), GREY[:0], True)


def test_a_toolkit_is_found_behind_a_link_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    (tmp_path / "toolkit" / "include").mkdir()
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(nvcc)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert cuda_home() == tmp_path / "toolkit"


def test_without_nvcc_the_cuda_kernel_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cuda_home", lambda: None)
    kernels.cuda_kernel.cache_clear()
    with pytest.raises(UnavailableError, match="our CUDA kernel needs nvcc; install the CUDA toolkit"):
        kernels.cuda_kernel()


def test_without_ninja_a_kernel_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.cpp_extension.is_ninja_available", lambda: False)
    kernels.cpu_kernel.cache_clear()
    with pytest.raises(UnavailableError, match="our C\\+\\+ kernel needs ninja; pip install ninja"):
        kernels.cpu_kernel()


BUILD = "from dmls_ray.workloads.grayscale.kernels import cpu_kernel; cpu_kernel(); print('built')"


def test_ninja_is_found_next_to_a_python_that_is_called_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import cpp_extension

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with_ninja: list[bool] = []
    monkeypatch.setattr(cpp_extension, "load", lambda *_, **__: with_ninja.append(cpp_extension.is_ninja_available()))
    monkeypatch.setattr(torch.ops.dmls_ray_grey_cpu, "grey", None, raising=False)
    kernels._build("dmls_ray_grey_cpu", "cpu.cpp", with_cuda=False)
    assert with_ninja == [True]
    assert os.environ["PATH"] == "/usr/bin:/bin"


def build() -> None:
    cpu_kernel()


def use_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> None:
    """Let processes build kernels in a folder with a compiler that is this shell program."""
    compiler = folder / "c++"
    compiler.write_text(f"#!/bin/sh\n{program}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("DMLS_RAY_CACHE", str(folder))


def test_a_failed_build_reports_what_the_compiler_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = 'echo "cpu.cpp:1: error: no dispatcher" >&2; exit 1'
    use_compiler(monkeypatch, tmp_path, f'[ "$1" = -MMD ] || exec g++ "$@"\n{error}')
    with pytest.raises(RuntimeError, match=r"^our C\+\+ kernel cannot be built: cpu.cpp:1: error: no dispatcher$"):
        call_in_new_process(build)


def test_a_built_kernel_that_cannot_be_loaded_is_reported_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes_an_empty_file = 'case "$*" in *-o*) for made; do :; done; : > "$made";; *) exec g++ "$@";; esac'
    use_compiler(monkeypatch, tmp_path, makes_an_empty_file)
    message = r"^our C\+\+ kernel cannot be loaded \(.*file too short\); build it with g\+\+ \(CXX=g\+\+\).$"
    with pytest.raises(RuntimeError, match=message):
        call_in_new_process(build)


def test_a_full_disk_is_not_blamed_on_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "build.ninja")

    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))
    monkeypatch.setattr("torch.utils.cpp_extension.load", load)
    kernels.cpu_kernel.cache_clear()
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: 'build.ninja'$"):
        kernels.cpu_kernel()


def test_a_newer_compiler_builds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))
    compiler = tmp_path / "c++"
    monkeypatch.setenv("CXX", f"{compiler} -m64")
    folders = []
    for version in ("12.2.0", "12.2.0", "13.1.0"):
        compiler.write_text(f"#!/bin/sh\necho 'g++ {version}'\n")
        compiler.chmod(0o755)
        with kernels._folder_of("grey", with_cuda=False) as folder:
            folders.append(folder)
    assert folders[0] == folders[1] != folders[2]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["{here}/ccache g++ -m64", "{here}/with space/g++"])
def test_a_compiler_may_have_options_and_another_program_before_it_and_a_space_in_its_path(
    tmp_path: Path, named: str
) -> None:
    (tmp_path / "with space").mkdir()
    for name, text in (("ccache", 'exec "$@"'), ("with space/g++", 'exec g++ "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\necho >> {tmp_path}/called\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "DMLS_RAY_CACHE": str(tmp_path / "cache"), "CXX": named.format(here=tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "built", done.stderr
    assert (tmp_path / "called").exists()


@pytest.mark.parametrize("named", ["false", "false -m64"])
def test_a_program_that_is_no_compiler_is_named(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("CXX", named)
    kernels.cpu_kernel.cache_clear()
    with pytest.raises(UnavailableError, match=rf"and {named} is none \(.*\); install one, g\+\+ say"):
        kernels.cpu_kernel()


@pytest.mark.parametrize("named", ["", "  "])
def test_where_no_compiler_is_named_it_is_the_systems(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("CXX", named)
    assert kernels._compiler() == ["c++"]


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "c++-of-nobody -m64")
    kernels.cpu_kernel.cache_clear()
    with pytest.raises(UnavailableError, match=r"our C\+\+ kernel needs a C\+\+ compiler, and there is no c\+\+-of"):
        kernels.cpu_kernel()


@pytest.mark.slow
def test_a_builder_that_is_killed_leaves_nothing_that_the_next_one_waits_for(tmp_path: Path) -> None:
    environment = {**os.environ, "DMLS_RAY_CACHE": str(tmp_path)}
    first = subprocess.Popen([sys.executable, "-c", BUILD], env=environment, start_new_session=True)
    # The loader's own lock: its work has begun.
    while not list(tmp_path.glob("kernels/*/lock")):
        assert first.poll() is None, "it was done before it could be killed"
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert list(tmp_path.glob("kernels/*/lock"))
    done = subprocess.run(
        [sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "built", done.stderr


COMPILE = """
import torch
from dmls_ray.workloads.grayscale.kernels import cuda_kernel
kernel = cuda_kernel()
pixels, grey = torch.zeros(2, 4, 6, 3, dtype=torch.uint8), torch.zeros(2, 4, 6, dtype=torch.uint8)
for pixels in (pixels.float(), pixels[0], pixels.transpose(1, 2), pixels[..., :2].contiguous(), pixels):
    try:
        kernel(pixels, grey, False)
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_the_cuda_kernel_compiles_where_nvcc_is_and_refuses_what_it_cannot_take(tmp_path: Path) -> None:
    if cuda_home() is None:
        pytest.skip("no nvcc on this machine")
    environment = {**os.environ, "DMLS_RAY_CACHE": str(tmp_path)}
    environment.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")  # it looks at no GPU then
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "pixels are Float; give uint8, levels 0 to 255",
        "pixels have 3 dimensions; give 4, the first of them the images",
        "pixels have the strides [72, 3, 18, 1]; give a contiguous tensor",
        "pixels have 2 channels; give 3: red, green and blue",
        "pixels are on cpu; give them on cuda",
    ]
