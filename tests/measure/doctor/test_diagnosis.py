"""The doctor's rules on figures alone: published cases, parts of loading, steps to take, warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.measure.doctor.cautions import CAUTION_RULES
from fastio.measure.doctor.diagnosis import Diagnosis, diagnose
from fastio.measure.doctor.facts import (
    DiskFacts,
    Facts,
    GpuFacts,
    LoaderFacts,
    MachineFacts,
    MakingFacts,
    ModelFacts,
    Part,
    ScriptFacts,
    StepFacts,
    TraceFacts,
    TransformFacts,
    WaitFacts,
    merged,
)
from fastio.measure.loop.verdict import Bound
from fastio.types.metrics import OpensGain

GB = 1_000_000_000
MAKING = MakingFacts(batches=9, samples=128, samples_s=0.13, cpu_s=0.13, queued_s=0.0, collate_s=0.004)
SCRIPT = ScriptFacts(
    loader="train_loader",
    dataset="train_set",
    transform="augment",
    collate_fn="collate",
    recipe=("RandomResizedCrop(224)", "Normalize((0.5,), (0.5,))"),
    gives_pairs=True,
    data_kind="pictures",
)
LOADER = LoaderFacts(
    kind="DataLoader",
    name="DataLoader",
    dataset="Pngs",
    data_path="/data/my pngs",
    batch_size=128,
    workers=1,
    prefetch_factor=2,
    script=SCRIPT,
)
STEP = StepFacts(steps=50, samples_per_step=128, loading_s=0.0978, training_s=0.0362)
MODEL = ModelFacts(
    device="cuda:0",
    dtype="float32",
    has_convolutions=True,
    is_channels_last=False,
    is_autocast=False,
    is_compiled=False,
)


def by_step(step_ms: float, loading: float) -> StepFacts:
    """A step of the courses: how long, and which part of it is waiting."""
    return StepFacts(loading_s=step_ms / 1e3 * loading, training_s=step_ms / 1e3 * (1 - loading))


def by_gpu(percent: float) -> tuple[GpuFacts, ...]:
    """One GPU, so much used."""
    return (GpuFacts(name="GPU 0", utilization_percent=percent),)


# The cases of tests/measure/loop/test_verdict.py, as the doctor gets them: steps in seconds, utilisation from NVML,
# parts of a step from a trace.
PUBLISHED: list[tuple[str, Bound, Facts]] = [
    ("one worker", "io_bound", Facts(step=by_step(134, 0.73))),
    ("three workers", "balanced", Facts(step=by_step(39, 2.8 / 39))),
    ("three workers, normalised on the GPU", "compute_bound", Facts(step=by_step(33, 0.01))),
    ("large model, one worker", "io_bound", Facts(step=by_step(2722, 0.942), gpus=by_gpu(4.94))),
    ("large model, repaired loading", "compute_bound", Facts(step=by_step(142.6, 0.0023), gpus=by_gpu(86.84))),
    ("small inputs, float32", "launch_bound", Facts(trace=TraceFacts(device=37 / 229))),
    ("small inputs, mixed precision", "launch_bound", Facts(trace=TraceFacts(device=14 / 244, cpu=0.77))),
]


@pytest.mark.parametrize(("case", "bound", "facts"), PUBLISHED, ids=[case for case, *_ in PUBLISHED])
def test_published_cases(case: str, bound: Bound, facts: Facts) -> None:
    """The seven cases of the courses get the names that the courses give them."""
    assert bound == diagnose(facts).pattern


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(step=by_step(10, 0.16)), "the loop waits for data 16% of the time"),
        (
            Facts(step=by_step(10, 0.07)),
            "loading barely keeps up with training: the loop waits for data 7% of the time",
        ),
        (Facts(step=by_step(10, 0.029)), "training itself is the limit"),
        (Facts(step=StepFacts(io_rate=50.0, train_rate=100.0)), "the loop waits for data"),
        (Facts(step=StepFacts(io_rate=105.0, train_rate=100.0)), "loading barely keeps up with training"),
    ],
)
def test_the_sentence_fits_the_share_of_waiting(facts: Facts, words: str) -> None:
    """A loop that trains for 97 % of its time is not called balanced, and one that waits says for how long."""
    assert words == diagnose(facts).summary


def test_steps_of_a_loop_that_waits_a_little() -> None:
    """Less waiting gains a few percent: what makes the step faster is advised as well."""
    loader = replace(LOADER, making=replace(MAKING, samples_s=0.009), workers=1)
    said = diagnose(Facts(step=by_step(10, 0.09), loader=loader, model=MODEL, machine=MachineFacts(cpus=4)))

    assert said.pattern == "balanced"
    assert "fastio pack" in titles(said)
    assert "mixed precision" in titles(said)


def loading(making: MakingFacts, *, workers: int = 1, cpus: int = 1, training_s: float = 0.005) -> Diagnosis:
    """A loop that waits for these batches."""
    return diagnose(
        Facts(
            step=StepFacts(steps=9, samples_per_step=128, loading_s=making.batch_s - 0.005, training_s=training_s),
            loader=replace(LOADER, workers=workers, making=making),
            machine=MachineFacts(cpus=cpus, cpu_percent=50.0),
        )
    )


@pytest.mark.parametrize(
    ("part", "making", "workers", "cpus"),
    [
        ("slow_disk", replace(MAKING, cpu_s=0.01, read_bytes=1e6), 1, 1),
        ("slow_disk", replace(MAKING, cpu_s=0.01, reading_s=0.07), 0, 64),
        ("slow_wait", replace(MAKING, cpu_s=0.01), 1, 1),
        ("slow_wait", replace(MAKING, cpu_s=0.01, read_bytes=1e6, reading_s=0.05), 0, 64),
        ("slow_decode", MAKING, 1, 2),
        ("slow_decode", replace(MAKING, cpu_s=0.04, queued_s=0.09), 1, 2),  # others use the CPUs
        ("slow_transform", replace(MAKING, transform_s=0.1), 0, 1),
        ("slow_collate", replace(MAKING, collate_s=0.5), 0, 64),
        ("slow_handover", replace(MAKING, busy=0.1), 2, 64),
        ("too_few_workers", MAKING, 1, 64),
        ("too_few_workers", MAKING, 0, 64),
        ("too_few_cpus", replace(MAKING, cpu_s=0.04, queued_s=0.09), 8, 2),
        ("too_few_cpus", replace(MAKING, samples_s=0.04, cpu_s=0.005, queued_s=0.036, busy=0.3), 2, 2),
    ],
)
def test_the_slow_part(part: Part, making: MakingFacts, workers: int, cpus: int) -> None:
    """What takes most of a batch is named; where CPUs are left for more workers, that is."""
    said = loading(making, workers=workers, cpus=cpus)

    assert ("io_bound", part) == (said.pattern, said.part)


@pytest.mark.parametrize(
    ("sentence", "making"),
    [
        ("97% of a batch's time is reading and decoding", MAKING),
        (
            "67% of a batch's time is waiting for a CPU that others use, 30% is reading and decoding",
            replace(MAKING, cpu_s=0.04, queued_s=0.09),
        ),
        (
            "41% of a batch's time is transforms, Crop alone 41%",
            replace(MAKING, cpu_s=0.1, transform_s=0.055, transforms=(TransformFacts(name="Crop", seconds=0.055),)),
        ),
        (
            "37% of a batch's time is waiting for reads from a disk or a network file system",
            replace(MAKING, cpu_s=0.08, reading_s=0.05, transform_s=0.038),
        ),
    ],
)
def test_the_sentence_follows_the_largest_share(sentence: str, making: MakingFacts) -> None:
    """What is said first is what the figures below show first, also if no part takes more than half."""
    said = loading(making, workers=0, cpus=1)
    by_share = sorted((each.share or 0.0, each.name) for each in said.evidence if each.group == "batch")

    assert f"the loop waits for data 96% of the time: {sentence}" == said.summary
    assert f"{by_share[-1][0]:.0%}" == sentence.partition(" ")[0]


@pytest.mark.parametrize(
    ("part", "threads", "used", "busy"),
    [
        ("slow_decode", 4, 3.9, 50.0),
        ("slow_disk", 4, 0.4, 50.0),
        ("too_few_workers", 2, 1.9, 50.0),
        ("slow_decode", 4, 0.4, 99.0),
        (None, 4, 0.8, 83.0),
    ],
)
def test_the_slow_part_of_our_own_loader(part: Part | None, threads: int, used: float, busy: float) -> None:
    """Native threads show by the CPUs that they use whether they decode or wait."""
    loader = LoaderFacts(kind="FastLoader", name="FastLoader", dataset="FastDataset", threads=threads)
    machine = MachineFacts(cpus=4, process_cpus=used, cpu_percent=busy)

    assert part == diagnose(Facts(step=STEP, loader=loader, machine=machine)).part


def test_transforms_in_the_loops_thread() -> None:
    """Native threads decode, so a loop's thread that works while it waits transforms batches."""
    loader = LoaderFacts(kind="FastLoader", name="FastLoader", dataset="FastDataset", threads=2, own_cpu=0.8)
    said = diagnose(Facts(step=STEP, loader=loader, machine=MachineFacts(cpus=2, process_cpus=1.0)))

    assert said.part == "slow_transform"
    assert said.steps[0].gain == pytest.approx(1 / (1 - 0.8 * 0.0978 / 0.134))
    assert {each.name: each.value for each in said.evidence}["native threads"] == 2


