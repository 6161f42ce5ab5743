"""The simulator's llama.py, but npu_rope's operator rotates queries and keys.

usage: rope_llama.py npu
"""

import llama

import npu_rope

PARAMS = npu_rope.RopeParams(llama.HEAD_WIDTH, "neox")


def rotate(x, positions):
    """Rotate x of layout [B,N,S,D]. x and the result are transposed views of the operator's layout."""
    return npu_rope.rope(x.transpose(1, 2), positions, PARAMS).transpose(1, 2)


if __name__ == "__main__":
    llama.rotate = rotate
    llama.main()
