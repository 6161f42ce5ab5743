"""Create the files of a new operator from the templates in scripts/templates.

NAME is the operator's stem in snake case, such as rms_norm. The new operator is complete
(y = x + epsilon in float32): it builds, imports, is documented and tested. Then replace the formula,
starting with the reference; CONTRIBUTING.md lists the files to edit. --kernel also makes an AscendC kernel,
a tiling, a CANN definition and the binding of torch_npu, and connects the back ends sim and npu to them.
tests/ops/test_NAME.py then also tests the kernel, and tests/cann/test_NAME_package.py calls it through aclnn.
"""

from __future__ import annotations

import argparse
import builtins
import ctypes
import keyword
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Each template makes one file. Its path is that of the file, with @op@ for the operator's stem and .in at the
# end. In its text, @op@ is the stem and @Op@ is the stem in camel case. The lines from `# @if kernel` to
# `# @end` are for an operator with a kernel; those after `# @if not kernel` or `# @else` for one without.
TEMPLATES = ROOT / "scripts" / "templates"
KERNEL_TEMPLATES = ROOT / "scripts" / "templates_kernel"
CHOICE = re.compile(r"^# @if (not )?kernel\n(.*?)^(?:# @else\n(.*?)^)?# @end\n", re.MULTILINE | re.DOTALL)

DECLARATION = """\
/* out = x + epsilon.
 *
 *   x        any shape, float32, contiguous
 *   epsilon  rounded to float32, in which it must be finite
 *   out      shape and dtype of x, contiguous; x itself, or shares no memory with x */
NPU_ROPE_API npu_rope_status npu_rope_@op@(\
const npu_rope_tensor *x, double epsilon, const npu_rope_tensor *out);

"""
CHECK_AND_TILE = """\
Check check_call(const Call& call, @Op@Tensors t) {
    t.known = known_of(call);
    t.out_may_be_null = true;
    if (!call.chip) return check_@op@(t, call.epsilon);
    TilingResult<@Op@TilingData> tiled;
    return check_and_tile_@op@(t, call.epsilon, *call.chip, &tiled);
}

"""
COLUMNS = 120  # largest length of a line of C++
RESERVED = {"common", "checks", "test"}
# Keywords that no template uses; use_of finds the others.
CPP_KEYWORDS = """
    alignas alignof and and_eq asm bitand bitor bool break case catch char compl concept const_cast
    consteval constinit continue decltype default delete do dynamic_cast else enum export extern float
    friend goto inline long mutable new not not_eq operator or or_eq protected register reinterpret_cast
    requires restrict short signed sizeof static_assert switch thread_local throw try typedef typeid
    typename union unsigned virtual volatile wchar_t xor xor_eq
"""
# Names that C's headers and compilers use, besides the functions of C's library.
C_NAMES = """
    clock_t fpclassify isgreater isless isnormal isunordered jmp_buf linux main null offsetof ptrdiff_t
    setjmp signbit size_t ssize_t time_t unix va_list wint_t
"""
C_INTEGER = r"u?int(_least|_fast)?(8|16|32|64)_t|u?int(max|ptr)_t"


class CannotGenerate(Exception):
    """The operator cannot be made; the text has the reason."""


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*", name):
        rule = "be snake case (a-z, 0-9, single _ before a letter)"
        raise CannotGenerate(f"NAME must {rule} but got {name!r}.")
    if (use := use_of(name)) is not None:
        raise CannotGenerate(f"NAME must be free but {use}.")


def use_of(name: str) -> str | None:
    """Return the use that prevents an operator of this name, or None."""
    if keyword.iskeyword(name) or hasattr(builtins, name) or hasattr(math, name):
        return f"Python or C uses {name!r}"
    if name in CPP_KEYWORDS.split():
        return f"C++ uses {name!r}"
    # The process has the functions of C's library.
    if name in C_NAMES.split() or re.fullmatch(C_INTEGER, name) or hasattr(ctypes.CDLL(None), name):
        return f"C uses {name!r}"
    if name in RESERVED:
        return f"{name!r} is reserved"
    function = f"npu_rope_{name.removesuffix('_out')}"  # <op>_out: the schema that takes its results
    if re.search(rf"\b{function}\b", (ROOT / "include/npu_rope.h").read_text()):
        return f"include/npu_rope.h has {function}"
    for module in (ROOT / f"npu_rope/{name}.py", ROOT / "npu_rope" / name):
        if module.exists():
            return f"{module.relative_to(ROOT)} exists"
    for template in sorted(path for folder in (TEMPLATES, KERNEL_TEMPLATES) for path in folder.rglob("*.in")):
        code = re.sub(r'""".*?"""|(?://|#)[^\n]*|"[^"\n]*"', "", template.read_text(), flags=re.DOTALL)
        if template.suffixes[0] != ".md" and re.search(rf"(?<!@)\b{name}\b(?!@)", code):
            return f"{template.relative_to(ROOT)} uses {name!r}"
    return None