def test_the_course_with_one_worker() -> None:
    """134 ms with one worker, 36 ms of training: four workers are predicted, and packing at most the same gain."""
    facts = Facts(step=STEP, loader=replace(LOADER, making=MAKING), machine=MachineFacts(cpus=8, cpu_percent=20.0))
    said = diagnose(facts)
    workers = next(step for step in said.steps if "num_workers" in step.code)
    pack = next(step for step in said.steps if "fastio pack" in step.code)

    assert ("io_bound", "too_few_workers") == (said.pattern, said.part)
    assert "num_workers=4" in workers.code
    assert workers.gain == pytest.approx(134 / 36.2, rel=0.01)
    assert not workers.is_bound
    assert pack.gain == pytest.approx(134 / 36.2, rel=0.01)
    assert "'/data/my pngs'" in pack.code


def test_steps_come_by_gain() -> None:
    """The largest first, those without a figure last, none that gives nothing."""
    making = replace(MAKING, transform_s=0.1, cpu_s=0.11)
    gains = [step.gain for step in loading(making, workers=2, cpus=2).steps]
    known = [gain for gain in gains if gain is not None]

    assert known == sorted(known, reverse=True)
    assert gains == [*known, *[None] * (len(gains) - len(known))]
    assert min(known) > 1.02


