"""Starts the model server of a KubeAI Pod with the limits of its activation.

KubeAI's configuration makes this the command of every model server. The server's
own arguments are passed on; what the activation planned comes from the environment:

MAGICSTICK_ENGINE                VLLM (also when empty) or OLlama.
MAGICSTICK_COMPUTE_TARGET        nvidia-gpu (also when empty), amd-gpu, intel-gpu or cpu.
MAGICSTICK_GPU_DEVICE            Device that the server uses, the first of several; 0 when empty.
MAGICSTICK_VLLM_VRAM_LIMIT       GPU memory of the replica, such as 24062Mi, 5Gi or 4096 (MiB).
                                 Empty: the server's arguments say how much it takes.
MAGICSTICK_VLLM_CPU_OFFLOAD_MI   Weights of the replica to keep in RAM, in MiB. Empty: the
                                 server's arguments decide.

Exit code 2 and one line on standard error: nothing was started. Only the standard
library is used; whatever asks a GPU runs in a process of its own, so that the
server finds the device untouched.
"""

import json
import os
import re
import shutil
import subprocess
import sys

MIB = 1 << 20

# Shares of a device outside of these leave no room for the server itself, or none
# for the driver.
LEAST_SHARE, LARGEST_SHARE = 0.05, 0.98

# Seconds that a tool may take to answer. The first import of torch is slow.
TOOL_TIMEOUT = 120

UTILIZATION, OFFLOAD = "gpu-memory-utilization", "cpu-offload-gb"

TARGETS = ("nvidia-gpu", "amd-gpu", "intel-gpu", "cpu")


class Refused(Exception):
    """Nothing is started; the text is for people."""


def flag_name(arg):
    """Name of a long flag as vLLM understands it, and whether a value is joined to it."""
    if not arg.startswith("--"):
        return "", False
    name, equals, _ = arg[2:].partition("=")
    return name.replace("_", "-"), equals == "="


def without_flag(args, flag):
    """Takes a flag out, in either spelling, with its value joined by = or as the next argument."""
    kept, index = [], 0
    while index < len(args):
        name, joined = flag_name(args[index])
        if name != flag:
            kept.append(args[index])
        elif not joined and index + 1 < len(args) and not args[index + 1].startswith("--"):
            index += 1
        index += 1
    return kept


def flag_value(args, flag, short):
    """Value of a flag, the last one when it is repeated; None without it."""
    found = None
    for index, arg in enumerate(args):
        name, joined = flag_name(arg)
        if name == flag and joined or arg.startswith("-" + short + "="):
            found = arg.partition("=")[2]
        elif name == flag or arg == "-" + short:
            found = args[index + 1] if index + 1 < len(args) else ""
    return found


def device_count(args):
    """Number of devices over which vLLM spreads the replica."""
    count = 1
    for flag, short in (("tensor-parallel-size", "tp"), ("pipeline-parallel-size", "pp")):
        text = flag_value(args, flag, short)
        if text is None:
            continue
        if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) < 1:
            raise Refused("--%s must be a number from 1, got %r" % (flag, text))
        count *= int(text)
    return count


def parse_size(text):
    """Amount of memory in MiB, as the operator reads it; None when it cannot be read."""
    match = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?\s*([a-z]*)", text.strip().lower())
    if not match:
        return None
    whole, fraction, unit = match.groups()
    if unit == "":
        return None if fraction else int(whole)
    factor = {"m": 1, "mb": 1, "mi": 1, "mib": 1, "g": 1024, "gb": 1024, "gi": 1024, "gib": 1024}.get(unit)
    if factor is None:
        return None
    return int(float(whole + "." + (fraction or "0")) * factor)


def answer(*command):
    """Standard output of a tool, or None when it is not there or fails."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=TOOL_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def numbers(text):
    """Whole positive numbers, one a line; None when a line is something else."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if not lines or not all(re.fullmatch(r"[0-9]{1,18}", line) and int(line) > 0 for line in lines):
        return None
    return [int(line) for line in lines]


