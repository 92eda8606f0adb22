"""Facts from files that other commands have written."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fastio import StepTimer
from fastio.cli.result import form
from fastio.errors import FastioError
from fastio.measure.doctor.diagnosis import diagnose
from fastio.measure.doctor.facts import Facts, ScriptFacts, TransformFacts
from fastio.measure.doctor.saved import load_facts
from tests.measure.doctor.test_diagnosis import CAUTIONS, LOADER, MAKING, MODEL, PUBLISHED, replace, wait

STEPS = {
    "epochs": 2,
    "steps": 10,
    "samples": 80,
    "loading": {"mean_s": 0.3},
    "training": {"mean_s": 0.1},
    "first_batches_s": 4.0,
}
SAMPLE = {
    "time_s": 1.0,
    "seconds": 1.0,
    "cpu_percents": [100.0, 50.0],
    "memory_used_bytes": 95,
    "memory_total_bytes": 100,
    "disk_read_bytes_per_s": 10.0,
    "disk_written_bytes_per_s": 0.0,
    "network_received_bytes_per_s": 5.0,
    "network_sent_bytes_per_s": 7.0,
    "own_cpu_percent": 0.1,
    "process": None,
    "gpus": [
        {
            "index": 0,
            "mig_index": None,
            "name": "H",
            "utilization_percent": 40.0,
            "sm_active_percent": None,
            "sm_occupancy_percent": None,
            "tensor_active_percent": None,
            "dram_active_percent": None,
            "memory_used_bytes": 10,
            "memory_total_bytes": 100,
            "temperature_c": 40,
            "pcie_received_bytes_per_s": None,
            "pcie_sent_bytes_per_s": None,
        }
    ],
    "gpu_source": "NVML",
    "sm_source": None,
    "of a later fastio": 1,
}
PROCESS = {"pid": 7, "processes": 1, "cpu_percent": 50.0, "rss_bytes": 9} | dict.fromkeys(
    ("disk_read_bytes_per_s", "disk_written_bytes_per_s")
)
KERNEL = {"name": "sgemm", "calls": 30, "self_us": 300.0, "total_us": 300.0, "flops": None}
TRACE = {
    "path": "t.json",
    "rank": 0,
    "steps": 3,
    "total_us": 3000.0,
    "rows_us": {"DataLoader": 0.0, "Memcpy": 30.0},
    "idle_us": 2700.0,
    "compute_us": 300.0,
    "non_compute_us": 0.0,
    "sync_us": 0.0,
    "host_us": 2500.0,
    "tensor_core_share": 0.0,
    "operators": [],
    "kernels": [KERNEL],
    "per_step": [],
    "memory": [],
}


def saved(path: Path, command: str, said: dict[str, Any]) -> Path:
    """A file as ``--json`` writes it."""
    path.write_text(json.dumps(form(command, said)))
    return path


def test_bench_both(tmp_path: Path) -> None:
    """Rates of the halves, steps of the loop."""
    said = {"io_samples_per_s": 100.0, "training_samples_per_s": 400.0, "loop": STEPS}
    facts = load_facts([saved(tmp_path / "both.json", "bench.both", said)])
    assert facts.step is not None

    assert (100.0, 400.0) == (facts.step.io_rate, facts.step.train_rate)
    assert (0.3, 0.1, 2.0, 8.0) == (
        facts.step.loading_s,
        facts.step.training_s,
        facts.step.epoch_start_s,
        facts.step.samples_per_step,
    )
    assert diagnose(facts).pattern == "io_bound"


def test_monitor_and_profile_together(tmp_path: Path) -> None:
    """JSON lines and one object; each says what it knows."""
    lines = "".join(json.dumps(form("monitor", SAMPLE)) + "\n" for _ in range(3))
    (tmp_path / "log.jsonl").write_text(lines)
    profile = saved(tmp_path / "profile.json", "profile", {"traces": [TRACE], "cpu": None})
    facts = load_facts([tmp_path / "log.jsonl", profile])
    said = diagnose(facts)

    assert said.pattern == "launch_bound"
    assert {"40% utilisation", "of memory are in use"} == {
        words for words in ("40% utilisation", "of memory are in use") if words in str(said.cautions)
    }
    assert facts.machine is not None
    assert (75.0, 7.0) == (facts.machine.cpu_percent, facts.machine.network_bytes_per_s)
    assert facts.trace is not None
    assert (10, 1e-5) == (facts.trace.kernels_per_step, facts.trace.kernel_s)


def test_cpus_of_another_machine_are_not_told(tmp_path: Path) -> None:
    """The monitor's log says how many CPUs were used, not how many the training might have used."""
    facts = load_facts([saved(tmp_path / "one.jsonl", "monitor", SAMPLE | {"process": PROCESS})])
    evidence = {each.name: (each.value, each.unit) for each in diagnose(facts).evidence}

    assert (0.5, "") == evidence["CPUs used by this training"]