def titles(said: Diagnosis) -> str:
    """What is to be done, in one text."""
    return "\n".join(step.title + "\n" + step.code for step in said.steps)


def test_steps_of_a_packed_store() -> None:
    """Who has packed already is not told to pack the files."""
    loader = LoaderFacts(kind="FastLoader", name="FastLoader", dataset="FastDataset", threads=1, data_path="a.lmdb")
    machine = MachineFacts(cpus=4, process_cpus=0.95, cpu_percent=30.0)
    said = diagnose(Facts(step=STEP, loader=loader, machine=machine))

    assert "threads=0" in titles(said)
    assert "pack the files" not in titles(said)


PACKED = LoaderFacts(
    kind="FastLoader", name="FastLoader", dataset="FastDataset", threads=4, data_path="my photos.lmdb", picture_side=400
)


def decoding(loader: LoaderFacts) -> Diagnosis:
    """A loop that waits for native threads which decode on all CPUs."""
    return diagnose(Facts(step=STEP, loader=loader, machine=MachineFacts(cpus=4, process_cpus=3.9, cpu_percent=99.0)))


def test_files_without_jump_tables() -> None:
    """Their index gets them; what packs or indexes files is told what these are."""
    words = ("--labels", "my labels.csv")
    said = decoding(replace(PACKED, data_path="pngs", jump_percent=1.31, unpacked=words))
    jump = next(step for step in said.steps if "fastio index" in step.code)
    smaller = next(step for step in said.steps if "fastio pack" in step.code)

    assert "add start points to the index of the files" in jump.title
    assert "$ fastio index pngs --labels 'my labels.csv'    #" in jump.code
    assert "$ fastio pack pngs small.lmdb --labels 'my labels.csv' --short-side 256\n" in smaller.code


