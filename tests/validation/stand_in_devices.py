"""Run ggml's worker with stand-ins for missing devices. Each is a copy of ggml's CPU device.

    python stand_in_devices.py FOLDER THREADS DEVICE

CANN0 and CANN310P refuse the nodes that ggml's CANN backend refuses (supports_op, ggml d99724f) and compute
the others correctly. FLOAT0 computes angles in float32, except in calls with a cache. SHIFT0 adds 1 to all
positions. STALE0 rotates a call by the frequencies of the one before it if both have the same freq_base,
also in a sequence. ODD0 is wrong in every second process; the file that ODD_FILE names has a byte for each
process. ABORT0 prints as CANN does, and aborts in mode imrope. FREES0 does so in a graph with two values of
freq_scale, as if the table of the first call had been freed.
"""

import ctypes as C
import os
import sys
from dataclasses import replace

import numpy as np

from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing import ggml_graph, ggml_worker

REFUSING = ("CANN0", "CANN310P")
WRONG = ("FLOAT0", "SHIFT0", "STALE0", "ODD0", "ABORT0", "FREES0")
NAME = C.CFUNCTYPE(C.c_char_p, C.c_void_p)
START = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_char_p)
SUPPORTS = C.CFUNCTYPE(C.c_bool, C.c_void_p, C.c_void_p)
# Words of ggml_backend_device: its functions, then its registry and context.
WORDS, GET_NAME, INIT_BACKEND, SUPPORTS_OP = 24, 0, 5, 9
BACKEND_WORDS = 40
references = []  # objects that ggml's pointers need


def _numbers(tensor, offset, kind, count):
    return list((kind * count).from_address(tensor + offset))


def _supports(on_310p, describe):
    def supports(device, tensor):
        op = describe(tensor).decode()
        if op != "ROPE":
            return op in ("VIEW", "SET_ROWS", "NONE")
        parameters = _numbers(tensor, 84, C.c_int32, 16)  # op_params
        (x,) = _numbers(tensor, 152, C.c_void_p, 1)  # src[0]
        sizes, strides = _numbers(x, 16, C.c_int64, 4), _numbers(x, 48, C.c_size_t, 4)
        if parameters[15] != 0 or sizes[0] > 896:
            return False
        contiguous = strides[1] == sizes[0] * strides[0] and strides[2] == sizes[1] * strides[1]
        return not on_310p or (sizes[0] == parameters[1] and contiguous)

    return supports


def _stand_in(name, cpu, describe):
    """Return a copy of the CPU's device with this name and this device's limits."""
    device = (C.c_void_p * WORDS).from_buffer_copy((C.c_void_p * WORDS).from_address(cpu))
    start_cpu = START(device[INIT_BACKEND])

    def start(this, parameters):
        backend = start_cpu(cpu, parameters)
        words = (C.c_void_p * BACKEND_WORDS).from_address(backend)
        words[list(words).index(cpu)] = C.addressof(device)  # the backend calls its device
        return backend

    functions = {GET_NAME: NAME(lambda _: name.encode()), INIT_BACKEND: START(start)}
    if name in REFUSING:
        functions[SUPPORTS_OP] = SUPPORTS(_supports(name == "CANN310P", describe))
    for word, function in functions.items():
        device[word] = C.cast(function, C.c_void_p).value
    references.extend([device, start_cpu, *functions.values()])
    return device


def _abort():
    """End the process as CANN does: one library writes to C's stdout, another one to stderr."""
    C.CDLL(None).printf(b"EZ9999: Inner Error!\n        The block dimension must be at least 1 but got 0\n")
    for line in ("CANN error: EZ9999: Inner Error!", "  current device: 0, in function aclnn_rope"):
        print(line, file=sys.stderr)
    print("ggml-cann.cpp:70: CANN error", file=sys.stderr, flush=True)
    os.abort()


def _is_odd_process():
    with open(os.environ["ODD_FILE"], "ab") as file:
        file.write(b".")
    return os.path.getsize(os.environ["ODD_FILE"]) % 2


class StandInGgml(ggml_worker.Ggml):
    last_params = None
    is_odd = None

    def open_devices(self, build):
        devices = super().open_devices(build)
        register = devices.library.ggml_backend_device_register
        register.restype, register.argtypes = None, [C.c_void_p]
        cpu = devices.call["ggml_backend_dev_by_name"](b"CPU")
        for name in (*REFUSING, *WRONG):
            register(C.addressof(_stand_in(name, cpu, self.base["ggml_op_desc"])))
        return devices

    def rope(self, call):
        if self.device == "FLOAT0" and call.cache is None:
            x = ggml_graph.view(np.ascontiguousarray(call.parent), call)
            params = replace(call.params, n_ctx_orig=call.n_ctx_orig or int(call.params.ext_factor != 0))
            rotated = reference.rope(
                x, call.positions, params, call.freq_factors, forward=call.forward, angle="f32"
            )
            return rotated.astype(x.dtype)
        if self.device == "ODD0" and self.is_odd is None:
            self.is_odd = _is_odd_process()
        if self.device == "SHIFT0" or self.is_odd:
            call = replace(call, positions=call.positions + 1)
        if self.device == "ABORT0" and call.params.rope_mode is RopeMode.IMROPE:
            _abort()
        return super().rope(self._stale(call) if self.device == "STALE0" else call)

    def _stale(self, call):
        last, self.last_params = self.last_params, call.params
        if last is not None and last.freq_base == call.params.freq_base:
            call = replace(call, params=replace(call.params, freq_scale=last.freq_scale))
            self.last_params = last
        return call

    def sequence(self, steps, device=""):
        of_device = device or self.device
        for i, step in enumerate(steps):
            if step.start == "backend":
                self.last_params = None
            scales = {other.call.params.freq_scale for other in steps[max(0, i - 1) : i + 1]}
            if of_device == "FREES0" and step.start == "node" and len(scales) > 1:
                _abort()
            if of_device == "STALE0":
                steps[i] = replace(step, call=self._stale(step.call))
        return super().sequence(steps, device)


if __name__ == "__main__":
    ggml_worker.Ggml = StandInGgml
    ggml_worker.main()
