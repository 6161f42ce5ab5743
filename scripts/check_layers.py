"""Check the dependencies between layers. layer_tables.py lists what each layer may include or import.

A layer is a folder or a file pattern. The first layer that matches a file applies. A file without a layer is
an error. In C and C++ the script checks the #include lines, in Python all imports, also those in functions.
It also refuses files of more than 500 lines outside tests and docs, two classes of the packages that have
one name, and calls outside tests that run data as code or make files with predictable names.
"""

from __future__ import annotations

import argparse
import ast
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from layer_tables import (
    ARGUMENTS_BY_PLACE,
    C_HEADERS,
    C_STD,
    C_TEXT,
    CPP_LAYERS,
    HOSTILE_C_CALLS,
    HOSTILE_CALLS,
    HOSTILE_MODULES,
    HOSTILE_MODULES_IN,
    JUMPING_C_CLOCKS,
    JUMPING_CLOCKS,
    PACKAGE,
    PACKAGES,
    PY_STD,
    PYTHON_LAYERS,
    SAFE_ARGUMENTS,
    Layer,
)

# The folder that defines all tolerances. Tests may also define some.
TOLERANCE_HOME = "npu_rope/testing/*"
# Besides the package, the folders and files that may not define a tolerance.
OTHER_FOLDERS_WITHOUT_TOLERANCES = (("benchmarks", ".py"), ("scripts/templates", ".py.in"))
TOLERANCE_NAMES = re.compile(
    r"^(?:[ra]tol|(?:assert_)?(?:all|is)close|assert_close|tolerance|approx|assert_(?:array_)?almost_equal)$",
    re.IGNORECASE,
)
# A comparison with a number up to this one counts as a tolerance.
LARGEST_TOLERANCE = 1e-2

USERS_OF_ASCEND_SIM = (PACKAGE, "benchmarks", "examples", "scripts")
C_FRAGMENTS = (".inc", ".inl", ".ipp", ".tpp")  # to include in other files
C_FOLDERS = ("include", "op_kernel", "op_host", "simulator", "csrc", "integrations")
C_INCLUDE = r'^[^\S\n]*#[^\S\n]*(?:include|include_next|import)\b[^\S\n]*([<"]?)([^>"\s]+)'
BUILD_FOLDERS = {"build", ".venv"}
C_SUFFIXES = (".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx", ".hxx", ".cuh", *C_FRAGMENTS)

# Both packages export a class of this name.
SHARED_CLASS_NAMES = {"Report"}

# The most lines of a file of these folders and kinds, outside tests. A table of data (.def) may have more.
MOST_LINES = 500
CODE_FOLDERS = (*C_FOLDERS, PACKAGE, "benchmarks", "cmake", "examples", "scripts")
CODE_SUFFIXES = (".py", ".sh", ".js", ".css", ".cmake", ".in", ".asc", *C_SUFFIXES)


@dataclass(frozen=True, order=True)
class Violation:
    """One line that uses a file, module or name that its layer must not use."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def layer_of(file: str, layers: tuple[Layer, ...]) -> Layer | None:
    return next((layer for layer in layers if any(fnmatch(file, pattern) for pattern in layer.files)), None)


def name_of(layer: Layer, file: str) -> str:
    return "layer " + next(pattern for pattern in layer.files if fnmatch(file, pattern))


def refusal_text(layer: Layer, file: str, used_name: str) -> str:
    never = f" (never: {', '.join(layer.never)})" if layer.never else ""
    return f"{name_of(layer, file)} may not use {used_name}; it may use: {', '.join(layer.may_use)}{never}"


# ---- C and C++ ------------------------------------------------------------------------------------


def without_comments(text: str) -> str:
    """Return the text with spaces instead of comments, so that line numbers do not change."""
    return re.sub(
        rf"(?P<kept>{C_TEXT})|//[^\n]*|/\*.*?\*/",
        lambda match: match["kept"] or re.sub(r"[^\n]", " ", match[0]),
        text,
        flags=re.DOTALL,
    )


def found_in(text: str, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield each match and the line of its last group, or of its start."""
    line, end = 1, 0
    for match in re.finditer(pattern, text, re.MULTILINE):
        start = match.start(match.lastindex or 0)
        line += text.count("\n", end, start)
        end = start
        yield line, match


def is_standard_header(header: str) -> bool:
    return header in C_HEADERS or re.fullmatch(r"[a-z_0-9]+", header) is not None


def possible_names(header: str, file: str, files: frozenset[str]) -> Iterator[str]:
    """Yield the header's name in the #include line and, if it is relative to the file's folder, its path."""
    yield header
    path = posixpath.normpath(posixpath.join(posixpath.dirname(file), header))
    if path in files:
        yield path


