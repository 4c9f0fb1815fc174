"""Digests of a user's source files and data files: of contents, so a copied folder has the same on any machine.

Source files: of modules, and of the user's modules that they import. The import statements are read from the sources,
and no module is imported: the digest of a rank and that of the driver follow from the files and the search path alone.
A module that is imported by a name computed at run time is not seen.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import itertools
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path

from dmls_ray.util.files import atomic_write_text, cache_root
from dmls_ray.util.importing import is_installed, search_working_folder
from dmls_ray.util.programs import is_program, module_of

AND_IMPORTS = " and its imports"
"""End of the name of the entry of a module with all files that it imports."""

_DIGITS = 16
_PACKAGE = __name__.partition(".")[0]


def source_digests(modules: Iterable[str]) -> dict[str, str]:
    """Return source file -> digest of these modules and of the modules that they import, directly or not.

    A module is the user's if it is neither Python's, nor of an installed package, nor of dmls_ray. If one of `modules`
    is of an installed package, that package counts, too. Names of files are relative to the folder of imports, `m.py`
    or `package/m.py`, so that they are the same on every machine. A module that cannot be found has no entry.

    Each of `modules` has another entry, `m.py and its imports`, of all its files together: it changes where a file
    appears or disappears that m.py tries to import.

    Comments, docstrings, formatting and the block under `if __name__ == "__main__"` do not count.
    """
    search_working_folder()
    importlib.invalidate_caches()  # a file may be newer than what the import system remembers of its folder
    digests: dict[str, str] = {}
    for module in modules:
        files = _files_of(module)
        digests |= files
        if files:
            first = next(iter(files))
            digests[f"{first}{AND_IMPORTS}"] = text_digest(*(f"{file} {files[file]}" for file in sorted(files)))
    return dict(sorted(digests.items()))


def _files_of(module: str) -> dict[str, str]:
    """The digest of each file of a module, or of a script, and of what it imports; its own file is the first."""
    if module.endswith(".py"):
        with _in_front_of_path(os.path.dirname(os.path.abspath(module))):
            return _files_from(Path(module).stem, main=module)
    if is_program(module):
        file, name = file_of_program(module), module_of(module)
        if file is not None and file.name == "__main__.py":
            name = f"{name.removesuffix('.__main__')}.__main__"
        return _files_from(name, main=str(file or ""))
    return _files_from(module)


def _files_from(module: str, main: str = "") -> dict[str, str]:
    """As `_files_of`; of a script, `main`, the block that runs only there counts."""
    waiting = _with_parents(module)
    installed, seen = waiting[0], set(waiting)
    digests: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        spec = _find_user_module(name, installed)
        if spec is None:
            continue
        path = Path(str(spec.origin))
        content = spec.loader.get_data(str(path))  # type: ignore[union-attr]
        digest = hashlib.sha256(content).hexdigest()[:_DIGITS]
        is_package = spec.submodule_search_locations is not None
        if path.suffix == ".py":
            # Without: no valid Python, or an expression of thousands of operands.
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                tree = _parsed(content, as_main=bool(main) and os.path.samefile(path, main))
                imported = set(_imports(tree, name if is_package else name.rpartition(".")[0]))
                waiting += imported - seen
                seen |= imported
                digest = _code_digest(tree)
        suffix = "/__init__.py" if is_package else path.suffix
        digests[name.replace(".", "/") + suffix] = digest
    return digests


def file_of_user_module(module: str) -> Path | None:
    """Return the file of a module; None if the module is not the user's."""
    spec = _find_user_module(module)
    return None if spec is None else Path(str(spec.origin))


def file_of_program(program: str) -> Path | None:
    """Return the file that is run, of `train.py` or `-m package.train`; None without one. Nothing is imported."""
    name = module_of(program)
    if not name:
        return Path(program) if os.path.isfile(program) else None
    search_working_folder()
    importlib.invalidate_caches()
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
    return None if spec is None or not spec.origin or not spec.has_location else Path(spec.origin)


