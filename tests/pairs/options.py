"""The options of `moeloom train` that the table of pairs combines, and which pairs are refused.

An option either asks for another training, or for the same one on another way (`same`): then weights and losses have
the same bits with and without it. Values are words of the command line; {work} is the folder of the runs.
"""
import dataclasses

ANY = None  # whatever value, if the option is there
ABSENT = ""


@dataclasses.dataclass(frozen=True)
class Option:
    name: str
    values: tuple
    same: bool = False
    unless: tuple = ()  # rules of options beside which it asks for another training after all


def holds(rule, row):
    """Whether a rule, {option: values}, holds of {option: value}: one of the values, ANY, or (ABSENT,)."""
    given = {name: row.get(name, ABSENT) for name in rule}
    return all(given[name] != ABSENT if values is ANY else given[name] in values for name, values in rule.items())


WHOLE, CORRECTED = "{work}/whole", "{work}/corrected"

# What src/LIMITS.md and --help say of the same bits. OpenBLAS, whose order of sums goes by the number of rows and of
# threads, multiplies in the loop.
LOOP = ({"kernels": ("none",)}, {"gmm-rule": ANY})
WIRE = ({"wire-dtype": ANY}, {"combine": ANY})
REPLICAS = tuple({"rebalance": ANY, **rule} for rule in LOOP)  # how many goes by what their weights cost to send
TREE = (*LOOP, *WIRE, {"row-budget": ANY}, {"gradients": ANY}, {"exact": (ABSENT,), "accumulate": ANY},
        {"exact": (ABSENT,), "mesh-order": ANY})

# Those that others need come first.
OPTIONS = (
    Option("model", (WHOLE, CORRECTED)),
    Option("lora", ("r=2,alpha=4,targets=attention,experts", "r=2,alpha=4,targets=all,dropout=0.1")),
    Option("data", ("{work}/talks.jsonl", "{work}/words.u16", "{work}/text.txt:1,{work}/talks.jsonl:2")),
    Option("exact", ("1", "2")),
    Option("accumulate", ("2",)),
    Option("router", ("expert-choice", "hash")),
    Option("tie-embeddings", ("true",)),
    Option("norm-topk", ("false",)),
    Option("dense-layers", ("0",)),
    Option("init-std", ("0.05",)),
    Option("combine", ("fast",)),
    Option("wire-dtype", ("bf16",)),
    Option("kernels", ("none", "fused_moe,tiled_dense")),
    Option("gmm-rule", ("upstream",)),
    Option("dtype", ("bf16",)),
    Option("optimizer", ("muon",)),
    Option("moments", ("bf16", "int8")),
    Option("masters", ("split", "bf16")),
    Option("gradients", ("bf16",)),
    Option("starved-experts", ("skip",)),
    Option("freeze", ("*gate.weight,*norm*",)),
    Option("router-dtype", ("fp64",)),
    Option("capacity-factor", ("0.7",)),
    Option("aux-loss-coef", ("0.1",)),
    Option("aux-loss", ("layer", "pooled")),
    Option("aux-loss-over", ("sequence", "global-batch")),
    Option("z-loss-coef", ("0.01",)),
    Option("router-bias-rate", ("0.01",)),
    Option("force-routing", ("zipf",)),
    Option("replay-routing", ("{work}/recorded",)),
    Option("max-grad-norm", ("0.01",)),
    Option("learn", ("all", "last")),
    Option("too-long", ("split", "drop")),
    Option("heldout", ("0.3",)),
    Option("row-budget", ("24",)),
    # The same training from here on.
    # In the environment: as if ranks were on so many nodes.
    Option("nodes", ("2",), True, (*WIRE, *REPLICAS)),
    Option("ep", ("2", "4"), True, TREE),
    Option("mesh-order", ("ep,dp",), True, ({"exact": (ABSENT,)},)),
    Option("dispatcher", ("alltoall", "shared", "hierarchical"), True, (*WIRE, *REPLICAS)),
    Option("rebalance", ("true",), True, (*LOOP, *WIRE)),
    Option("overlap", ("2",), True, (*WIRE, *REPLICAS)),
    Option("overlap-grad-reduce", ("on",), True),
    Option("overlap-param-gather", ("on",), True),
    Option("net", ("1Gbit,50us",), True, (*WIRE, *REPLICAS)),
    Option("threads", ("2",), True, LOOP),
    Option("recompute", ("experts", "block"), True),
    Option("memory", ("1GiB",), True),
    Option("shard-dense", ("true",), True, ({"accumulate": ANY},)),
    Option("offload", ("{work}/disk",), True, REPLICAS),
    Option("check-replicas", ("1",), True),
    Option("check-steps", ("1",), True),
    Option("on-nan", ("skip",), True),
    Option("cache", ("{work}/cache",), True),
    Option("save-every", ("1",), True),
    Option("save-minutes", ("0.0001",), True),
    Option("async-save", ("true", "false"), True),
    Option("keep", ("1",), True),
    Option("shard-size", ("20KB",), True),
    Option("export", ("{run}-export",), True),
    Option("export-dtype", ("bf16",), True),
    Option("eval-every", ("1",), True),
    Option("eval-sequences", ("3",), True),
    Option("sample-chars", ("5",), True),
    Option("trace", ("{run}.trace",), True),
    Option("trace-steps", ("0:2",), True),
    Option("record-routing", ("{run}.routing",), True),
    Option("record-steps", ("0:1",), True),
    Option("log-every", ("2",), True),
    Option("progress", ("on",), True),
    Option("stall-timeout", ("200",), True),
    # What is said in a file, and a run that was stopped and goes on.
    Option("config", ("{run}.conf",), True),
    Option("resume", ("{run}",), True),
)