def check_c_file(
    file: str, text: str, operators: frozenset[str], files: frozenset[str]
) -> Iterator[Violation]:
    layer = layer_of(file, CPP_LAYERS)
    if layer is None:
        yield Violation(file, 1, "belongs to no layer: add it to CPP_LAYERS in scripts/layer_tables.py")
        return
    code = without_comments(text)
    statements = re.sub(C_TEXT, lambda match: "\n" * match[0].count("\n"), code, flags=re.DOTALL)
    for number, hostile in found_in(statements, HOSTILE_C_CALLS):
        yield Violation(file, number, f"calls {hostile[1]}, which hostile input can misuse")
    for number, clock in found_in(code, JUMPING_C_CLOCKS):
        yield Violation(file, number, f"may not use {clock[0]}, which can jump: use steady_clock")
    for number, included in found_in(code, C_INCLUDE):
        header = included[2]
        is_standard = included[1] == "<" and C_STD in layer.may_use and is_standard_header(header)
        names = possible_names(header, file, files)
        if not is_standard and not any(fnmatch(name, used) for name in names for used in layer.may_use):
            yield Violation(file, number, refusal_text(layer, file, header))
    for pattern in layer.never:
        for number, found_text in found_in(code, pattern):
            yield Violation(file, number, f"{name_of(layer, file)} may not contain {found_text[0]}")
    if layer.names_no_operator and operators:
        for number, word in found_in(code, rf"(?i)\b(?:npu_)?(?:{'|'.join(sorted(operators))})\b"):
            rule = f"{name_of(layer, file)} may not name an operator but contains {word[0]}"
            yield Violation(file, number, rule)


# ---- Python ---------------------------------------------------------------------------------------