def text_digest(*lines: str) -> str:
    """Return the digest of a text, of the length that all digests here have."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:_DIGITS]


def _find_user_module(name: str, installed: str = "") -> ModuleSpec | None:
    """Find a module if it is the user's and has a file.

    Args:
        name: the module.
        installed: a package that counts although it is installed.
    """
    top = name.partition(".")[0]
    counts = top == installed
    if top == _PACKAGE or (top in sys.stdlib_module_names and not counts):
        return None
    spec = _find(name)
    if spec is None or not spec.origin or not spec.has_location:
        return None
    return spec if counts or not is_installed(spec.origin) else None


def _find(name: str) -> ModuleSpec | None:
    """Find a module without importing its parents, as `importlib.util.find_spec` would."""
    parent, _, last = name.rpartition(".")
    folders = None
    if parent:
        above = _find(parent)
        if above is None or above.submodule_search_locations is None:
            return None
        folders = list(above.submodule_search_locations)
    try:
        for finder in sys.meta_path:
            if (spec := finder.find_spec(name, folders)) is not None:
                return spec
    except KeyError:  # a folder without __init__.py, whose parent would have to be imported
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(Path(folder, last)) for folder in folders or ()]
        return spec
    return None


@contextlib.contextmanager
def _in_front_of_path(folder: str) -> Iterator[None]:
    before = [*sys.path]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before


def _parsed(content: bytes, *, as_main: bool) -> ast.Module:
    """The code of a module, without what runs only if it is the main program, but for that one.

    Raises:
        SyntaxError, ValueError, RecursionError: it is no valid Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's code: its import shows them
        tree = ast.parse(content)
    if not as_main:
        tree.body = [statement for statement in tree.body if not _is_main_block(statement)]
    return tree


def _is_main_block(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return ast.unparse(statement.test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that import statements name, wherever they stand; a name imported from a package may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level <= package.count(".") + bool(package):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called, name = ast.unparse(node.func).rpartition(".")[2], node.args[0].value
            if called in ("import_module", "__import__") and isinstance(name, str) and not name.startswith("."):
                yield from _with_parents(name)


def _with_parents(name: str) -> list[str]:
    return list(itertools.accumulate(name.split("."), "{}.{}".format))


def _code_digest(tree: ast.Module) -> str:
    """The digest of code without its docstrings.

    Raises:
        RecursionError: an expression has thousands of operands.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in [*node.body]:
                # A statement that is a text alone has no effect.
                if isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str):
                    node.body.remove(statement)
    return text_digest(ast.unparse(tree))


_SETTLED_S = 2.0
"""Age from which a file's time identifies its content: a file that changes twice in a tick of the clock may keep it."""

_THREADS = 8


def digest_of_files(root: str | Path, files: Iterable[str] | None = None) -> str:
    """A digest of names and contents of files, of 32 hexadecimal digits.

    Args:
        root: a folder, or one file.
        files: paths of files in the folder, which begin with it; by default all that are not hidden.

    Raises:
        OSError: a file cannot be read.
    """
    root = os.path.normpath(root)
    names: dict[str, str] = {}
    newest = 0.0
    # Reading takes long for large files, and looking at sizes and times does not.
    seen = hashlib.sha256(f"{os.path.realpath(root)}\n".encode(errors="surrogateescape"))
    for path in sorted(files_below(root) if files is None else files):
        if not os.path.isfile(path):  # a pipe, or a link that leads nowhere
            continue
        stat = os.stat(path)
        newest = max(newest, stat.st_mtime)
        names[path] = path.removeprefix(root)
        seen.update(f"{names[path]}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    kept = cache_root() / "digests" / seen.hexdigest()
    if kept.exists():
        return kept.read_text(encoding="utf-8")

    together = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS) as pool:
        for path, content in zip(names, pool.map(_file_digest, names), strict=True):
            together.update(f"{names[path]}\0{content}\n".encode(errors="surrogateescape"))
    digest = together.hexdigest()[:32]
    if newest < time.time() - _SETTLED_S:
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(kept, digest, durable=True)
    return digest


def files_below(root: str) -> list[str]:
    """The files below a folder, links followed, without hidden ones; of a file, itself."""
    if os.path.isfile(root):
        return [root]
    found: list[str] = []
    entered = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        entered.add(os.path.realpath(folder))
        # A link may lead back to a folder above. In order, since of two links to one folder the first is followed.
        below = sorted(folders)
        folders.clear()
        for name in below:
            is_new = os.path.realpath(os.path.join(folder, name)) not in entered
            if is_new and not name.startswith("."):
                folders.append(name)
        found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
    return found


def _file_digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
