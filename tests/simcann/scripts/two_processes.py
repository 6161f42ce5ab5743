"""Two processes that a script spawns, each with tensors of its own on the simulated NPU."""

import json
import multiprocessing

import torch


def work(number):
    x = torch.arange(2.0).npu() + number
    return x.exp().log().cpu().round().tolist()


def main():
    torch.ones(1).npu()
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        print(json.dumps(pool.map(work, [0, 1], chunksize=1)))
        pool.close()
        pool.join()


if __name__ == "__main__":
    main()