def test_a_store_without_jump_tables() -> None:
    """What keeps every byte of the pictures comes before what makes them smaller, and both pack the store itself."""
    said = decoding(replace(PACKED, jump_percent=1.31))
    jump = next(step for step in said.steps if "fastio index" in step.code)
    smaller = next(step for step in said.steps if "fastio pack" in step.code)

    assert said.part == "slow_decode"
    assert "$ fastio index 'my photos.lmdb'    #" in jump.code
    assert "1.3%" in jump.reason
    assert "$ fastio pack 'my photos.lmdb' small.lmdb --short-side 256\n" in smaller.code
    assert "unpack" not in titles(said)
    assert "start points" not in titles(decoding(PACKED))


@pytest.mark.parametrize("side", [256, 32])
def test_pictures_that_are_small_already(side: float) -> None:
    """A short side of 256 pixels is not advised for pictures that have no more."""
    assert "--short-side" not in titles(decoding(replace(PACKED, picture_side=side)))


def test_threads_that_the_loader_chose_itself() -> None:
    """Who passed threads=0 is not told to: a number keeps what the loader's look at its first second dropped."""
    loader = LoaderFacts(
        kind="FastLoader", name="FastLoader", dataset="FastDataset", threads=1, is_tuned=True, data_path="a.lmdb"
    )
    said = diagnose(Facts(step=STEP, loader=loader, machine=MachineFacts(cpus=4, process_cpus=0.95, cpu_percent=30.0)))
    threads = next(step for step in said.steps if "threads" in step.code)

    assert "threads=4 instead of the 1 that threads=0 chose" == threads.title
    assert "threads=4" in threads.code
    assert "threads=0" not in threads.code


@pytest.mark.parametrize(
    ("expected", "not_expected", "making"),
    [
        ("fastio bench disk", "make collate_fn", replace(MAKING, cpu_s=0.01, reading_s=0.12)),
        ("make collate_fn", "bench disk", replace(MAKING, collate_s=0.5)),
        ("RandomResizedCrop(224)", "bench disk", replace(MAKING, transform_s=0.1)),
        ("return batches", "num_workers", replace(MAKING, busy=0.1)),
    ],
)
def test_steps_fit_the_part(expected: str, not_expected: str, making: MakingFacts) -> None:
    """Each part has its own cure."""
    said = titles(loading(making))

    assert expected in said
    assert not_expected not in said


def test_workers_started_anew() -> None:
    """Epochs that begin with a long wait keep their workers."""
    step = replace(STEP, epoch_start_s=5.0, steps_per_epoch=50)
    making = replace(MAKING, samples_s=0.03, cpu_s=0.03)
    said = diagnose(Facts(step=step, loader=replace(LOADER, making=making), machine=MachineFacts(cpus=1)))
    keep = next(each for each in said.steps if "persistent_workers" in each.code)

    assert keep.gain == pytest.approx((5 + 50 * 0.134) / (50 * 0.134))
    assert "prefetch_factor=4" in titles(said)


def test_synchronising_each_step() -> None:
    """Without it the step is as long as the longer of host and device."""
    said = diagnose(Facts(trace=TraceFacts(loading=0.0, device=0.5, cpu=0.45, sync=0.5), model=MODEL))

    assert said.pattern == "sync_bound"
    assert ".item()" in said.steps[0].title
    assert said.steps[0].gain == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MODEL, "parameters and arithmetic are float32"),
        (None, "if parameters and arithmetic are float32, which the figures do not tell"),
    ],
)
def test_precision_is_claimed_where_it_is_known(model: ModelFacts | None, words: str) -> None:
    """A file of rates says nothing of the model."""
    said = diagnose(Facts(step=by_step(10, 0.01), model=model))

    assert words == next(step.reason for step in said.steps if step.title == "mixed precision")