def filled(text: str, name: str, kernel: bool) -> str:
    """Return a template's text for the operator."""
    text = CHOICE.sub(lambda match: match[2] if (match[1] is None) == kernel else match[3] or "", text)
    camel_case = "".join(part.capitalize() for part in name.split("_"))
    text = text.replace("@op@", name).replace("@Op@", camel_case)
    includes = r'(?:^#include "[^"]+"\n)+'  # in the order of clang-format
    return re.sub(
        includes, lambda match: "".join(sorted(match[0].splitlines(True))), text, flags=re.MULTILINE
    )


def wrapped(text: str) -> str:
    """Break each line of C++ that is longer than COLUMNS. The break follows an argument, as clang-format
    places it."""

    def broken(line: str) -> str:
        position, depth, start = 0, 0, line.find("(") + 1
        for i in range(start, COLUMNS if start and len(line) > COLUMNS else start):
            depth += (line[i] in "([{") - (line[i] in ")]}")
            position = i + 1 if depth == 0 and line[i] == "," else position
        return f"{line[:position]}\n{' ' * start}{line[position + 1 :]}" if position else line

    return "\n".join(map(broken, text.split("\n")))


def files_of(name: str, kernel: bool) -> dict[Path, str]:
    """Return the text of each new file, by path."""
    text_by_path = {}
    for templates in (TEMPLATES, KERNEL_TEMPLATES) if kernel else (TEMPLATES,):
        for template in sorted(templates.rglob("*.in")):
            path = template.relative_to(templates).as_posix().removesuffix(".in")
            text = filled(template.read_text(), name, kernel)
            text_by_path[ROOT / path.replace("@op@", name)] = (
                wrapped(text) if path.endswith((".cpp", ".h")) else text
            )
    return text_by_path


def insert_before(text: str, anchor: str, added: str) -> str:
    position = text.rindex(anchor)
    return text[:position] + added + text[position:]


def insert_in_order(text: str, statement: str, added: str) -> str:
    """Insert a line among those that match ``statement``. The lines are in the order of its first group."""
    found = list(re.finditer(statement, text, re.MULTILINE))
    new = re.match(statement, added)
    assert new is not None
    before = [match for match in found if match[1] < new[1]]
    position = before[-1].end() if before else found[0].start()
    return text[:position] + added + text[position:]


def add_declaration(text: str, name: str) -> str:
    """Add the C declaration at the end of the interface."""
    return insert_before(text, "#ifdef __cplusplus\n}\n#endif", wrapped(DECLARATION.replace("@op@", name)))


def add_to_cmake(text: str, name: str) -> str:
    """Add a line after the last operator's."""
    last = list(re.finditer(r"^npu_rope_add_op\((?:[^)]*)\)\n", text, re.MULTILINE))[-1]
    return text[: last.end()] + f"npu_rope_add_op({name} CPU {name})\n" + text[last.end() :]


def add_to_package(text: str, name: str) -> str:
    """Add the import and the entry in __all__, both in alphabetical order."""
    statement = r"^from npu_rope\.([\w.]+) import (?:\([^)]*\)|[^(\n]*)\n"
    text = insert_in_order(text, statement, f"from npu_rope.ops.{name} import {name}\n")
    names = re.search(r"__all__ = \[([^]]*)\]", text)
    assert names is not None
    exported_names = sorted([*re.findall(r'"(\w+)"', names[1]), name])
    quoted = ", ".join(f'"{exported}"' for exported in exported_names)
    line = f"__all__ = [{quoted}]"
    if len(line) > 110:
        line = "__all__ = [\n" + "".join(f'    "{exported}",\n' for exported in exported_names) + "]"
    return text[: names.start()] + line + text[names.end() :]


