"""Hugging Face's Trainer on two ranks that share the experts, beside one process with the whole batch."""

import json
import socket

import pytest
import safetensors.torch

import models
import on_mesh_trainer
import patched  # noqa: F401  (finds the package, or skips)
from on_mesh import shared
from on_mesh_trainer import BESIDE_DDP, RUNS


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "results.json").write_text(json.dumps(shared(2, "train", {"base": str(folder), "port": port})))
    return folder


@pytest.fixture(scope="module")
def results(base):
    return list(json.loads((base / "results.json").read_text()).values())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Runs of one process, and the model that each made."""
    made = {}

    def run(name):
        if name not in made:
            model = on_mesh_trainer.made(name)
            made[name] = on_mesh_trainer.trained(on_mesh_trainer.trainer(
                model, tmp_path_factory.mktemp("alone"), 1, use_cpu=True, loss=on_mesh_trainer.loss_of(name),
                **RUNS[name])), model
        return made[name]
    return run


@pytest.mark.parametrize("name, word", [*((name, "mpi") for name in RUNS), *((name, "ddp") for name in BESIDE_DDP)])
def test_as_one_process(base, results, alone, name, word):
    wanted, model = alone(name)
    for found in (rank[f"{name}-{word}"] for rank in results):
        assert found["model"] == ("DistributedDataParallel" if word == "ddp" else type(model).__name__)
        assert found["norms"] == pytest.approx(wanted["norms"], rel=1e-5)
        # A sum's mean over ranks is half of the whole. transformers 4 rounds what it logs.
        share = 2 if name.endswith("sum") else 1
        assert [share * loss for loss in found["logged"]] == pytest.approx(wanted["logged"], abs=share * 1.1e-4)
        if word == "mpi":
            assert [share * loss for loss in found["losses"]] == pytest.approx(wanted["losses"], rel=1e-6)
    for key in ("norms", "logged", "eval"):
        assert results[0][f"{name}-{word}"][key] == results[1][f"{name}-{word}"][key]
    assert results[0][f"{name}-{word}"]["eval"] == pytest.approx(results[0][f"{name}-mpi"]["eval"], rel=1e-5)
    saved, complaints = models.load(base / f"{name}-{word}")
    assert not any(complaints.values())
    for key, tensor in model.state_dict().items():
        assert (saved.state_dict()[key] - tensor).abs().max() < 1e-5, key


def test_adapters_beside_shared_experts(base, results, tmp_path):
    """Trainer saves them as without ranks."""
    model = on_mesh_trainer.with_adapters(on_mesh_trainer.made("qwen3_moe"))
    wanted = on_mesh_trainer.trained(on_mesh_trainer.trainer(model, tmp_path, 1, use_cpu=True))
    model.save_pretrained(tmp_path)
    for found in (rank["lora"] for rank in results):
        assert found["losses"] == pytest.approx(wanted["losses"], rel=1e-6)
        assert found["norms"] == pytest.approx(wanted["norms"], rel=1e-5)
    got, mine = (safetensors.torch.load_file(folder / "adapter_model.safetensors")
                 for folder in (base / "lora", tmp_path))
    assert got.keys() == mine.keys() and len(got) == 8
    assert max((got[key] - mine[key]).abs().max() for key in mine) < 1e-5


def test_rows_that_do_not_divide(results):
    """Both ranks make as many steps, and of each batch other rows than the other."""
    one, other = (rank["uneven"] for rank in results)
    assert one["steps"] == other["steps"] == 12
    first = on_mesh_trainer.rows(21)
    seen = [token for batches in (one, other) for batch in batches["seen"][:6] for token in batch]
    assert len(seen) == 24 and sorted(set(seen)) == sorted({row["input_ids"][0] for row in first})


def test_the_loss_of_routers_counts_once(results):
    for routers in (rank["routers"] for rank in results):
        assert routers["got"] == pytest.approx(routers["wanted"], rel=1e-5)


def test_experts_that_are_shared_in_their_first_forward(results):
    for lazy in (rank["lazy"] for rank in results if rank["lazy"]):
        assert lazy["shared"] == 4 and lazy["before"] == 0
        assert "save_pretrained(model, folder, mesh)" in lazy["save"]
        assert 'experts_implementation="eager" would compute with this rank' in lazy["eager"]
        assert "on a stack of experts" in lazy["adapters"] and "on a stack of experts" in lazy["adapters, lazy"]


def test_says_what_trainer_may_not_do(results):
    for said in (rank["refused"] for rank in results):
        assert "max_grad_norm = 1.0" in said["clipping"] and "max_norm=1.0" in said["clipping"]
        assert 'save_strategy="no"' in said["checkpoints"] and "trainer.save_model" in said["checkpoints"]
        assert "Trainer(callbacks=[...])" in said["late"]
        assert 'unknown loss "total"; known: mean, sum' in said["loss"]
