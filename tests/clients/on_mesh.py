"""What the ranks of a job do in tests of Hugging Face's models under a mesh; each test starts it once, for all models.

`shared(2, "files", {...})` calls the function of that name here on two ranks, and returns what it returned on each.
"""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "python")]

import torch  # noqa: E402
import transformers  # noqa: E402
from ranks import succeeds  # noqa: E402

import models  # noqa: E402

NAMES = ["qwen3_moe", "mixtral", "deepseek_v3", "olmoe", "gpt_oss"]
NAMES += models.known(models.OF_FIVE)
if "axk2" in transformers.CONFIG_MAPPING:  # of 5, and not in our table of patches: by the registry
    NAMES.append("axk2")


def made(name):
    if name in models.FAMILIES:
        return models.make(name)
    config = transformers.AutoConfig.for_model(name, **{**models.SMALL, **models.ROUTED, **models.LATENT})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    models.draw(model)
    return model.eval()


PROGRAM = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import on_mesh
    on_mesh.run(*sys.argv[2:])
"""


def shared(ranks, function, arguments, **variables):
    """By rank; results are what JSON can hold."""
    with tempfile.TemporaryDirectory() as folder:
        succeeds(ranks, PROGRAM, HERE, function, json.dumps(arguments), folder, seconds=600, **variables)
        return {rank: json.loads(Path(folder, str(rank)).read_text()) for rank in range(ranks)}


def run(function, arguments, results):
    import moeloom
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with moeloom.mesh(ep=int(os.environ.get("EP", os.environ["OMPI_COMM_WORLD_SIZE"]))) as mesh:
        result = globals()[function](mesh, **json.loads(arguments))
        Path(results, str(mesh.rank)).write_text(json.dumps(result))


# ---- files ----

def files(mesh, base):
    """Reads every family's folder by slices and saves it whole; what a rank holds is what it should."""
    from moeloom.loading import from_pretrained
    from moeloom.torch import save_pretrained
    from moeloom.torch._shares import placed
    found = {}
    for name in NAMES:
        source = Path(base, name)
        whole, _ = models.load(source)
        model = from_pretrained(source, mesh, dtype=torch.float32, attn_implementation="eager")
        state, where = whole.state_dict(), placed(model)
        for key, tensor in model.state_dict().items():
            wanted = state[key]
            if key in where and where[key].stacked:
                share = where[key].share
                wanted = wanted[share.begin:share.begin + share.count]
            assert torch.equal(tensor, wanted), f"{name}: {key}"
        assert where and type(model) is type(whole) and not model.training
        ids = torch.tensor([models.IDS[mesh.rank:]])  # others on each rank
        with torch.no_grad():
            far = (model(input_ids=ids).logits - whole(input_ids=ids).logits).abs().max().item()
        assert far < 1e-5, f"{name}: logits differ by {far}"
        assert not [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]
        assert model.config._name_or_path == str(source)
        save_pretrained(model, Path(base, f"{name}-out"), mesh)
        try:
            model.save_pretrained(Path(base, "never"))
        except ValueError as error:
            assert "save_pretrained(model, folder, mesh)" in str(error)
            found[name] = [parameter.numel() for parameter in model.parameters()]
    return found


def _io():
    return {line.split(": ")[0]: int(line.split(": ")[1]) for line in Path("/proc/self/io").read_text().splitlines()}


def _peak():
    """Kilobytes; from here on if clear_refs was written."""
    status = Path("/proc/self/status").read_text()
    return {key: int(status.split(f"{key}:")[1].split()[0]) for key in ("VmHWM", "VmRSS")}


def measure(mesh, folder, out):
    """Megabytes read, and held at most beyond what the process had, while a model is loaded and while it is saved."""
    from moeloom.loading import from_pretrained
    from moeloom.torch import save_pretrained
    found = {}

    def measured(word, action):
        Path("/proc/self/clear_refs").write_text("5")
        read, held = _io()["rchar"], _peak()["VmRSS"]
        result = action()
        found[word] = {"read": (_io()["rchar"] - read) / 1e6, "held": (_peak()["VmHWM"] - held) * 1024 / 1e6}
        return result
    from_pretrained(Path(folder).parent / "qwen3_moe", mesh)  # modules that are imported at the first
    model = measured("load", lambda: from_pretrained(folder, mesh, dtype=torch.float32))
    measured("save", lambda: save_pretrained(model, out, mesh))
    found["own"] = sum(parameter.numel() for parameter in model.parameters()) * 4 / 1e6
    return found


def refusals(mesh, base):
    """What from_pretrained says of folders that it cannot share."""
    from moeloom.loading import from_pretrained
    said = {}
    for name in ("missing", "llama", "one-expert", "quantized", "cut"):
        try:
            model = from_pretrained(Path(base, name), mesh)
            said[name] = type(model).__name__
        except Exception as error:  # pylint: disable=broad-except
            said[name] = f"{type(error).__name__}: {error}"
    return said


# ---- Trainer ----

def train(mesh, base, port):
    import on_mesh_trainer
    return on_mesh_trainer.on_ranks(mesh, base, port)
