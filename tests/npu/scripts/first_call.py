"""Call every operator of the namespace npu_rope as the first call of a process. No environment variable names
an operator package.

usage: first_call.py ORDER FOLDER

ORDER lists the modules to import. If torch_npu is not in the list, torch loads it
(TORCH_DEVICE_BACKEND_AUTOLOAD); npu_rope also imports torch. Every operator that torch lists in the
namespace is called in a separate process, which reports to FOLDER/<operator>. The script prints JSON: "ok"
or the error of each operator.
"""

import gc
import json
import os
import sys
import traceback

assert "ASCEND_CUSTOM_OPP_PATH" not in os.environ, "a variable names the package"
order, folder = sys.argv[1].split(","), sys.argv[2]
os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
loaded = set() if "torch_npu" in order else {"torch_npu"}
if not loaded:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
for module in order:
    __import__(module)
    loaded |= {module} - {"torch"}
    assert {"torch_npu", "npu_rope"} & sys.modules.keys() == loaded, order
from namespace import call, operands, operators  # noqa: E402
from run_checks import refusal  # noqa: E402

from npu_rope.ops.registrar import registered  # noqa: E402

REFUSED = {name for name, described in registered.items() if not described.on_npu}


def check(name, operator):
    """Call the operator on the NPU, then on the CPU, and compare. One of REFUSED must refuse NPU tensors."""
    if name in REFUSED:
        assert "must be on device cpu" in refusal(lambda: call(operator, operands(name, operator, "npu")))
        return
    on_npu, on_cpu = (call(operator, operands(name, operator, device)) for device in ("npu", "cpu"))
    assert len(on_npu) == len(on_cpu) > 0
    for got, expected in zip(on_npu, on_cpu, strict=True):
        assert got.device.type == "npu", got.device
        assert expected.abs().max() > 0
        assert (got.cpu() - expected).abs().max() < 1e-5


def check_in_fork(name, operator):
    """Run the check in a fork, whose state is that of a process that has only imported modules."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.environ["ASCEND_SIM_REPORT_DIR"] = os.path.join(folder, name)
        os.makedirs(os.environ["ASCEND_SIM_REPORT_DIR"])
        try:
            check(name, operator)
            message = "ok"
        except BaseException:
            message = traceback.format_exc()
        os.write(write_end, message.encode())
        sys.exit()
    os.close(write_end)
    with open(read_end) as stream:
        message = stream.read()
    _, status = os.waitpid(child, 0)
    return message if status == 0 else f"{message} (status {status})"


gc.freeze()  # so that the exit of a fork does not scan the imported objects
# In a fork this ends by sys.exit inside check_in_fork.
results = {name: check_in_fork(name, operator) for name, operator in operators().items()}
print(json.dumps(results))