CHOOSES_NOTHING = ("expert-choice", "hash")

# What the program does not take together; (ABSENT,): the other options need this one.
REFUSED = (
    *({"lora": ANY, name: ANY} for name in ("optimizer", "masters", "gradients", "freeze",
                                               "router-bias-rate")),
    {"lora": ANY, "model": (ABSENT,)},
    {"offload": ANY, "lora": (ABSENT,)},
    {"lora": ANY, "router": ("hash",)},
    {"rebalance": ANY, "ep": (ABSENT,)},
    # Here a run that goes on is one that gets more steps.
    {"resume": ANY, "record-routing": ANY, "record-steps": (ABSENT,)},
    *({"model": ANY, name: ANY} for name in ("tie-embeddings", "norm-topk", "dense-layers", "init-std")),
    {"model": (CORRECTED,), "z-loss-coef": ANY},
    {"model": (CORRECTED,), "router": ("expert-choice",)},
    {"model": (ABSENT, WHOLE), "router-bias-rate": ANY},
    *({"router": CHOOSES_NOTHING, name: ANY} for name in ("force-routing", "replay-routing", "aux-loss-coef")),
    {"force-routing": ANY, "replay-routing": ANY},
    {"router": ("expert-choice",), "capacity-factor": ANY},
    {"router": ("expert-choice",), "record-routing": ANY},
    *({"exact": ANY, "accumulate": ANY, name: ANY} for name in ("replay-routing", "record-routing")),
    *({"exact": ANY, name: ANY} for name in ("combine", "wire-dtype", "shard-dense", "gradients", "row-budget")),
    {"aux-loss": ("pooled",), "aux-loss-over": ("sequence",)},
    {"exact": ANY, "overlap-grad-reduce": ANY},
    {"exact": ANY, "kernels": ("none",)},
    {"exact": ANY, "gmm-rule": ANY},
    {"overlap-param-gather": ANY, "shard-dense": ANY},
    {"replay-routing": ANY, "dense-layers": ANY},
    {"wire-dtype": ANY, "dispatcher": ("shared",)},
    {"combine": ANY, "dispatcher": ("alltoall", "shared")},
    *({name: ANY, "dispatcher": ("hierarchical",), "nodes": (ABSENT,)} for name in ("wire-dtype", "combine")),
    {"nodes": ANY, "dispatcher": ("shared",)},
    {"kernels": ("fused_moe,tiled_dense",), "gmm-rule": ANY},
    {"export-dtype": ANY, "export": (ABSENT,)},
    {"trace-steps": ANY, "trace": (ABSENT,)},
    {"record-steps": ANY, "record-routing": (ABSENT,)},
)

# How a refusal names an option that it does not call by its flag.
SAID = {"aux-loss": "aux loss", "aux-loss-over": "no sequences", "dense-layers": "sparse layers",
        "gmm-rule": "GMM request", "kernels": "kernel fused_moe", "model": "deepseek_v3|qwen3_moe",
        "nodes": "lie on 2 nodes", "record-routing": "holds the routing",
        "replay-routing": "was recorded", "resume": "cannot go on with"}

# Options of the program that are not combined, and why.
LEFT_OUT = {
    "layers hidden inter dense-inter experts top-k heads kv-heads head-dim vocab tokenizer": "the model of all runs",
    "seq-len global-batch seed steps schedule-steps lr warmup run": "the training of all runs",
    "beta1 beta2 eps weight-decay final-lr-fraction rope-theta": "a number in a formula",
    "allow-missing ignore-keys data-format skip-bad": "what may be read, and as what",
    "dp overwrite prompt template gmm-budget allow-faults": "asks for nothing else in these runs",
    "epochs": "says how many steps, which are two here",
}

OF_NAME = {option.name: option for option in OPTIONS}


def changes_no_bit(name, row):
    return OF_NAME[name].same and not any(holds(rule, row) for rule in OF_NAME[name].unless)
