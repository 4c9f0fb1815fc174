"""Digests of a user's source files: of modules, and of the user's modules that they import.

The import statements are read from the sources, and no module is imported: the digest of a rank and that of the driver
follow from the files and the search path alone. A module that is imported by a name computed at run time is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from dmls_ray.util.module_path import is_installed, search_working_folder

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
        for name in files_of(module) & files.keys():
            digests[f"{name}{AND_IMPORTS}"] = text_digest(*(f"{file} {files[file]}" for file in sorted(files)))
    return dict(sorted(digests.items()))


def _files_of(module: str) -> dict[str, str]:
    waiting = _with_parents(module)
    top, seen = waiting[0], set(waiting)
    specs: dict[str, ModuleSpec | None] = {}
    digests: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        spec = _find_user_module(name, specs, wherever=name.partition(".")[0] == top)
        if spec is None:
            continue
        assert spec.origin is not None
        is_package = spec.submodule_search_locations is not None
        content = _content(spec)
        tree = _parsed(content) if spec.origin.endswith(".py") else None
        suffix = "/__init__.py" if is_package else Path(spec.origin).suffix
        digests[name.replace(".", "/") + suffix] = _digest(content, tree)
        imported = set(_imports(tree, name if is_package else name.rpartition(".")[0])) if tree else set()
        waiting += imported - seen
        seen |= imported
    return digests


def is_user_module(module: str) -> bool:
    """Return whether a module is the user's."""
    return file_of_user_module(module) is not None


def file_of_user_module(module: str) -> Path | None:
    """Return the file of a module; None if the module is not the user's."""
    spec = _find_user_module(module, {}, wherever=False)
    return None if spec is None else Path(str(spec.origin))


def files_of(module: str) -> set[str]:
    """Return the names that `source_digests` may give the file of a module."""
    path = module.replace(".", "/")
    return {f"{path}.py", f"{path}/__init__.py"}


def text_digest(*lines: str) -> str:
    """Return the digest of a text, of the length that all digests here have."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:_DIGITS]


def _find_user_module(name: str, specs: dict[str, ModuleSpec | None], *, wherever: bool) -> ModuleSpec | None:
    """Find a module if it is the user's and has a file; `wherever`: also if it is installed."""
    top = name.partition(".")[0]
    if top == _PACKAGE or (top in sys.stdlib_module_names and not wherever):
        return None
    spec = _find(name, specs)
    if spec is None or not spec.origin or not spec.has_location:
        return None
    return spec if wherever or not is_installed(spec.origin) else None


def _find(name: str, specs: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    """Find a module without importing its parents, as `importlib.util.find_spec` would."""
    if name not in specs:
        specs[name] = None
        parent, _, last = name.rpartition(".")
        above = _find(parent, specs) if parent else None
        if not parent:
            specs[name] = _find_in(name, None)
        elif above is not None and above.submodule_search_locations is not None:
            folders = list(above.submodule_search_locations)
            try:
                specs[name] = _find_in(name, folders)
            except KeyError:  # a folder without __init__.py, whose parent would have to be imported
                specs[name] = spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(Path(folder, last)) for folder in folders]
    return specs[name]


def _find_in(name: str, folders: list[str] | None) -> ModuleSpec | None:
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    found: Iterator[ModuleSpec | None] = (find(name, folders) for find in finders if find)
    return next((spec for spec in found if spec is not None), None)


def _content(spec: ModuleSpec) -> bytes:
    path = Path(str(spec.origin))
    if path.is_file():
        return path.read_bytes()
    read: Callable[[str], bytes] = spec.loader.get_data  # type: ignore[union-attr]
    return read(str(path))  # in an archive


def _parsed(content: bytes) -> ast.Module | None:
    """The code of a module, without what runs only if it is the main program; None if it is no valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code: its import shows them
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return None
    tree.body = [statement for statement in tree.body if not _is_main_block(statement)]
    return tree


def _is_main_block(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and not statement.orelse
        and ast.unparse(statement.test) in ("__name__ == '__main__'", "'__main__' == __name__")
    )


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that import statements name, wherever they stand; a name imported from a package may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if node.level else []
            base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names if base and alias.name != "*")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called, name = ast.unparse(node.func).rpartition(".")[2], node.args[0].value
            if called in ("import_module", "__import__") and isinstance(name, str) and not name.startswith("."):
                yield from _with_parents(name)


def _with_parents(name: str) -> list[str]:
    parts = name.split(".") if name else []
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _digest(content: bytes, tree: ast.Module | None) -> str:
    if tree is not None:
        try:
            return text_digest(_canonical(tree))
        except RecursionError:
            pass  # an expression of thousands of operands: its bytes are compared
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _canonical(node: object) -> str:
    """A text of the syntax tree that stays the same in every version of Python: empty fields are left out."""
    if isinstance(node, list):
        return f"[{','.join(_canonical(item) for item in node if not _is_docstring(item))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({','.join(f'{name}={_canonical(value)}' for name, value in fields)})"


def _is_docstring(node: object) -> bool:
    """Whether a statement is a text alone, which has no effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
