"""What vLLM's server is started with.

Owns its flags and its environment, and the defaults that follow from the GPU. Pure. One idea: every flag that the
interface depends on is set here and may not be passed by hand, everything else may.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtimes.gpus import Gpu
from runtimes.interface.settings import KEEP_ALIVE_S
from runtimes.selection import LOADED_FACTOR, SEQUENCES_CPU, SEQUENCES_GPU
from runtimes.vllm.group import ALONE, Place
from runtimes.vllm.model import Served, UnservableError
from runtimes.vllm.settings import VllmSettings

MIDDLEWARE = "runtimes.vllm.middleware.Inside"
# Our own drain comes first, so nothing is in flight when vLLM ends; this only makes sure that it never aborts.
SHUTDOWN_S = 5
MASTER_PORT = 29500  # of the leader, where the processes of all nodes find each other
OWNED = frozenset(
    {
        "--api-key",
        "--distributed-executor-backend",
        "--headless",
        "--host",
        "--lora-modules",
        "--master-addr",
        "--master-port",
        "--middleware",
        "--model",
        "--nnodes",
        "--node-rank",
        "--pipeline-parallel-size",
        "--port",
        "--root-path",
        "--served-model-name",
        "--shutdown-timeout",
        "--ssl-certfile",
        "--ssl-keyfile",
        "--tensor-parallel-size",
        "--tokenizer",
        "--uds",
    }
)
_GIB = 1 << 30
_SMALL_GPU_BYTES = 25 * _GIB
_BFLOAT16_FROM = 8.0  # compute capability
_CACHE_BYTES = _GIB  # of keys and values without a GPU; more where the pod has more memory than it is planned with
_PROCESSES_BYTES = 4 * _GIB  # three processes of vLLM, and the files that they have read, which count as the pod's
_COMPILED_BY_NOBODY = '{"mode": "STOCK_TORCH_COMPILE", "cudagraph_mode": "NONE", "custom_ops": ["all"]}'
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has kernels for


def sequences(settings: VllmSettings, gpus: Sequence[Gpu]) -> int:
    """How many requests generate at once: as stated, else what a replica with or without a GPU is planned with."""
    return settings.max_num_seqs or (SEQUENCES_GPU if gpus else SEQUENCES_CPU)


def prefix_cache(settings: VllmSettings, served: Served) -> bool | None:
    """On for what generates, on every GPU and without one: it takes only memory that is free. Else vLLM knows best."""
    if settings.prefix_cache is not None or served.pools:
        return settings.prefix_cache
    return True


def adapters_at_once(settings: VllmSettings, gpus: Sequence[Gpu]) -> int:
    """Adapters in one batch, each of which takes memory from the cache: 2 without a GPU, 4 below 25 GiB, else 16."""
    most = 2 if not gpus else 4 if _least_memory(gpus) < _SMALL_GPU_BYTES else 16
    return min(most, len(settings.adapters))


def cache_bytes(memory_limit: int | None, weights_bytes: int) -> int:
    """Memory for keys and values without a GPU. By itself vLLM would take nearly all that its pod has, for one of its
    three processes. 5 GiB and small weights: 1 GiB."""
    if memory_limit is None:
        return _CACHE_BYTES
    left = memory_limit - _PROCESSES_BYTES - LOADED_FACTOR * weights_bytes
    return max(_CACHE_BYTES // 4, left)


def flags(
    settings: VllmSettings,
    served: Served,
    gpus: Sequence[Gpu],
    ranks: Sequence[int] = (),
    cache_bytes: int = _CACHE_BYTES,
    place: Place = ALONE,
) -> list[str]:
    """All flags of `vllm serve`; UnservableError where they can't go together. ``ranks`` are the adapters',
    ``cache_bytes`` counts without a GPU, ``place`` is this node's among those of the replica."""
    _check(settings, gpus, place)
    stated: dict[str, object] = {
        "--model": served.weights,
        "--tokenizer": served.tokenizer,
        "--served-model-name": settings.name,
        "--middleware": MIDDLEWARE,
        "--shutdown-timeout": SHUTDOWN_S,
        "--max-num-seqs": sequences(settings, gpus),
        "--tensor-parallel-size": settings.tensor_parallel,
        "--logging-config.formatter": "json",
    }
    optional = {"--max-model-len": settings.max_model_len, "--chat-template": settings.chat_template}
    stated |= {flag: value for flag, value in optional.items() if value is not None}
    if served.pools:
        stated |= {"--runner": "pooling"}
    if settings.max_output_tokens is not None:
        stated["--override-generation-config"] = f'{{"max_new_tokens": {settings.max_output_tokens}}}'
    if gpus and any(gpu.capability < _BFLOAT16_FROM for gpu in gpus):
        stated["--dtype"] = "half"
    words = [word for flag, value in stated.items() for word in (flag, str(value))]
    words += ["--disable-uvicorn-access-log", "--disable-fastapi-docs"]
    if (kept := prefix_cache(settings, served)) is not None:
        words.append("--enable-prefix-caching" if kept else "--no-enable-prefix-caching")
    if not gpus:
        words += [*_uncompiled(place), "--kv-cache-memory-bytes", str(cache_bytes)]
    return [*words, *_spread(place), *_adapters(settings, gpus, ranks), *settings.own_flags]