def test_launching_too_slowly() -> None:
    """CUDA graphs and larger batches; mixed precision would make it worse."""
    trace = TraceFacts(loading=0.0, device=0.2, cpu=0.95, sync=0.02, kernels_per_step=900, kernel_s=2e-6)
    said = diagnose(Facts(trace=trace, model=MODEL))

    assert said.pattern == "launch_bound"
    assert said.steps[0].gain == pytest.approx(5.0)
    assert "900 kernels" in said.steps[0].reason
    assert "larger batch" in titles(said)
    assert "autocast" not in titles(said)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (MODEL, {"autocast": True, "channels_last": True, "torch.compile": True, "train on a GPU": False}),
        (
            replace(MODEL, is_autocast=True, is_channels_last=True, is_compiled=True),
            {"autocast": False, "channels_last": False, "torch.compile": False},
        ),
        (
            replace(MODEL, dtype="bfloat16", has_convolutions=False, device="cpu"),
            {"autocast": False, "channels_last": False, "train on a GPU": True},
        ),
    ],
)
def test_computing_is_the_limit(model: ModelFacts, expected: dict[str, bool]) -> None:
    """What the training does already is not advised again."""
    said = diagnose(Facts(step=by_step(100, 0.001), model=model))

    assert said.pattern == "compute_bound"
    assert expected == {word: word in titles(said) for word in expected}