def imported(tree: ast.AST, file: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield (node, dotted name) of every import; `from a import b` gives a.b. Relative names are resolved."""
    package = file.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            parent_package = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parent_package, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if called in ("import_module", "__import__"):
                yield from (
                    (node, str(argument.value))
                    for argument in node.args[:1]
                    if isinstance(argument, ast.Constant)
                )


def inside_functions(tree: ast.AST) -> set[ast.AST]:
    functions = (
        function
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return {node for function in functions for node in ast.walk(function)}


def may_import(layer: Layer, name: str) -> bool:
    if name.split(".")[0] in layer.never:
        return False
    for allowed in layer.may_use:
        if allowed == "*" or (allowed == PY_STD and name.split(".")[0] in sys.stdlib_module_names):
            return True
        if fnmatch(name, allowed) or (allowed != PACKAGE and fnmatch(name, allowed + ".*")):
            return True
    return False


NAME_FIELDS = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg", ast.alias: "name"}


def tolerances(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of names that mean a tolerance and of comparisons with a small number."""
    for node in ast.walk(tree):
        name = NAME_FIELDS.get(type(node))
        if name is not None and TOLERANCE_NAMES.match(getattr(node, name) or ""):
            yield node.lineno, getattr(node, name)
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                value = part.value if isinstance(part, ast.Constant) else None
                if isinstance(value, float) and 0 < value <= LARGEST_TOLERANCE:
                    yield node.lineno, f"a comparison with {value:g}"


def check_tolerances(file: str, tree: ast.AST) -> Iterator[Violation]:
    if not fnmatch(file, TOLERANCE_HOME):
        for number, used_name in sorted(set(tolerances(tree))):
            yield Violation(file, number, f"{used_name}: a tolerance may only be in npu_rope/testing")


def check_other_file(file: str, text: str) -> Iterator[Violation]:
    """Check a file, or a template of one, that only may not define a tolerance."""
    yield from check_tolerances(file, ast.parse(text.replace("@op@", "op").replace("@Op@", "Op"), file))


def check_python_file(file: str, text: str) -> Iterator[Violation]:
    tree = ast.parse(text, file)
    yield from check_tolerances(file, tree)
    layer = layer_of(file, PYTHON_LAYERS)
    if layer is None:
        yield Violation(file, 1, "belongs to no layer: add it to PYTHON_LAYERS in scripts/layer_tables.py")
        return
    nodes_in_functions = inside_functions(tree) if layer.functions_may_import else set()
    for node, name in imported(tree, file):
        allowed_in_function = node in nodes_in_functions and any(
            fnmatch(name, pattern) for pattern in layer.functions_may_import
        )
        if not may_import(layer, name) and not allowed_in_function:
            yield Violation(file, getattr(node, "lineno", 1), refusal_text(layer, file, name))


def check_outside_package(file: str, text: str) -> Iterator[Violation]:
    """Check a file of ascend_sim outside its package. It may not import npu_rope."""
    for node, name in imported(ast.parse(text), file):
        if name.partition(".")[0] == PACKAGE:
            yield Violation(file, getattr(node, "lineno", 1), f"ascend_sim may not import {name}")


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@cache
def names_in_all(text: str) -> tuple[str, ...] | None:
    """Return the names in a module's ``__all__``, or None if it has none."""
    found: tuple[str, ...] | None = None
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            found = (*(found or ()), *ast.literal_eval(node.value))
    return found


def public_names(texts: dict[str, str]) -> frozenset[str]:
    """Return the modules of ascend_sim that have an ``__all__``, and the names in it. Other modules are
    private."""
    found = set()
    for file, text in below(texts, PACKAGES[1:], ".py"):
        names = names_in_all(text)
        if names is not None:
            module = module_of(file.removeprefix("simulator/"))
            found |= {module, *(f"{module}.{name}" for name in ("*", "__all__", *names))}
    return frozenset(found)


def check_public_names(file: str, text: str, public: frozenset[str]) -> Iterator[Violation]:
    """Refuse names of ascend_sim outside its ``__all__``, imported or as attributes of an imported module."""
    tree = ast.parse(text, file)
    used = [(node, name) for node, name in imported(tree, file) if name.split(".")[0] == "ascend_sim"]
    modules = {
        alias.asname or alias.name: name
        for node, name in used
        for alias in getattr(node, "names", ())
        if f"{name}.__all__" in public and name.endswith(alias.name)
    }
    for node in ast.walk(tree) if modules else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            used.append((node, f"{modules[node.value.id]}.{node.attr}"))
    for node, name in used:
        if name not in public:
            text = f"uses {name}, which is in no __all__ of ascend_sim"
            yield Violation(file, getattr(node, "lineno", 1), text)


@cache
def names_imported(text: str, file: str) -> tuple[tuple[int, str], ...]:
    return tuple((getattr(node, "lineno", 1), name) for node, name in imported(ast.parse(text), file))


def imports_of(texts: dict[str, str], package: str) -> dict[str, dict[str, Violation]]:
    """Return for each module of a package the modules of this package that it imports, also in functions."""
    base = package.rpartition("/")[0]
    files = dict(below(texts, (package,), ".py"))
    modules = {file: module_of(file.removeprefix(f"{base}/")) for file in files}
    names = set(modules.values())
    found: dict[str, dict[str, Violation]] = {}
    for file, module in modules.items():
        found[module] = {}
        for line, name in names_imported(files[file], file.removeprefix(f"{base}/")):
            while name and name not in names:
                name = name.rpartition(".")[0]
            if "." in name and name != module:
                found[module].setdefault(name, Violation(file, line, f"{module} imports {name}"))
    return found


def check_cycles(imports: dict[str, dict[str, Violation]]) -> Iterator[Violation]:
    """Yield one cycle of imports, if any, as a violation at the import that closes it."""
    try:
        tuple(TopologicalSorter({module: set(found) for module, found in imports.items()}).static_order())
    except CycleError as error:
        cycle = error.args[1][::-1]
        closing = imports[cycle[0]][cycle[1]]
        yield Violation(
            closing.file, closing.line, f"imports must form no circle but got {' → '.join(cycle)}"
        )


# ---- hostile input --------------------------------------------------------------------------------


def dotted(node: ast.AST) -> str:
    """Return the name of a called function, such as ``os.system``; empty for other expressions."""
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def check_hostile_input(file: str, text: str) -> Iterator[Violation]:
    """Refuse calls that run data as code, make predictable files, or read a clock that can jump."""
    tree = ast.parse(text, file)
    origins = {}  # the full names of what the file imports
    for node, name in imported(tree, file):
        if name.split(".")[0] in set(HOSTILE_MODULES) - set(HOSTILE_MODULES_IN.get(file, ())):
            yield Violation(file, getattr(node, "lineno", 1), f"may not import {name}: it runs data as code")
        if name.endswith(".*") and name.split(".")[0] not in ("npu_rope", "ascend_sim"):
            yield Violation(file, getattr(node, "lineno", 1), f"may not import {name}: it hides what is used")
        for alias in getattr(node, "names", ()):
            if name.rpartition(".")[2] == alias.name.rpartition(".")[2]:
                origins[alias.asname or alias.name] = name

    def full_name(node: ast.AST) -> str:
        first, dot, rest = dotted(node).partition(".")
        return f"{origins.get(first, first)}{dot}{rest}"

    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):  # also without a call: f = eval
            name = full_name(node)
            if name in HOSTILE_CALLS:
                yield Violation(file, node.lineno, f"may not use {name}, which hostile input can misuse")
            if name in JUMPING_CLOCKS:
                rule = f"may not use {name}, whose clock can jump: use time.monotonic"
                yield Violation(file, node.lineno, rule)
        if isinstance(node, ast.Call):
            arguments = [(keyword.arg, keyword.value) for keyword in node.keywords]
            place, argument = ARGUMENTS_BY_PLACE.get(full_name(node.func), (0, ""))
            if argument and len(node.args) > place:
                arguments.append((argument, node.args[place]))
            for argument, value in arguments:
                safe = SAFE_ARGUMENTS.get(argument or "")
                if safe is not None and not (isinstance(value, ast.Constant) and value.value is safe):
                    rule = f"must pass {argument}={safe}, because hostile input can misuse other values"
                    yield Violation(file, node.lineno, rule)