def parsed(text):
    """JSON, or None."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def nvidia_smi():
    """Memory of all NVIDIA devices in MiB."""
    return numbers(answer("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"))


def rocm_smi():
    """Memory of all AMD devices in MiB, as the older tool tells it in bytes."""
    cards = parsed(answer("rocm-smi", "--showmeminfo", "vram", "--json"))
    if not isinstance(cards, dict):
        return None
    found = {}
    for card, facts in cards.items():
        number = re.fullmatch(r"card([0-9]+)", card)
        if number and isinstance(facts, dict):
            found[int(number.group(1))] = facts.get("VRAM Total Memory (B)")
    return in_order(found, MIB)


def amd_smi():
    """Memory of all AMD devices in MiB, as the newer tool tells it in MB of 2^20 bytes."""
    report = parsed(answer("amd-smi", "metric", "--mem-usage", "--json"))
    if isinstance(report, dict):
        report = report.get("gpu_data")
    if not isinstance(report, list):
        return None
    found = {}
    for entry in report:
        usage = entry.get("mem_usage") if isinstance(entry, dict) else None
        total = usage.get("total_vram") if isinstance(usage, dict) else None
        number = entry.get("gpu") if isinstance(entry, dict) else None
        if isinstance(number, int) and isinstance(total, dict) and total.get("unit") == "MB":
            found[number] = total.get("value")
    return in_order(found, 1)


def xpu_smi():
    """Memory of all Intel devices in MiB."""
    listing = parsed(answer("xpu-smi", "discovery", "--json"))
    devices = listing.get("device_list") if isinstance(listing, dict) else None
    if not isinstance(devices, list):
        return None
    found = {}
    for entry in devices:
        number = entry.get("device_id") if isinstance(entry, dict) else None
        if not isinstance(number, int):
            continue
        facts = parsed(answer("xpu-smi", "discovery", "--device", str(number), "--json"))
        if isinstance(facts, dict):
            found[number] = facts.get("memory_physical_size_byte")
    return in_order(found, MIB)


def in_order(found, unit):
    """Sizes by device number, from 0 without a gap, divided by the unit."""
    sizes = []
    for number in range(len(found)):
        text = str(found.get(number, ""))
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < unit:
            return None
        sizes.append(int(text) // unit)
    return sizes or None


TORCH = """
import torch
devices = torch.%s
for number in range(devices.device_count()):
    print(devices.get_device_properties(number).total_memory // (1 << 20))
"""


def torch(kind):
    """Asks the library that the server uses itself, in MiB. ROCm calls itself cuda there."""
    return lambda: numbers(answer(sys.executable, "-c", TORCH % kind))


# Who to ask about the memory of a target's devices; the first that knows decides.
# The tools of AMD and Intel may show devices of the node that the Pod was not given,
# so the library comes before them there.
SOURCES = {
    "nvidia-gpu": (nvidia_smi, torch("cuda")),
    "amd-gpu": (torch("cuda"), amd_smi, rocm_smi),
    "intel-gpu": (torch("xpu"), xpu_smi),
}


def device_memory(target, device, count):
    """Memory of the smallest of the devices that the server will use, in MiB."""
    if not re.fullmatch(r"[0-9]{1,4}", device):
        raise Refused("MAGICSTICK_GPU_DEVICE must be the number of a device, got %r" % device)
    first = int(device)
    for source in SOURCES[target]:
        sizes = source()
        if not sizes:
            continue
        if len(sizes) < first + count:
            raise Refused("the server needs %d device(s) from number %d on, there are %d on %s" % (count, first, len(sizes), target))
        return min(sizes[first:first + count])
    raise Refused("nothing in this image tells how much memory the devices of %s have" % target)


def share(target, device, count, limit):
    """Share of each device that gives the replica what was planned."""
    budget = parse_size(limit)
    if not budget:
        raise Refused("MAGICSTICK_VLLM_VRAM_LIMIT must be an amount of memory such as 5Gi or 24062Mi, got %r" % limit)
    physical = device_memory(target, device, count)
    if budget > physical * count:
        raise Refused("the budget of %d MiB is more than the %d MiB of %d device(s) on %s" % (budget, physical * count, count, target))
    return min(max(budget / (physical * count), LEAST_SHARE), LARGEST_SHARE)


def vllm_args(args, environment):
    """Arguments of vLLM."""
    target = environment.get("MAGICSTICK_COMPUTE_TARGET") or TARGETS[0]
    if target not in TARGETS:
        raise Refused("MAGICSTICK_COMPUTE_TARGET must be one of %s, got %r" % (", ".join(TARGETS), target))
    limit = environment.get("MAGICSTICK_VLLM_VRAM_LIMIT", "").strip()
    offload = environment.get("MAGICSTICK_VLLM_CPU_OFFLOAD_MI", "").strip()
    if target == "cpu":
        # All memory is RAM there: its size is a request of the Pod, and the share that
        # vLLM would take has nothing to do with a GPU.
        return without_flag(args, UTILIZATION)
    count = device_count(args)
    if limit:
        device = environment.get("MAGICSTICK_GPU_DEVICE", "").strip() or "0"
        part = share(target, device, count, limit)
        args = without_flag(args, UTILIZATION) + ["--%s=%.4f" % (UTILIZATION, part)]
    if offload:
        if not re.fullmatch(r"[0-9]{1,9}", offload):
            raise Refused("MAGICSTICK_VLLM_CPU_OFFLOAD_MI must be a number of MiB, got %r" % offload)
        # vLLM counts what each device hands over.
        args = without_flag(args, OFFLOAD) + ["--%s=%.4f" % (OFFLOAD, int(offload) / 1024 / count)]
    return args


def command(args, environment):
    """The server to become: its program and arguments."""
    engine = environment.get("MAGICSTICK_ENGINE") or "VLLM"
    if engine == "VLLM":
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *vllm_args(args, environment)]
    if engine == "OLlama":
        server = shutil.which("ollama") or "/bin/ollama"
        return [server, *(args or ["serve"])]
    raise Refused("MAGICSTICK_ENGINE must be VLLM or OLlama, got %r" % engine)


def main():
    """Becomes the server."""
    try:
        server = command(sys.argv[1:], os.environ)
        sys.stdout.flush()
        os.execv(server[0], server)
    except Refused as problem:
        print("magicstick wrapper: %s" % problem, file=sys.stderr)
    except OSError as problem:
        print("magicstick wrapper: starting %s: %s" % (server[0], problem.strerror), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