CAUTIONS = [
    ("in /dev/shm, but the loader", Facts(machine=MachineFacts(shm_free_bytes=GB, shm_total_bytes=GB), loader=LOADER)),
    ("only 67.1 MB", Facts(machine=MachineFacts(shm_free_bytes=1, shm_total_bytes=64 << 20), loader=LOADER)),
    ("16 workers on 4", Facts(machine=MachineFacts(cpus=4), loader=replace(LOADER, workers=16))),
    ("CPUs are 98% busy", Facts(machine=MachineFacts(cpu_percent=98.0, process_cpus=2.0))),
    ("waiting for a CPU", Facts(loader=replace(LOADER, making=replace(MAKING, queued_s=0.1)))),
    ("for disks 40%", Facts(machine=MachineFacts(iowait_percent=40.0, disk_read_bytes_per_s=3e7))),
    ("3,731 page faults a second", Facts(loader=replace(LOADER, making=replace(MAKING, major_faults=500)))),
    ("30% of the time was spent waiting", Facts(loader=replace(PACKED, opens=OpensGain(900, 850, 0.3)))),
    ("90.0 MB/s sequentially", Facts(disks=(DiskFacts(path="/d", sequential_bytes_per_s=90e6),))),
    ("900 MB/s sequentially", Facts(disks=(DiskFacts(path="/d", sequential_bytes_per_s=9e8, kind="nvme"),))),
    ("95% of 10,000 MB", Facts(machine=MachineFacts(memory_used_bytes=95 * GB // 10, memory_total_bytes=10 * GB))),
    ("the network carries", Facts(machine=MachineFacts(network_bytes_per_s=1.2e9, network_limit_bytes_per_s=1.25e9))),
    ("52% utilisation", Facts(gpus=by_gpu(52.0))),
    ("99% of its memory", Facts(gpus=(GpuFacts(name="G", memory_used_bytes=99, memory_total_bytes=100),))),
]
BIG_BATCH = replace(LOADER, batch_bytes=300_000_000)


@pytest.mark.parametrize(("words", "facts"), CAUTIONS, ids=[words for words, _ in CAUTIONS])
def test_warnings(words: str, facts: Facts) -> None:
    """Each limit is warned of, once, with its source."""
    if "the loader" in words:
        facts = replace(facts, loader=BIG_BATCH)
    said = diagnose(facts).cautions

    assert [True] == [words in caution.title for caution in said]
    assert all(caution.source for caution in said)
    assert "course" not in said[0].source
    assert "our choice" not in said[0].source


@pytest.mark.parametrize(
    ("loader", "words", "not_words"),
    [
        (LOADER, "pack the files (`fastio pack '/data/my pngs' train.lmdb`)", "FastLoader, which"),
        (PACKED, "more workers or threads will not help: stop other programs, or transform on the device", "pack"),
        (replace(LOADER, dataset="FastDataset"), "stop other programs", "pack"),
        (None, "stop other programs", "pack"),
    ],
)
def test_what_helps_busy_cpus(loader: LoaderFacts | None, words: str, not_words: str) -> None:
    """Files that Python decodes are packed by the command that is named; who has packed is not told to."""
    machine = MachineFacts(cpu_percent=98.0, process_cpus=2.0)
    (said,) = diagnose(Facts(machine=machine, loader=loader, model=MODEL)).cautions

    assert words in said.reason
    assert not_words not in said.reason


def test_few_page_faults_a_batch() -> None:
    """A batch may be so short that it has none on average; the limit is one of seconds, and so is the figure."""
    making = replace(MAKING, samples_s=0.0001, collate_s=0.0, major_faults=0.02)
    (said,) = diagnose(Facts(loader=replace(LOADER, making=making))).cautions

    assert said.title == "200 page faults a second are read from a disk"


def test_busy_cpus_of_a_packed_store() -> None:
    """Who decodes with native threads is not told to begin with that."""
    machine = MachineFacts(cpu_percent=98.0)
    packed = LoaderFacts(kind="FastLoader", name="FastLoader", dataset="FastDataset", data_path="a.lmdb")
    reasons = [
        caution.reason
        for loader in (LOADER, packed)
        for caution in diagnose(Facts(machine=machine, loader=loader)).cautions
    ]

    assert [True, False] == ["fastio pack" in reason for reason in reasons]


def test_a_healthy_machine_is_not_warned_of() -> None:
    """Figures within their limits say nothing."""
    machine = MachineFacts(
        cpus=4,
        cpu_percent=60.0,
        iowait_percent=1.0,
        memory_used_bytes=GB,
        memory_total_bytes=10 * GB,
        shm_free_bytes=8 * GB,
        shm_total_bytes=8 * GB,
        network_bytes_per_s=1e6,
        network_limit_bytes_per_s=1.25e9,
    )
    gpu = GpuFacts(name="G", utilization_percent=95.0, memory_used_bytes=80, memory_total_bytes=100)
    disks = (DiskFacts(path="/d", sequential_bytes_per_s=200e6),)
    loader = replace(LOADER, making=MAKING, batch_bytes=1_000_000)
    facts = Facts(step=STEP, loader=loader, machine=machine, gpus=(gpu,), disks=disks)

    assert diagnose(facts).cautions == ()


def test_too_little_is_known() -> None:
    """No name without figures, and warnings all the same."""
    said = diagnose(Facts(gpus=(GpuFacts(name="G", memory_used_bytes=99, memory_total_bytes=100),), unknown=("steps",)))

    assert (said.pattern, said.steps) == (None, ())
    assert "not enough figures" in said.summary
    assert len(said.cautions) == 1
    assert said.unknown == ("steps",)


def test_evidence_has_every_figure() -> None:
    """Parts of the step and of a batch, each with its share."""
    said = loading(replace(MAKING, transform_s=0.03, read_bytes=1e6, busy=0.9)).evidence
    shares = {each.name: each.share for each in said}

    assert shares["waiting for data"] == pytest.approx(0.129 / 0.134)
    assert shares["transform"] == pytest.approx(0.03 / 0.134)
    assert {"step", "batch", "machine"} == {each.group for each in said}


def wait(line: int, seconds: float, *, is_reading: bool = False) -> WaitFacts:
    """Waiting in a line of train.py."""
    return WaitFacts(
        file="/code/train.py",
        line=line,
        function="Photos.__getitem__",
        call=None,
        is_reading=is_reading,
        seconds=seconds,
        source="time.sleep(1)",
    )


def test_waits_are_told_by_their_lines() -> None:
    """Reads in one row, each line that waits for something else in its own, without what is next to nothing."""
    waits = (wait(7, 0.05), wait(8, 0.03, is_reading=True), wait(9, 0.0001))
    said = loading(replace(MAKING, cpu_s=0.01, reading_s=0.03, waits=waits))
    rows = {each.name: each.value for each in said.evidence if each.group == "batch" and "waiting" in each.name}

    assert said.summary.endswith(": train.py:7 in Photos.__getitem__: time.sleep(1)")
    assert {
        "waiting for reads": pytest.approx(0.03),
        "waiting, train.py:7 in Photos.__getitem__": pytest.approx(0.05),
        "waiting for something else": pytest.approx(0.04),
        "waiting for a CPU": 0.0,
    } == rows


def test_gains_are_of_what_would_go_away() -> None:
    """Packing takes reading and decoding away, not other waiting; a slow step no more than itself."""
    own = replace(LOADER, script=replace(SCRIPT, recipe=None, unknown_steps=("Mine",)))
    making = replace(
        MAKING,
        samples_s=0.2,
        cpu_s=0.1,
        reading_s=0.02,
        transform_s=0.06,
        transforms=(TransformFacts(name="Mine", seconds=0.06),),
    )
    step = replace(STEP, loading_s=0.199, training_s=0.005)
    facts = Facts(step=step, loader=replace(own, making=making), machine=MachineFacts(cpus=1))
    gains = {advice.title.partition(" ")[0]: advice for advice in diagnose(facts).steps}

    assert gains["pack"].gain == pytest.approx(0.204 / (0.204 - 0.02 - 0.04))
    assert gains["Mine"].gain == pytest.approx(0.204 / (0.204 - 0.06))
    assert gains["pack"].is_bound
    assert "upper bound" in gains["pack"].reason
    assert 'FastDataset("train.lmdb", augment)' in gains["pack"].code


def test_the_first_of_two_figures_counts() -> None:
    """Merging fills what is missing, field by field."""
    both = merged(
        Facts(step=StepFacts(io_rate=1.0), sources=("a",)),
        Facts(step=StepFacts(io_rate=2.0, steps=3), gpus=by_gpu(1.0), sources=("b",)),
    )

    assert both.step == StepFacts(io_rate=1.0, steps=3)
    assert both.sources == ("a", "b")
    assert len(both.gpus) == 1


seconds = st.floats(0, 10)
part = st.none() | st.floats(0, 1)
making = st.none() | st.builds(
    MakingFacts,
    batches=st.integers(1, 9),
    samples=st.floats(1, 99),
    samples_s=seconds,
    cpu_s=seconds,
    queued_s=seconds,
    collate_s=seconds,
    transform_s=st.none() | seconds,
    read_bytes=st.floats(0, 1e9),
    major_faults=st.floats(0, 1e4),
    busy=part,
)


@settings(max_examples=150)
@given(
    st.builds(StepFacts, loading_s=st.none() | seconds, training_s=st.none() | seconds),
    st.builds(TraceFacts, loading=part, device=part, cpu=part, sync=part, memcpy=part),
    st.builds(
        LoaderFacts,
        kind=st.sampled_from(["DataLoader", "FastLoader", "other"]),
        name=st.just("L"),
        workers=st.none() | st.integers(0, 9),
        threads=st.none() | st.integers(1, 9),
        own_cpu=part,
        making=making,
    ),
    st.builds(MachineFacts, cpus=st.none() | st.integers(1, 9), process_cpus=st.none() | st.floats(0, 9)),
)
def test_any_figures_are_told(step: StepFacts, trace: TraceFacts, loader: LoaderFacts, machine: MachineFacts) -> None:
    """Zeros, gaps and contradictions end in a diagnosis, whose gains are above 1."""
    said = diagnose(Facts(step=step, trace=trace, loader=loader, machine=machine, model=MODEL))

    assert (said.pattern is None) == ("not enough" in said.summary)
    assert all(advice.gain is None or advice.gain > 1 for advice in said.steps)
    assert len({advice.title for advice in said.steps}) == len(said.steps)
    assert all(0 <= each.share <= 1 for each in said.evidence if each.share is not None)


def test_training_that_takes_no_time() -> None:
    """A step below every clock asks for more workers than a number holds."""
    step = replace(STEP, training_s=5e-324)

    assert (
        "io_bound"
        == diagnose(Facts(step=step, loader=replace(LOADER, making=MAKING), machine=MachineFacts(cpus=1))).pattern
    )


def test_every_caution_is_covered() -> None:
    """A rule without a case above would be one that nobody has seen at work."""
    facts = [replace(facts, loader=BIG_BATCH) if "the loader" in words else facts for words, facts in CAUTIONS]

    assert [True] * len(CAUTION_RULES) == [any(list(rule(each)) for each in facts) for rule in CAUTION_RULES]
