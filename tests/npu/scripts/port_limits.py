"""Call torch_npu's own functions with every case of suite torch_npu that breaks a limit.

For each case, the result has the limit, and the error of the call or "no error".
"""

import json

import torch

from npu_rope.testing import ports

found = {}
for case in ports.port_cases():
    if limit := ports.limit_of(case, torch.npu.get_device_name(0)):
        try:
            ports._run(case, ports.make_data(case), ports.PEER)
            found[case.name] = limit, "no error"
        except RuntimeError as error:
            found[case.name] = limit, str(error)
print(json.dumps(found))