def test_a_store_is_no_saved_figure(tmp_path: Path) -> None:
    """Bytes that are no text are refused by name."""
    (tmp_path / "train.lmdb").write_bytes(b"\xff\xfe\0\x81")

    with pytest.raises(FastioError, match=r"train\.lmdb: is not text; expected output of --json"):
        load_facts([tmp_path / "train.lmdb"])


def test_one_sample_of_monitor(tmp_path: Path) -> None:
    """A single line is a JSON object too."""
    assert load_facts([saved(tmp_path / "one.jsonl", "monitor", SAMPLE)]).machine is not None


def test_bench_disk(tmp_path: Path) -> None:
    """A slow disk is warned of, each kind by its own figure; one that could not be read cold is not known."""
    slow = saved(tmp_path / "slow.json", "bench.disk", {"path": "/d", "kind": None, "sequential_bytes_per_s": 9e7})
    fair = saved(tmp_path / "fair.json", "bench.disk", {"path": "/e", "kind": None, "sequential_bytes_per_s": 9e8})
    nvme = saved(tmp_path / "nvme.json", "bench.disk", {"path": "/n", "kind": "nvme", "sequential_bytes_per_s": 9e8})
    warm = saved(tmp_path / "warm.json", "bench.disk", {"path": "/w", "kind": None, "sequential_bytes_per_s": None})
    said = diagnose(load_facts([slow, fair, nvme, warm]))

    assert ["/d: 90.0 MB/s sequentially", "/n: 900 MB/s sequentially"] == [each.title for each in said.cautions]
    assert "any disk should give 150 MB/s" in said.cautions[0].reason
    assert "an NVMe drive should give 3,000 MB/s" in said.cautions[1].reason
    assert ["the disk under /w: nothing could be read cold"] == list(said.unknown)


def test_step_timer(tmp_path: Path) -> None:
    """What a StepTimer in the user's own script has written."""
    timer = StepTimer()
    for _ in timer([[1, 2], [3, 4], [5, 6]]):
        pass
    timer.write_json(tmp_path / "steps.json")
    facts = load_facts([tmp_path / "steps.json"])
    assert facts.step is not None

    assert (3, 2.0) == (facts.step.steps, facts.step.samples_per_step)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_traces(tmp_path: Path, name: str) -> None:
    """As torch.profiler exports them."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 100},
        {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#x", "ts": 0, "dur": 50},
    ]
    data = json.dumps({"traceEvents": events}).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    assert diagnose(load_facts([tmp_path / name])).pattern == "io_bound"


FACTS = [facts for *_, facts in PUBLISHED + [("", None, each) for _, each in CAUTIONS]]


LOOKED_INTO = replace(
    MAKING, reading_s=0.01, transforms=(TransformFacts(name="Mine", seconds=0.06),), waits=(wait(7, 0.05),)
)
LOADERS = [
    replace(LOADER, making=MAKING),
    replace(LOADER, making=LOOKED_INTO, waits=(wait(9, 0.1),)),
    replace(LOADER, script=ScriptFacts(arguments=(("dataset", '"a.lmdb"'), ("batch_size", "4")))),
]


@pytest.mark.parametrize("facts", [*FACTS, *(Facts(loader=loader, model=MODEL, unknown=("a",)) for loader in LOADERS)])
def test_the_doctors_own(tmp_path: Path, facts: Facts) -> None:
    """Facts come back as they went, and so does the diagnosis."""
    again = load_facts([saved(tmp_path / "doctor.json", "doctor", {"facts": asdict(facts)})])

    assert facts == replace(again, sources=again.sources[1:])
    assert diagnose(facts) == diagnose(again)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "neither JSON nor JSON lines"),
        ("", "neither JSON nor JSON lines|format is None"),
        ("[1]", "its format is None"),
        ('{"format": "fastio.monitor/2"}', "its format is 'fastio.monitor/2'"),
        ('{"format": "fastio.tune/1"}', "expected a trace"),
        ('{"format": "fastio.bench.both/1"}', "is not a complete fastio.bench.both/1"),
        ('{"format": "fastio.profile/1", "traces": []}', "no trace in it"),
        ('{"traceEvents": []}', "no step is marked"),
        ('{"format": "fastio.steps/1"}\n{"format": "fastio.monitor/1"}', "its format is None"),
    ],
)
def test_what_is_no_file_of_ours(tmp_path: Path, text: str, message: str) -> None:
    """One line names the file and what is wrong with it."""
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(FastioError, match=message) as caught:
        load_facts([tmp_path / "a.json"])
    assert str(tmp_path / "a.json") in str(caught.value)
