"""What the modules of some packages import, use of each other and define, and the laws that may be broken there.

Every file is read and parsed once. A package is its `__init__.py` together with the `__init__.pyi` beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

LOADERS = {"import_module", "__import__", "run_module"}
"""Functions whose first argument is the name of a module to load; `lazy_loader.load` is another."""
CAMEL = re.compile(r"[A-Z]+[a-z]\w*")


class Use(NamedTuple):
    """A module uses another, or a name of it; `name` is "" for the module itself."""

    module: str
    line: int
    target: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.line} uses {self.target}.{self.name}".rstrip(".")


class Source:
    """One module.

    Attributes:
        imported: what it imports, wherever the import stands: (module, name taken from it or "", line).
        chains: its expressions such as `a.b.c`, with the line.
        bound: the dotted path that an import binds a name to.
        offered: imported names that it offers in turn, as in `from a import b as b` or by `__all__`.
        defined: the names that its own statements define, with the source of a value, "class" or "def".
        classes: classes, wherever they stand.
    """

    def __init__(self, name: str, package: bool, *paths: Path):
        self.name, self.package = name, package
        self.imported: list[tuple[str, str, int]] = []
        self.chains: list[tuple[tuple[str, ...], int]] = []
        self.bound: dict[str, str] = {}
        self.offered: set[str] = set()
        self.defined: dict[str, str] = {}
        self.classes: list[str] = []
        for path in paths:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for statement in tree.body:
                self._define(statement)
            self._read(tree)

    def _define(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            self.defined[node.name] = "class"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.defined[node.name] = "def"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            value = "" if node.value is None else ast.unparse(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.defined |= {one.id: value for one in ast.walk(target) if isinstance(one, ast.Name)}
            if "__all__" in self.defined and node.value is not None:
                self.offered |= {_start(part) for part in _parts(node.value)}
        elif isinstance(node, ast.If | ast.Try):
            for inner in (*node.body, *node.orelse):
                self._define(inner)

    def _read(self, tree: ast.Module) -> None:
        """Walks the tree as `ast.walk` does, but faster, and no further into a chain of attributes."""
        todo: list[ast.AST] = [tree]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Attribute):
                inner = self._chain(node)
                if inner is not None:
                    todo.append(inner)
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
                continue
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.ClassDef):
                self.classes.append(node.name)
            for field in node._fields:
                value = getattr(node, field)
                if isinstance(value, list):
                    todo.extend(one for one in value if isinstance(one, ast.AST))
                elif isinstance(value, ast.AST):
                    todo.append(value)

    def _chain(self, node: ast.expr) -> ast.expr | None:
        line, names = node.lineno, []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return node
        self.chains.append(((node.id, *reversed(names)), line))
        return None

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imported.append((alias.name, "", node.lineno))
                first = alias.name.partition(".")[0]
                self.bound[alias.asname or first] = alias.name if alias.asname else first
            return
        base = self._absolute("." * node.level + (node.module or ""))
        for alias in node.names:
            self.imported.append((base, alias.name, node.lineno))
            self.bound[alias.asname or alias.name] = f"{base}.{alias.name}"
            if alias.asname == alias.name:
                self.offered.add(alias.name)

    def _absolute(self, name: str) -> str:
        """The whole name of a module that may be given relative to this one."""
        level = len(name) - len(name.lstrip("."))
        parts = self.name.split(".")
        return ".".join(filter(None, (*parts[: len(parts) - level + self.package], name[level:]))) if level else name

    def _call(self, node: ast.Call) -> None:
        """Modules loaded by name: `importlib.import_module("a.b")`, `lazy_loader.attach(__name__, ["b"])`."""
        function = ast.unparse(node.func)
        last = function.rpartition(".")[2]
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        names: list[str] = []
        if last in LOADERS or function in ("lazy_loader.load", "lazy.load"):
            names = [_start(one) for one in given][:1]
        elif last == "attach":
            for one in given:
                whole = [f"{self.name}.{_start(part)}" for part in _parts(one)]
                self.bound |= {path.rpartition(".")[2]: path for path in whole}
                names += whole
                for key, value in zip(one.keys, one.values) if isinstance(one, ast.Dict) else ():
                    inner = f"{self.name}.{_start(key)}" if key is not None else ""
                    self.bound |= {_start(part): f"{inner}.{_start(part)}" for part in _parts(value)}
                    names.append(inner)
        names = [self._absolute(name) for name in names if name.strip(".")]
        self.imported += [(name, "", node.lineno) for name in names if not self.name.startswith(f"{name}.")]


def _parts(node: ast.expr) -> Sequence[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else ()


def _start(node: ast.expr) -> str:
    """A literal text; of an f-string the package that its fixed beginning names; "" for other expressions."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return _start(node.values[0]).rpartition(".")[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