# ---- lengths and names of classes -----------------------------------------------------------------


def check_length(file: str, text: str) -> Iterator[Violation]:
    lines = len(text.splitlines())
    if lines > MOST_LINES:
        rule = f"must have at most {MOST_LINES} lines but got {lines}: split it by subject"
        yield Violation(file, MOST_LINES + 1, rule)


@cache
def classes_in(text: str) -> tuple[tuple[int, str], ...]:
    """Return the line and the name of each class outside classes and functions."""
    return tuple((node.lineno, node.name) for node in ast.parse(text).body if isinstance(node, ast.ClassDef))


def check_class_names(files: Iterable[tuple[str, str]]) -> Iterator[Violation]:
    """Yield the classes outside classes and functions that have the name of another one."""
    places: dict[str, str] = {}
    for file, text in files:
        for line, name in classes_in(text):
            place = f"{file}:{line}"
            if name not in SHARED_CLASS_NAMES and (other := places.setdefault(name, place)) != place:
                rule = f"class {name} must have a name of its own but got that of {other}"
                yield Violation(file, line, rule)


# ---- the tree -------------------------------------------------------------------------------------


def texts_below(root: Path) -> dict[str, str]:
    """Return the texts of the files to check, by their paths relative to the root."""
    texts = {}
    for folder in sorted((*CODE_FOLDERS, "docs")):
        for path in sorted((root / folder).rglob("*")):
            file = path.relative_to(root).as_posix()
            is_built = BUILD_FOLDERS & set(file.split("/")) and not file.startswith(PACKAGES)
            if path.suffix in CODE_SUFFIXES and not is_built:
                texts[file] = path.read_text()
    return texts


def below(
    texts: dict[str, str], folders: tuple[str, ...], suffixes: str | tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    starts = tuple(f"{folder}/" for folder in folders)
    return (item for item in texts.items() if item[0].startswith(starts) and item[0].endswith(suffixes))


def operators_of(texts: dict[str, str]) -> frozenset[str]:
    """Return the operators' stems: files of csrc/capi, except those for all operators, and kernels."""
    stems = {match[1] for file in texts if (match := re.fullmatch(r"csrc/capi/([^/]+)\.cpp", file))}
    kernels = {match[1] for file in texts if (match := re.fullmatch(r"op_kernel/npu_([^/]+)\.cpp", file))}
    return frozenset(stems - {"common", "check", "python"} | kernels)


def check(texts: dict[str, str]) -> list[Violation]:
    """Check the files, which are given as texts by relative paths. Return what violates a rule, in order."""
    found: list[Violation] = []
    operators = operators_of(texts)
    c_files = dict(below(texts, C_FOLDERS, C_SUFFIXES))
    names = frozenset(c_files)
    for file, text in c_files.items():
        found += check_c_file(file, text, operators, names)
    public = public_names(texts)
    for file, text in below(texts, PACKAGES, ".py"):
        found += check_python_file(file, text)
    for file, text in below(texts, USERS_OF_ASCEND_SIM, ".py"):
        found += check_public_names(file, text, public)
    for file, text in below(texts, ("simulator",), ".py"):
        if not file.startswith(PACKAGES[1]):
            found += check_outside_package(file, text)
    for package in PACKAGES:
        found += check_cycles(imports_of(texts, package))
    for folder, suffix in OTHER_FOLDERS_WITHOUT_TOLERANCES:
        for file, text in below(texts, (folder,), suffix):
            found += check_other_file(file, text)
    outside_tests = {file: text for file, text in texts.items() if "tests" not in file.split("/")}
    for file, text in below(outside_tests, (*CODE_FOLDERS, "docs"), ".py"):
        found += check_hostile_input(file, text)
    for file, text in below(outside_tests, CODE_FOLDERS, CODE_SUFFIXES):
        found += check_length(file, text)
    found += check_class_names(below(texts, PACKAGES, ".py"))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "root",
        metavar="ROOT",
        nargs="?",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the checkout to check; default: the one of this script",
    )
    root = parser.parse_args().root
    texts = texts_below(root)
    if not any(below(texts, (*C_FOLDERS, *PACKAGES), (".py", *C_SUFFIXES))):
        print(f"[check_layers] ROOT must be a checkout with sources but got {root}.", file=sys.stderr)
        return 2
    violations = check(texts)
    for violation in violations:
        print(violation, file=sys.stderr)
    print(f"layers: {len(violations)} violation(s)")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
