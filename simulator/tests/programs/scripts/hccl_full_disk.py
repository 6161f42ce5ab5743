"""Two ranks of HCCL whose shared files have no room. Prints the status and the text of each call as JSON.

usage: hccl_full_disk.py LIBRARY
"""

import ctypes as C
import json

import numpy as np
from hccl_ranks import CANN, FLOAT32, OK, Rank, error_text, on_device, set_device

found = {}
comms = (C.c_void_p * 2)()
set_device(0)
found["join"] = CANN.HcclCommInitAll(2, (C.c_int32 * 2)(0, 1), comms), error_text()
if found["join"][0] == OK:
    ranks, tensors = [], []
    for device in range(2):
        set_device(device)
        ranks.append(Rank(device, 2, C.c_void_p(comms[device]), device))
        tensors.append(on_device(np.ones(8, np.float32)))
    count = C.c_uint64(8)
    for rank, (name, call) in enumerate((("send", "HcclSend"), ("receive", "HcclRecv"))):
        set_device(rank)
        found[name] = ranks[rank].call(call, tensors[rank], count, FLOAT32, 1 - rank), error_text()
    for rank, name in enumerate(("sender", "receiver")):
        set_device(rank)
        found[f"wait of the {name}"] = ranks[rank].synchronize(), error_text()
    for rank in ranks:
        set_device(rank.device)
        assert CANN.HcclCommDestroy(rank.comm) == OK
print(json.dumps(found))