def _uncompiled(place: Place) -> list[str]:
    """Compiling for a CPU takes minutes and a compiler in the image. Several nodes hand tensors on in room that only
    vLLM's warm-up makes, which it leaves out where nothing was to be compiled: there it is told to, with the kernels of
    what is not compiled, and `environment` keeps it from doing so."""
    return ["--enforce-eager"] if place.size == 1 else ["--compilation-config", _COMPILED_BY_NOBODY]


def _spread(place: Place) -> list[str]:
    """Each node holds some of the layers, whole, so that little is passed on between two of them."""
    if place.size == 1:
        return []
    stated = {
        "--distributed-executor-backend": "mp",
        "--pipeline-parallel-size": place.size,
        "--nnodes": place.size,
        "--node-rank": place.index,
        "--master-addr": place.leader,
        "--master-port": MASTER_PORT,
    }
    words = [word for flag, value in stated.items() for word in (flag, str(value))]
    return words if place.leads else [*words, "--headless"]


def environment(settings: VllmSettings, scratch: Path, gpus: Sequence[Gpu], cores: int = 1) -> dict[str, str]:
    """Of vLLM's processes: nothing is sent to anybody, nothing is written but below ``scratch``. ``cores`` is the CPU
    quota, whole."""
    folder = str(scratch)
    return ({} if gpus else _without_gpus(cores)) | {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": folder,
        "VLLM_CACHE_ROOT": folder,
        "VLLM_CONFIG_ROOT": folder,
        "XDG_CACHE_HOME": folder,
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TRITON_CACHE_DIR": folder,
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_S),
        "VLLM_MAX_N_SEQUENCES": str(sequences(settings, gpus)),  # answers to one request can't be more than run at once
    }


def _without_gpus(cores: int) -> dict[str, str]:
    """No compiler is there either, and the first request that needs one would end the engine. vLLM would bind its
    threads to the node's first cores, which every pod's would share, whatever their quotas; one core is left for what
    schedules and answers."""
    threads = str(max(1, cores - 1))
    return {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": threads}


def _check(settings: VllmSettings, gpus: Sequence[Gpu], place: Place) -> None:
    taken = sorted({flag.partition("=")[0] for flag in settings.own_flags} & OWNED)
    if taken:
        raise UnservableError(f"set by this runtime and not to be passed to vLLM: {', '.join(taken)}")
    if settings.adapters and not gpus and place.size > 1:
        raise UnservableError("vLLM has no adapters on several nodes without GPUs: leave out --adapter or --nodes")
    if gpus and settings.tensor_parallel > len(gpus):
        raise UnservableError(
            f"--tensor-parallel {settings.tensor_parallel} needs as many GPUs, and this pod has {len(gpus)}"
        )


def _adapters(settings: VllmSettings, gpus: Sequence[Gpu], ranks: Sequence[int]) -> list[str]:
    if not settings.adapters:
        return []
    rank = next((known for known in _RANKS if known >= max(ranks)), None)
    if rank is None:
        raise UnservableError(f"the adapters' rank {max(ranks)} is above {_RANKS[-1]}, the largest that vLLM takes")
    words = ["--enable-lora", "--max-loras", str(adapters_at_once(settings, gpus)), "--max-lora-rank", str(rank)]
    return [*words, "--lora-modules", *(f"{adapter.name}={adapter.folder}" for adapter in settings.adapters)]


def _least_memory(gpus: Sequence[Gpu]) -> int:
    return min(gpu.memory_bytes for gpu in gpus)