def add_rules(text: str, rule: str, header: str) -> str:
    """Add the row by which npu_rope_check() checks the operator, and an include."""
    text = insert_before(text, "};\n\nCheck check_call(const npu_rope_call* call", wrapped(rule))
    return insert_in_order(text, r'^#include "([^"]+)"\n', f'#include "{header}"\n')


def add_check(text: str, name: str) -> str:
    """Add an operator without a kernel to npu_rope_check()."""
    rule = f"check_{name}({{in[0], out[0], known_of(call), true}}, call.epsilon)"
    return add_rules(text, f'    NPU_ROPE_RULES("{name}", {rule}),\n', f"csrc/core/{name}_check.h")


def add_check_and_tile(text: str, name: str) -> str:
    """Do the same as :func:`add_check` for an operator with a kernel."""
    text = insert_before(text, "// An operator and the check", filled(CHECK_AND_TILE, name, True))
    row = filled('    NPU_ROPE_RULES("@op@", check_call(call, @Op@Tensors{in[0], out[0]})),\n', name, True)
    return add_rules(text, row, f"op_host/{name}_tiling.h")


EDITS = {
    "include/npu_rope.h": add_declaration,
    "CMakeLists.txt": add_to_cmake,
    "npu_rope/__init__.py": add_to_package,
    "csrc/capi/check.cpp": add_check,
}
KERNEL_EDITS = {**EDITS, "csrc/capi/check.cpp": add_check_and_tile}


def texts_of(name: str, kernel: bool) -> dict[Path, str]:
    """Return the text of each new file and of each changed file, by path."""
    check_name(name)
    text_by_path = files_of(name, kernel)
    for path in text_by_path:
        if path.exists():
            raise CannotGenerate(f"NAME must be free but {path.relative_to(ROOT)} exists.")
    for file, edit in (KERNEL_EDITS if kernel else EDITS).items():
        text_by_path[ROOT / file] = edit((ROOT / file).read_text(), name)
    return text_by_path


def make(name: str, kernel: bool) -> list[Path]:
    """Write all files, or none if the name is taken."""
    text_by_path = texts_of(name, kernel)
    for path, text in text_by_path.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(text_by_path)


def format_files(paths: list[Path]) -> None:
    """Run the formatters, because line lengths and import order depend on the name."""
    python = [str(path) for path in paths if path.suffix == ".py"]
    cpp = [
        str(path) for path in paths if path.suffix in (".cpp", ".h") and path.is_relative_to(ROOT / "csrc")
    ]
    for folder in ("op_host", "op_kernel"):
        cpp += [str(path) for path in paths if path.is_relative_to(ROOT / folder)]
    cpp.append(str(ROOT / "include" / "npu_rope.h"))
    folders = [str(Path(sys.executable).parent), str(ROOT / ".venv/bin"), os.environ.get("PATH", "")]
    missing = []
    for command in (
        ["ruff", "check", "--quiet", "--select", "I", "--fix", *python],
        ["ruff", "format", "--quiet", *python],
        ["clang-format", "-i", *cpp],
    ):
        tool = shutil.which(command[0], path=os.pathsep.join(folders))
        if tool is not None:
            subprocess.run([tool, *command[1:]], cwd=ROOT, check=True)
        elif command[0] not in missing:
            missing.append(command[0])
    for name in missing:
        print(f"{name} was not found: run it on these files before you commit.", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--kernel", action="store_true", help="also make its kernel, CANN definition and binding"
    )
    arguments = parser.parse_args()
    name = arguments.name
    try:
        paths = make(name, arguments.kernel)
    except CannotGenerate as refused:
        print(f"[new_op] {refused}", file=sys.stderr)
        return 2
    format_files(paths)
    for path in paths:
        file = path.relative_to(ROOT).as_posix()
        print(f"{'changed' if file in EDITS else 'made   '} {file}")
    print(f"Next: pip install --no-build-isolation -e ./simulator -e . && pytest tests/ops/test_{name}.py")
    print(f"Then replace the formula, first in npu_rope/reference/{name}.py.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
