"""The tables of scripts/check_layers.py: the files of each layer, and what they may include or import."""

from __future__ import annotations

from dataclasses import dataclass

C_STD = "<std>"  # any standard header: <name> without slash or extension, or C's own <name.h>
C_HEADERS = (
    *("stdint.h", "stddef.h", "stdio.h", "stdlib.h", "string.h", "math.h", "stdbool.h", "float.h"),
    *("errno.h", "stdarg.h"),
)


# Python outside tests may not use these, because they run data as code. docs/threats.md has the reasons of
# the exceptions.
HOSTILE_MODULES = (
    *("_pickle", "cloudpickle", "code", "codeop", "dill", "joblib", "jsonpickle", "marshal", "pickle"),
    *("multiprocessing", "pty", "runpy", "shelve"),
)
HOSTILE_MODULES_IN = {"npu_rope/testing/child.py": ("pickle",)}
HOSTILE_CALLS = (
    *("eval", "exec", "builtins.eval", "builtins.exec", "os.system", "os.popen", "os.tempnam"),
    *("asyncio.create_subprocess_shell", "asyncio.subprocess.create_subprocess_shell"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "tempfile.mktemp", "torch.load"),
    *("pandas.eval", "pandas.read_pickle", "torch.jit.load", "torch.serialization.load"),
    *("torch.hub.load", "torch.package.PackageImporter", "__builtins__.eval", "__builtins__.exec"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.full_load_all"),
    *("yaml.unsafe_load", "yaml.unsafe_load_all"),
)
# The only values that these arguments may have, and the calls in which one has a place without its name.
SAFE_ARGUMENTS = {"shell": False, "allow_pickle": False, "weights_only": True, "trust_remote_code": False}
ARGUMENTS_BY_PLACE = {
    "numpy.lib.format.read_array": (1, "allow_pickle"),
    "numpy.lib.npyio.load": (2, "allow_pickle"),
    "numpy.load": (2, "allow_pickle"),
    "numpy.save": (2, "allow_pickle"),
    **dict.fromkeys(
        (f"subprocess.{name}" for name in ("Popen", "run", "call", "check_call", "check_output")),
        (8, "shell"),
    ),
}
# The same for C and C++: a shell, predictable temporary files, and writes without a size.
C_CALLS = (
    *(
        "system",
        "popen",
        "execl",
        "execlp",
        "execle",
        "tmpnam",
        "tempnam",
        "mktemp",
        "gets",
        "strcpy",
        "stpcpy",
    ),
    *("strcat", "wcscpy", "wcscat", "sprintf", "vsprintf", "scanf", "fscanf", "sscanf", "vsscanf"),
    *("execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp"),
)
HOSTILE_C_CALLS = rf"(?<![\w.>])(?:std::)?({'|'.join(C_CALLS)})\b"  # also without a call: f = system
# Clocks that can jump. Durations come from time.monotonic, time.perf_counter or steady_clock.
JUMPING_CLOCKS = ("time.time", "time.time_ns", "time.CLOCK_REALTIME", "time.clock_gettime")
C_CLOCKS = (
    "system_clock",
    "high_resolution_clock",
    "gettimeofday",
    "CLOCK_REALTIME",
    "CLOCK_REALTIME_COARSE",
)
JUMPING_C_CLOCKS = rf"\b({'|'.join(C_CLOCKS)})\b|(?<![\w.>])(?:std::)?(time)\s*\(\s*(?:nullptr|NULL|0|&)"

# A string of C++, also a raw one, or a character; ' also separates digits.
C_TEXT = (
    r'R"(?P<mark>[^()\s\\]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)'(?:\\.|[^'\\\n])+'"
)


@dataclass(frozen=True)
class Layer:
    """Files of one layer, and patterns of the files and modules that they may include or import."""

    files: tuple[str, ...]
    may_use: tuple[str, ...]
    never: tuple[str, ...] = ()  # C and C++: regular expressions; Python: modules
    names_no_operator: bool = False
    functions_may_import: tuple[str, ...] = ()  # in addition to may_use, inside functions


# CANN's headers for an operator's definition.
CANN_HOST = ("register/*", "exe_graph/*", "graph/*", "tiling/*")

# A kernel may include these, and the headers of op_kernel's folders.
KERNEL = ("kernel_operator.h", "*_tiling_data.h")
KERNEL_FOLDERS = ("op_kernel/memory/*", "op_kernel/norm/*", "op_kernel/rotation/*")
NO_SIMULATOR = (r"#\s*if.*(?:SIMULATOR|ASCENDC_CPU_DEBUG)",)

# Linux headers of the simulated CANN.
LINUX = (
    "cxxabi.h",
    "dlfcn.h",
    "elf.h",
    "fcntl.h",
    "pthread.h",
    "sys/mman.h",
    "sys/stat.h",
    "sys/uio.h",
    "sys/utsname.h",
    "unistd.h",
)

# POSIX headers of the simulated machine: libraries, and the stacks of cores that wait for each other.
POSIX = ("dlfcn.h", "elf.h", "signal.h", "sys/mman.h", "sys/syscall.h", "ucontext.h", "unistd.h")
POSIX += ("sanitizer/*",)

# CANN's headers for the host code of operators, as far as the simulated CANN has them.
CANN_OPERATORS = (*CANN_HOST, "base/*", "platform/*", "securec.h", "ascendc/host_api/*")

# Files that every part of the simulated CANN may include.
CANN_FILES = (*LINUX, "cann/files.h", "cann/locked.h", "src/*", "include/ascend_sim*.h", "acl/*", "aclnn/*")
# AscendC's headers.
ASCENDC = ("kernel_operator.h", "kernel_utils.h", "kernel_log.h", "kernel_tiling/*", "lib/*")
# The other headers of CANN's kernels.
ASCENDC_PARTS = ("kernel_*.h", "basic_api/*", "impl/*", "platform/*", "utils/*")

# Tilings and sizes of temporary memory of AscendC's library functions. They are plain C++ for kernels and for
# CANN's host headers. They include each other without a folder.
LIBRARY_TILINGS = (
    "simulator/include/ascendc/library/*_sizes.h",
    "simulator/include/ascendc/library/*_tiling.h",
    "simulator/include/ascendc/library/tiling_*.h",
)

# The part of op_host that includes no header of CANN.
TILING = (
    "op_host/chips.h",
    "op_host/platform.h",
    "op_host/tile_preferences.h",
    "op_host/tiling_result.h",
    "op_host/ub_layout.h",
    "op_host/work_split.h",
    "op_host/*_tile.h",
    "op_host/*_tiling.h",
)

CPP_LAYERS = (
    Layer(("include/*",), ("stdint.h", "npu_rope.h")),
    Layer(("op_kernel/*_tiling_data.h",), ("cstdint", "*_tiling_data.h")),
    Layer(("op_kernel/memory/*",), (*KERNEL, "op_kernel/memory/*"), never=NO_SIMULATOR),
    Layer(("op_kernel/norm/*",), (*KERNEL, "op_kernel/memory/*", "op_kernel/norm/*"), never=NO_SIMULATOR),
    Layer(("op_kernel/*",), (*KERNEL, *KERNEL_FOLDERS), never=NO_SIMULATOR),
    Layer(
        ("op_host/*_def.cpp", "op_host/*cann.*"),
        (C_STD, *CANN_HOST, "op_host/*", "csrc/core/*", "op_kernel/*_tiling_data.h", "include/npu_rope.h"),
        never=(r'#\s*include\s*[<"](?:torch|ATen|c10|src|cann)/',),
    ),
    Layer(
        ("op_host/*",),
        (C_STD, *TILING, "csrc/core/*", "op_kernel/*_tiling_data.h", "include/npu_rope.h"),
    ),
    Layer(("csrc/core/*",), (C_STD, "csrc/core/*", "include/npu_rope.h")),
    # The package ascend_sim: paths below simulator/ are relative to it.
    Layer(
        ("simulator/cann/include/*",),
        (C_STD, "acl/*", "aclnn/*", "hccl/*", "include/ascendc/library/*", *CANN_OPERATORS),
        names_no_operator=True,
    ),
    Layer(
        ("simulator/cann/host/*",),
        (C_STD, *CANN_FILES, "cann/host/*", "cann/runtime/objects.h", *CANN_OPERATORS),
        names_no_operator=True,
    ),
    Layer(
        ("simulator/cann/hccl/*",),
        (
            C_STD,
            *CANN_FILES,
            "dirent.h",
            "cann/runtime/*",
            "cann/opapi/elements.h",
            "cann/hccl/*",
            "hccl/*",
        ),
        names_no_operator=True,
    ),
    Layer(
        ("simulator/cann/*",),
        (C_STD, *CANN_FILES, "cann/runtime/*", "cann/opapi/*", "cann/host/json_reader.h", "securec.h"),
        names_no_operator=True,
    ),
    Layer(LIBRARY_TILINGS, (C_STD, "*_sizes.h", "*_tiling.h", "tiling_*.h"), names_no_operator=True),
    Layer(
        ("simulator/src/*", "simulator/include/*"),
        (
            C_STD,
            *POSIX,
            "src/*",
            "include/ascend_sim*.h",
            "include/ascendc/*",
            "ascendc/*",
            "kernel_log.h",
            "kernel_operator.h",
        ),
        names_no_operator=True,
    ),
    Layer(
        ("simulator/tests/*", "simulator/examples/*"),
        (
            C_STD,
            "dlfcn.h",
            "sys/wait.h",  # the tests of forks
            "unistd.h",
            "simulator/tests/*",
            "simulator/examples/*",
            "../row_copy/*",  # the place in CANN's build, which the simulator lays out
            "cann/host/*",
            "acl/*",
            "aclnn/*",
            "aclnnop/*",
            "hccl/*",
            "src/*",
            "include/ascend_sim*.h",
            *ASCENDC,
            *ASCENDC_PARTS,
            *CANN_OPERATORS,
        ),
        names_no_operator=True,
    ),
    Layer(
        ("csrc/cpu/*",),
        (
            C_STD,
            "omp.h",
            "pthread.h",
            "cpuid.h",
            "immintrin.h",
            "arm_neon.h",
            "csrc/cpu/*",
            "csrc/core/*",
            "include/npu_rope.h",
        ),
    ),
    # Code inside another project's backend uses only the operator's own interface of this project.
    Layer(
        ("integrations/ggml_cann/*",),
        (C_STD, "acl/*", "aclnn/*", "aclnn_npu_*.h", "npu_rope_ggml*.h", "ggml_tensor.h", "ggml-impl.h"),
    ),
    # csrc/capi/check.cpp judges a call for a chip, as its tiling does.
    Layer(
        ("csrc/capi/*",),
        (C_STD, "csrc/capi/*", "csrc/cpu/*", "csrc/core/*", *TILING, "include/npu_rope.h"),
    ),
    Layer(
        ("csrc/torch/*",),
        (
            C_STD,
            "torch/csrc/stable/*",
            "torch/headeronly/*",
            "csrc/torch/*",
            "csrc/core/check.h",
            "csrc/core/rms_norm_dims.h",  # for tensors with more dimensions than the C interface has
            "csrc/core/packed_attributes.h",  # the bytes that native.py packs
            "include/npu_rope.h",
        ),
        never=(r"\b(?:at|c10)::",),
    ),
    Layer(
        ("csrc/npu/*",),
        (
            C_STD,
            "dlfcn.h",
            "elf.h",
            "torch/*",
            "ATen/*",
            "c10/*",
            "torch_npu/*",
            "acl/*",
            "aclnn*",
            "op_plugin/*",
            "csrc/npu/*",
            "csrc/core/*",
            "op_host/*",
            "include/npu_rope.h",
        ),
    ),
)

PY_STD = "<std>"
PACKAGE = "npu_rope"
PACKAGES = (PACKAGE, "simulator/ascend_sim")
# Modules that may import the standard library, NumPy, each other, dtypes, errors and the reference.
PLAIN = (
    "npu_rope.cann_versions",
    "npu_rope.chips",
    "npu_rope.operator_package",
    "npu_rope.values",
    "npu_rope.rope_attributes",
    "npu_rope.params",
    "npu_rope.call_tensors",
    "npu_rope.*_calls",
    "npu_rope.*_params",
    "npu_rope.gguf_header",
    "npu_rope.hf_config",
)
PURE = (*PLAIN, "npu_rope.dtypes", "npu_rope.errors")

PYTHON_LAYERS = (
    Layer(("npu_rope/testing/*", "npu_rope/cli/*", "npu_rope/bench/*", "npu_rope/hardware/*"), ("*",)),
    Layer(("npu_rope/__main__.py",), ("npu_rope.cli",)),
    # The package ascend_sim does not import npu_rope. Its startup/ runs in the user's process with
    # torch_npu, where ascend_sim may be missing.
    Layer(
        ("simulator/ascend_sim/programs/startup/*",),
        (PY_STD, "torch", *(f"ascend_sim_{name}" for name in ("atb", "generators", "stream_work", "types"))),
    ),
    Layer(
        ("simulator/ascend_sim/cli/*", "simulator/ascend_sim/timeline*.py"),
        (PY_STD, "numpy", "typer", "rich", "ascend_sim", "ascend_sim.*"),
        functions_may_import=("ml_dtypes", "matplotlib*"),
    ),
    Layer(
        ("simulator/ascend_sim/*",),
        (PY_STD, "numpy", "ascend_sim", "ascend_sim.*"),
        functions_may_import=("elftools.*",),  # from the extra "run"
    ),
    Layer(("npu_rope/reference/*",), (PY_STD, "numpy", "npu_rope.reference", *PURE), never=("ctypes",)),
    Layer(
        tuple(f"{module.replace('.', '/')}.py" for module in PLAIN),
        (PY_STD, "numpy", "npu_rope.reference", *PURE),
        functions_may_import=("gguf", "transformers.*"),  # they may be absent
    ),
    Layer(("npu_rope/errors.py", "npu_rope/dtypes.py"), (PY_STD, "numpy")),
    Layer(("npu_rope/optional_torch.py",), (PY_STD, "torch", "torch_npu", "npu_rope.errors")),
    Layer(("npu_rope/native.py",), (PY_STD, "numpy", "ascend_sim.elf", "npu_rope", *PURE)),
    Layer(
        ("npu_rope/simulated_package.py",),
        (PY_STD, "ascend_sim", "ascend_sim.package", "npu_rope.native", "npu_rope.errors"),
    ),
    Layer(("npu_rope/simulator.py", "npu_rope/native_sim.py"), (PY_STD, "ascend_sim")),  # old names
    Layer(
        ("npu_rope/ops/*",),
        (
            PY_STD,
            "ascend_sim.elf",
            "npu_rope.ops",
            "npu_rope.optional_torch",
            "npu_rope.backends",
            *PURE,
            "npu_rope.executors",
        ),
        never=("ctypes",),
        functions_may_import=("torch.*",),  # torch itself may be absent: optional_torch has it or None
    ),
    Layer(
        ("npu_rope/executors/*", "npu_rope/backends.py"),
        (
            PY_STD,
            "numpy",
            "ascend_sim",
            "ascend_sim.library",
            "ascend_sim.package",
            *PURE,
            "npu_rope.native",
            "npu_rope.simulated_package",
            "npu_rope.backends",
            "npu_rope.dtypes",
            "npu_rope.optional_torch",
            "npu_rope.reference",
            "npu_rope.executors",
        ),
    ),
    Layer(
        ("npu_rope/compat/*",),
        # vllm: the sum over its ranks (compat/vllm_ascend.py), imported where it is called. numpy: its exact
        # comparison of the memory of two views (compat/torch_npu_cache_rules.py).
        (
            PY_STD,
            "vllm.distributed",
            "numpy",
            "npu_rope.compat",
            "npu_rope.ops",
            "npu_rope.optional_torch",
            "npu_rope.executors",
            *PURE,
        ),
    ),
    # Each module runs inside the software that it is named after. Besides tests, only bench imports one.
    Layer(
        ("npu_rope/integrations/*",),
        (PY_STD, "numpy", "torch", "onnx", "onnxscript", "npu_rope", "npu_rope.*"),
    ),
    Layer(("npu_rope/__init__.py",), (PY_STD, "ascend_sim", "npu_rope.*")),
)
