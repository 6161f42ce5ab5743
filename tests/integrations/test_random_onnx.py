"""Some of the models of tests/fuzz/random_onnx.py, and its judge's verdicts on correct and wrong results."""

from __future__ import annotations

import numpy as np
import pytest
import random_onnx

from npu_rope.integrations import onnx_backend


@pytest.mark.peer
def test_300_models_have_no_unexplained_disagreement(capsys):
    assert random_onnx.main(["--count", "300", "--seed", "11"]) == 0
    output = capsys.readouterr().out
    assert "OK: 300 models, 0 unexplained disagreements" in output
    assert "onnxruntime refuses" in output


@pytest.mark.peer
@pytest.mark.parametrize("implementation", ["cpu", "onnxruntime", "ReferenceEvaluator"])
def test_a_wrong_result_is_a_disagreement(implementation, monkeypatch, capsys):
    def shifted(y):
        y = np.array(y)
        y.flat[0] += 0.01
        return y

    if implementation == "cpu":
        original = onnx_backend.run_model
        monkeypatch.setattr(onnx_backend, "run_model", lambda *a, **k: (shifted(original(*a, **k)[0]),))
    elif implementation == "onnxruntime":
        original = random_onnx._by_onnxruntime
        monkeypatch.setattr(random_onnx, "_by_onnxruntime", lambda case: shifted(original(case)))
    else:
        evaluator = random_onnx.ReferenceEvaluator

        class Wrong:
            def __init__(self, model):
                self.original = evaluator(model)

            def run(self, *arguments):
                return [shifted(self.original.run(*arguments)[0])]

        monkeypatch.setattr(random_onnx, "ReferenceEvaluator", Wrong)
    assert random_onnx.main(["--count", "5", "--dtype", "float32"]) == 1
    assert f"{implementation}: " in capsys.readouterr().out


@pytest.mark.peer
def test_a_new_refusal_is_a_disagreement(monkeypatch, capsys):
    def refuse(case):
        raise RuntimeError("an unknown reason")

    monkeypatch.setattr(random_onnx, "_by_onnxruntime", refuse)
    assert random_onnx.main(["--count", "2", "--dtype", "float32"]) == 1
    assert "onnxruntime refuses: an unknown reason" in capsys.readouterr().out


@pytest.mark.peer
def test_one_model_is_repeated_and_described(capsys):
    assert random_onnx.main(["--only", "29"]) == 0
    assert random_onnx.draw(0, 29).text in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("bad", [["--count", "0"], ["--only", "-1"], ["--dtype", "float8"], ["--coun", "3"]])
def test_bad_usage_ends_with_2(bad, capsys):
    with pytest.raises(SystemExit) as stopped:
        random_onnx.main(bad)
    assert stopped.value.code == 2


def test_the_same_seed_draws_the_same_model():
    first, again, other = (random_onnx.draw(seed, 3) for seed in (0, 0, 1))
    assert first.model.SerializeToString() == again.model.SerializeToString()
    pairs = zip(first.inputs.values(), again.inputs.values(), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)
    assert first.text != other.text
