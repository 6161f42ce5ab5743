"""A Llama on several simulated NPUs, tensor parallel and context parallel, equals one on a single NPU."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "sharded_llama.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.mark.long
@pytest.mark.peer  # the script needs transformers
@pytest.mark.parametrize(
    ("size", "kinds"),
    [(2, ("tensor", "context")), pytest.param(4, ("tensor", "context"), marks=pytest.mark.slow)],
)
def test_ranks_give_the_loss_and_the_gradients_of_one_device(simulated, size, kinds):
    variables = {
        "ASCEND_SIM_DEVICES": str(size),
        "PYTORCH_NO_NPU_MEMORY_CACHING": "0",
        "OMP_NUM_THREADS": "1",
    }
    done = simulated.run(*TORCHRUN, str(size), SCRIPT, *kinds, fresh=True, **variables)
    differences = done.json()
    assert len(differences) == size
    assert all(set(of_rank) == set(kinds) for of_rank in differences), differences
    assert all(of_rank[kind] < 1e-5 for of_rank in differences for kind in kinds), differences
    assert done.report.is_clean, done.stderr
    launched = done.report.launches
    assert launched["NpuRopeQk"] >= 2 * size * len(kinds), launched
    assert launched["HcclAllReduce"] > 0
    assert launched["HcclAllGather"] > 0
