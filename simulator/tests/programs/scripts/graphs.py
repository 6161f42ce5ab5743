"""Capture and replay with the real torch_npu: torch.npu.NPUGraph on the simulated runtime."""

import json
import os
import tempfile

import torch
import torch_npu  # noqa: F401
from run_checks import run


def capture(work, *, stream=None):
    """Capture work() after the warm-up that torch requires; return the graph and the result of work()."""
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        work()
    torch.npu.current_stream().wait_stream(side)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=stream):
        result = work()
    return graph, result


def as_list(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def new_contents(inputs, generator):
    """Random tensors like the inputs. Integers are a permutation, so that they stay indices of rows."""
    return [
        torch.randn(x.shape, generator=generator).to(x.dtype)
        if x.is_floating_point()
        else torch.randperm(x.numel(), generator=generator).view(x.shape).to(x.dtype)
        for x in inputs
    ]


def results_and_inputs(call, inputs, contents):
    """The results of call() for these contents, and the inputs after the call."""
    for x, value in zip(inputs, contents, strict=True):
        x.copy_(value)
    return [x.cpu() for x in (*as_list(call()), *inputs)]


def assert_replays_equal_calls(work, inputs, count=100):
    """Check that `count` replays, each with new contents, give the results of direct calls."""
    graph, result = capture(work)
    generator = torch.Generator().manual_seed(count)

    def replay():
        graph.replay()
        return result

    for replay_number in range(count):
        contents = new_contents(inputs, generator)
        replayed, called = (results_and_inputs(call, inputs, contents) for call in (replay, work))
        assert all(map(torch.equal, replayed, called)), replay_number


# ---- torch's operators -------------------------------------------------------------------------------


def check_stand_ins():
    a, b = torch.randn(6, 8).npu(), torch.randn(8).npu()

    def work():
        c = (a + b) * 2 - a / 3
        c.neg_()
        d = torch.zeros_like(c)
        d[1:].copy_(c[:-1])
        d.add_((a > b).to(torch.float32))
        return d, c.to(torch.float16)

    assert_replays_equal_calls(work, [a, b])


def check_host_fallbacks():
    a, b = torch.randn(6, 8).npu(), torch.randn(8, 4).npu()

    def work():
        c = (a @ b).softmax(-1)
        d = torch.cat([c, c.sigmoid()])
        d.clamp_(0.1, 0.6)
        return d.sum(0), d.t().contiguous(), *torch.topk(d, 2)

    assert_replays_equal_calls(work, [a, b], 20)


def check_integers_that_the_graph_computes():
    """Their contents are undefined during the capture: they are no valid indices, and may be 0."""
    start, rows, table = torch.arange(6).npu(), torch.randn(2, 4).npu(), torch.randn(9, 4).npu()

    def work():
        index = torch.arange(2, device="npu") + start[:1]
        cache = torch.zeros(9, 4, device="npu")
        cache.index_copy_(0, index, rows)
        cache[index + 1] += rows[0]
        return (
            cache,
            torch.nn.functional.embedding(index, table),
            table.gather(0, index.view(2, 1)),
            9 // (index + 1),
        )

    assert_replays_equal_calls(work, [start, rows, table], 20)


def check_a_replay_on_another_stream():
    x = torch.ones(64).npu()
    graph, y = capture(lambda: x * 3)
    other = torch.npu.Stream()
    x.fill_(5)
    other.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(other):
        graph.replay()
    torch.npu.current_stream().wait_stream(other)
    assert y.cpu().unique().tolist() == [15.0]


def check_two_streams_in_one_graph():
    x = torch.ones(64).npu()
    side = torch.npu.Stream()

    def work():
        here = torch.npu.current_stream()
        y = x * 3
        side.wait_stream(here)
        with torch.npu.stream(side):
            z = y + 1
        w = y * 2
        here.wait_stream(side)
        return z + w

    graph, result = capture(work)
    for value in range(5):
        x.fill_(value)
        graph.replay()
        assert result.cpu().unique().tolist() == [9.0 * value + 1]


def check_make_graphed_callables():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).npu()
    graphed = torch.npu.make_graphed_callables(layer, (torch.randn(3, 8, requires_grad=True).npu(),))
    plain = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    plain.load_state_dict({name: value.cpu() for name, value in layer.state_dict().items()})
    for seed in range(5):
        x = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed))
        for model, model_input in ((graphed, x.npu()), (plain, x)):
            model.zero_grad()
            model(model_input).square().sum().backward()
        for on_npu, on_cpu in zip(graphed.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(on_npu.grad.cpu(), on_cpu.grad)


def check_npugraph_ex():
    """torch.compile with the backend of torch_npu's wheel that captures and replays."""
    compiled = torch.compile(lambda x: (x * 2 + 1).sin(), backend="npugraph_ex")
    x = torch.ones(8).npu()
    for value in (1.0, 2.0, 5.0):
        x.fill_(value)
        expected = torch.full((8,), 2 * value + 1).sin()
        torch.testing.assert_close(compiled(x).cpu(), expected)


def check_the_graph_is_written_as_a_trace():
    x = torch.ones(8).npu()
    graph, _ = capture(lambda: (x * 2).exp())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.json")
        graph.debug_dump(path)
        with open(path) as trace:
            names = [event["name"] for event in json.load(trace)]
    assert names == ["aclnnMuls", "aten.exp.default"]


def check_pinned_memory_is_read_at_each_replay():
    x, host = torch.ones(4).npu(), torch.ones(4).pin_memory()
    graph, _ = capture(lambda: x.copy_(host, non_blocking=True))
    for value in (3.0, 5.0):
        host.fill_(value)
        graph.replay()
        assert x.cpu().tolist() == [value] * 4


# ---- task groups -------------------------------------------------------------------------------------


def check_a_task_group_is_updated():
    x, y, out = torch.full((4,), 2.0).npu(), torch.full((4,), 7.0).npu(), torch.zeros(4).npu()
    torch.npu.synchronize()
    stream, graph = torch.npu.Stream(), torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=stream):
        torch.npu.graph_task_group_begin(stream)
        out.copy_(x)
        handle = torch.npu.graph_task_group_end(stream)
    graph.replay()
    assert out.cpu().tolist() == [2.0] * 4
    update = torch.npu.Stream()
    with torch.npu.stream(update):
        torch.npu.graph_task_update_begin(update, handle)
        out.copy_(y)
        torch.npu.graph_task_update_end(update)
    torch.npu.synchronize()
    assert out.cpu().tolist() == [2.0] * 4
    graph.replay()
    assert out.cpu().tolist() == [7.0] * 4


if __name__ == "__main__":
    run(globals())