class Code:
    """The sources of some packages.

    Args:
        root: the folder with the packages.
        packages: their names, from below to above.
    """

    def __init__(self, root: Path, packages: Sequence[str]):
        self.packages = packages
        self.sources: dict[str, Source] = {}
        for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
            *folders, stem = path.relative_to(root).with_suffix("").parts
            package = stem == "__init__"
            name = ".".join(folders if package else (*folders, stem))
            stub = path.with_suffix(".pyi")
            self.sources[name] = Source(name, package, path, *([stub] if stub.exists() else []))

    @cached_property
    def imports(self) -> Mapping[str, list[Use]]:
        """What each module imports, by statements and by calls."""
        return {
            source.name: [self._use(source.name, line, base, name) for base, name, line in source.imported]
            for source in self.sources.values()
        }

    @cached_property
    def uses(self) -> Mapping[str, list[Use]]:
        """What each module uses of others: its imports, and attributes of imported modules."""
        return {
            source.name: sorted({*self.imports[source.name], *self._reached(source)})
            for source in self.sources.values()
        }

    def _use(self, module: str, line: int, base: str, name: str) -> Use:
        whole = f"{base}.{name}"
        return Use(module, line, whole) if name and whole in self.sources else Use(module, line, base, name)

    def _reached(self, source: Source) -> Iterator[Use]:
        for (first, *rest), line in source.chains:
            at = source.bound.get(first)
            for name in rest:
                if at is None or at not in self.sources:
                    break
                yield self._use(source.name, line, at, name)
                at = f"{at}.{name}"

    @cached_property
    def between(self) -> list[Use]:
        """What modules use of other rooms."""
        known = self.sources
        every = (use for uses in self.uses.values() for use in uses)
        return [use for use in every if use.target in known and room(use.target) != room(use.module)]

    @cached_property
    def faces(self) -> Mapping[str, Sequence[str]]:
        """The names that each package within a package offers: what it imports of itself, and what it defines."""
        found = {}
        for name, source in self.sources.items():
            if source.package and "." in name:
                inner = {one for one, path in source.bound.items() if path.startswith(f"{name}.")}
                if "__all__" in source.defined and source.offered:
                    inner = source.offered
                found[name] = sorted(inner | {one for one in source.defined if not one.startswith("_")})
        return found

    def modules_of(self, face: str) -> list[str]:
        """The modules that a face offers whole."""
        return [name for name in self.faces[face] if self.sources[face].bound.get(name, "") in self.sources]

    # --- laws --------------------------------------------------------------------------------------------------------

    def upwards(self, package: str, order: Sequence[str]) -> list[str]:
        """Uses that go up the list of the rooms of a package."""
        place = {f"{package}.{name}": number for number, name in enumerate(order)}
        return [
            str(use)
            for use in self.between
            if (here := place.get(room(use.module))) is not None
            and ((to := room(use.target)) == package or place.get(to, here) < here)
        ]

    def strangers(self, package: str, allowed: Iterable[str]) -> list[str]:
        """Imports of packages that this one does not know."""
        known = {package, *allowed}
        inside = [uses for name, uses in self.imports.items() if name.split(".")[0] == package]
        return [str(use) for uses in inside for use in uses if use.target.partition(".")[0] not in known]

    def past_faces(self) -> list[str]:
        """Uses of another room's inside: a module that no face offers, or a name that is not the module's own."""
        return [str(use) for use in self.between if not (self.is_open(use.target) and self._is_own(use))]

    def is_open(self, module: str) -> bool:
        """Whether other rooms may use a module: a face, a room of one file, or a module that a face offers."""
        face, _, name = module.rpartition(".")
        return self.sources[module].package or module.count(".") == 1 or name in self.faces.get(face, ())

    def _is_own(self, use: Use) -> bool:
        """Whether a module defines or offers a name; what it merely imported, and other modules, are not its own."""
        source = self.sources[use.target]
        if use.name not in source.bound or use.name in source.defined:
            return True
        if source.package:
            return "." not in use.target or use.name in self.faces[use.target]
        return use.name in source.offered and source.bound[use.name] not in self.sources

    def both_ways(self) -> list[str]:
        """Circles between the folders of a room, with its own files as one of them; the same within each folder."""
        wrong = []
        for package in self.faces:
            edges: dict[str, set[str]] = {}
            for name in self.sources:
                if name.startswith(f"{package}."):
                    here = self._folder(package, name)
                    targets = {use.target for use in self.imports[name] if use.target.startswith(f"{package}.")}
                    edges.setdefault(here, set()).update(self._folder(package, target) for target in targets)
            try:
                TopologicalSorter({name: to - {name} for name, to in edges.items()}).prepare()
            except CycleError as error:
                wrong.append(f"{package}: {' -> '.join(reversed(error.args[1]))}")
        return wrong

    def _folder(self, package: str, module: str) -> str:
        child = ".".join(module.split(".")[: package.count(".") + 2])
        return child if child in self.sources and self.sources[child].package else "its own files"

    def circles(self) -> list[str]:
        """Circles of modules, by imports."""
        edges = {
            name: {use.target for use in uses if use.target in self.sources and use.target != name}
            for name, uses in self.imports.items()
        }
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            return [" -> ".join(reversed(error.args[1]))]
        return []

    def crowded(self, names: int, modules: int) -> list[str]:
        """Faces with more names than allowed, or more modules among them."""
        counts = [(face, len(offered), len(self.modules_of(face))) for face, offered in self.faces.items()]
        return [
            f"{face}: {all_} names, {whole} modules" for face, all_, whole in counts if all_ > names or whole > modules
        ]

    def twice(self, package: str) -> list[str]:
        """Names that mean two things in a package: its files, classes and aliases of types, and what its faces offer.

        What a face offers is compared with whatever modules define for others; aliases of one thing count as one.
        """
        own = {name: source for name, source in self.sources.items() if name.split(".")[0] == package}
        shown = {one for face in self.faces if face in own for one in {*self.faces[face]} - {*self.modules_of(face)}}
        files: dict[str, dict[str, str]] = {}
        named: dict[str, dict[str, str]] = {}
        for module, source in own.items():
            if not source.package:
                files.setdefault(module.rpartition(".")[2], {})[module] = module
            kinds = {**dict.fromkeys(source.classes, "class"), **source.defined}
            for name, kind in kinds.items():
                alias = CAMEL.fullmatch(name) and kind not in ("class", "def")
                if not name.startswith("_") and (alias or kind == "class" or name in shown):
                    named.setdefault(name, {})[module] = kind if alias else module
        return [
            f"{name}: {', '.join(where)}"
            for name, where in (*files.items(), *named.items())
            if len(set(where.values())) > 1
        ]
