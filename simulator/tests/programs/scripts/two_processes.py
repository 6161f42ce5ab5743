"""Two processes that a script spawns, each with its own tensors on the simulated NPU."""

import json
import multiprocessing

import torch


def work(number, results):
    x = torch.arange(2.0).npu() + number
    results.put(x.exp().log().cpu().round().tolist())


def main():
    torch.ones(1).npu()
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = [context.Process(target=work, args=(number, results)) for number in range(2)]
    for process in processes:
        process.start()
    found = sorted(results.get() for _ in processes)
    for process in processes:
        process.join()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
