"""The command line as a user meets it: what it prints, how it ends, what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from fastio.cli import cli
from fastio.cli.screen import SIZE, printable
from fastio.store import open_store
from fastio.types.units import size
from tests.commands import result_of, run
from tests.conftest import SUFFIXES
from tests.converters.trees import class_folders, files_below, flat, foreign_tar, pickled, picture

COMMANDS = ("pack", "info", "ls", "show", "unpack", "verify", "bench")


@pytest.fixture
def folder(tmp_path):
    """A flat folder of seven PNGs, its labels, and a store of it."""
    labels = flat(tmp_path / "pngs")
    pickled(tmp_path / "labels.pkl", labels)
    run("pack", tmp_path / "pngs", tmp_path / "s.lmdb", "--labels", tmp_path / "labels.pkl")
    return tmp_path


def test_help_names_the_commands():
    """--help lists them."""
    shown = run("--help")

    assert all(f"\n  {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize("command", [*((c,) for c in COMMANDS), ("bench", "io")])
def test_every_command_has_an_example(command):
    """Help shows how a command is called."""
    assert "Example:\n    fastio" in run(*command, "--help")


@pytest.mark.parametrize("command", [("pack",), ("bench", "train"), ("bench", "both")])
def test_help_has_every_option_once(command):
    """Where options stand under titles, none is lost and none comes twice."""
    found = cli
    for name in command:
        found = found.commands[name]
    shown = run(*command, "--help")
    first = [line.split()[0].rstrip(",") for line in shown.partition("Options:")[2].splitlines() if line[:3] == "  -"]

    assert sorted(first) == sorted(
        ["-h", *(each.opts[0] for each in found.params if each.opts[0].startswith("-") and not each.hidden)]
    )
    assert "INTEGER" not in shown
    assert "FLOAT" not in shown


@pytest.mark.parametrize("group", [(), ("bench",)])
def test_lists_of_commands_are_whole_sentences(group):
    """No summary is cut off in a terminal of 80 columns, and the order is that of use."""
    listed = run(*group, "--help").partition("Commands:\n")[2].splitlines()
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
    assert listed[0].split()[0] == ("both" if group else "pack")


def test_version():
    """The version is that of the package."""
    from importlib.metadata import version

    assert f"fastio {version('fastio')}\n" == run("--version")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_there_and_back(tmp_path, suffix):
    """pack, verify against the source, unpack: the same tree."""
    class_folders(tmp_path / "c")
    store = tmp_path / f"s.{suffix}"
    packed = result_of("pack", tmp_path / "c", store, "--jobs", 2)

    assert "packed 9 of 9 samples" in packed.output
    assert "class folders of images, 9 samples" in packed.stderr
    assert "all good" in run("verify", store, "--decode", "--against", tmp_path / "c")

    run("unpack", store, tmp_path / "again")

    assert files_below(tmp_path / "c") == files_below(tmp_path / "again")


def test_skipped_samples_are_all_listed(tmp_path):
    """Every one, however many and however long, and the sum is right."""
    flat(tmp_path / "pngs", 40)
    long = "x" * 180
    for i in range(30):
        (tmp_path / "pngs" / f"{long}{i:02d}.npy").touch()
    output = run("pack", tmp_path / "pngs", tmp_path / "s.lmdb", "--on-error", "skip")

    assert "packed 40 of 70 found, 30 skipped (listed above" in output
    joined = "".join(line.split(" ")[0] for line in output.splitlines())
    assert all(f"{i:02d}.npy" in joined for i in range(30))


def test_errors_are_one_line(tmp_path):
    """An expected failure is one line on stderr, exit code 1, no traceback."""
    (tmp_path / "broken.lmdb").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    for args in (
        ("pack", tmp_path / "nothing", tmp_path / "s.lmdb"),
        ("pack", tmp_path / "empty", tmp_path / "s.lmdb"),
        ("info", tmp_path / "broken.lmdb"),
        ("ls", tmp_path / "nothing.lmdb"),
        ("verify", tmp_path / "nothing.h5"),
        ("unpack", tmp_path / "nothing.tar", tmp_path / "out"),
        ("show", tmp_path / "nothing.tar"),
    ):
        lines = run(*args, code=1).splitlines()

        assert 1 == len(lines)
        assert lines[0].startswith("error: ")


def test_nothing_there_is_said_first(tmp_path):
    """A name without a suffix may be a folder that is misspelt."""
    said = run("bench", "io", tmp_path / "nowhere", code=1)

    assert said.startswith(f"error: {tmp_path / 'nowhere'}: no such file or folder; ")


@pytest.mark.parametrize(
    "args",
    [("pack", "a"), ("pack", "a", "b", "--jobs", "0"), ("info",), ("verify", "a", "--against", "b", "--split", "c")],
)
def test_wrong_usage(args):
    """Exit code 2."""
    run(*args, code=2)


def test_info(folder):
    """For people and for machines."""
    text = run("info", folder / "s.lmdb")

    assert text.startswith(f"A store of training data: {folder / 's.lmdb'}\n\nsamples  ")
    assert re.search(r"^samples +7$", text, re.MULTILINE)
    assert re.search(r"^format +lmdb$", text, re.MULTILINE)
    assert "lmdb.open(path" in text
    assert 7 == json.loads(run("info", folder / "s.lmdb", "--json"))["samples"]
    assert "simd" in run("info", "--build")


@pytest.mark.parametrize(("more", "words"), [(0, "1 sample per class"), (2, "1 to 3 samples per class")])
def test_info_of_many_classes(tmp_path, more, words):
    """The least and the greatest number of samples, or the one that all classes have."""
    keys = [f"class {number:02d}/0.png" for number in range(21)] + [
        f"class 07/{number}.png" for number in (1, 2)[:more]
    ]
    for number, key in enumerate(keys):
        (tmp_path / "photos" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / key).write_bytes(picture(number))
    run("pack", tmp_path / "photos", tmp_path / "a.lmdb")

    assert words in run("info", tmp_path / "a.lmdb").splitlines()


def test_ls(folder):
    """Index, size, label and key; filtered and limited."""
    assert 7 == len(run("ls", folder / "s.lmdb").splitlines())
    index, size_bytes, label, key = run("ls", folder / "s.lmdb", "*5.png").split()
    assert ("5", "2", "0005.png") == (index, label, key)
    assert (folder / "pngs" / key).stat().st_size == int(size_bytes)
    assert 2 == len(run("ls", folder / "s.lmdb", "--limit", 2).splitlines())
    nothing = result_of("ls", folder / "s.lmdb", "none", code=1)
    assert ("", f"{folder / 's.lmdb'}: no key of 7 samples matches 'none'\n") == (nothing.stdout, nothing.stderr)
    record = json.loads(run("ls", folder / "s.lmdb", "0004*", "--json"))

    assert {"index": 4, "key": "0004.png", "label": 1, "class": None} == {
        k: record[k] for k in record if k != "size_bytes"
    }


def test_show(folder):
    """A PNG lies where it was asked for, and is not replaced unasked."""
    target = folder / "sheet.png"
    run("show", folder / "s.lmdb", "-o", target, "--count", 4, "--columns", 2, "--size", 64)
    with Image.open(target) as sheet:
        assert "PNG" == sheet.format

    run("show", folder / "s.lmdb", "-o", target, code=1)
    run("show", folder / "s.lmdb", "-o", target, "--overwrite")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["s.rar"],
            "expected a name that ends in one of .lmdb, .h5, .hdf5, .tar, .zip; shards are named name-%06d.tar",
        ),
        (["."], "expected a name that ends in"),
        (["s.lmdb"], "s.lmdb: exists; choose another name, or --overwrite"),
        (["none/s.tar"], "the folder none does not exist"),
        (["t.tar", "--shard-size", "1GB"], "a shard size needs a name with a number"),
        (["t-%d.lmdb"], "lmdb stores are one file"),
        (["t-%5d.tar"], "'%5d' would stay in the name"),
        (["t-%d-%d.tar"], "'%d' would stay in the name"),
    ],
)
def test_out_is_checked_before_the_source_is_scanned(folder, monkeypatch, args, message):
    """What is wrong with OUT is said at once."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("fastio.converters.open_source", lambda *_, **__: pytest.fail("scanned"))

    assert message in run("pack", "pngs", *args, code=1)


def test_numbers_of_shards_without_width(folder):
    """%d is a number as %06d is."""
    run("pack", folder / "pngs", folder / "t-%d.tar", "--shard-size", "2kB", "--labels", folder / "labels.pkl")

    assert (folder / "t-0.tar").exists()
    assert (folder / "t-1.tar").exists()
    assert 7 == json.loads(run("info", folder / "t-%d.tar", "--json"))["samples"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("x.jpg", "x.jpg: the contact sheet is a PNG: choose a name that ends in .png"),
        ("none/x.png", "none/x.png: the folder none does not exist; create it first"),
        ("/proc/x.png", "/proc/x.png: cannot be written (No such file or directory); free space, or choose"),
    ],
)
def test_show_where_it_cannot_write(folder, monkeypatch, out, message):
    """One line with the path as it was given: no errno, no hidden name."""
    monkeypatch.chdir(folder)
    said = run("show", "s.lmdb", "-o", out, code=1)

    assert f"error: {message}" in said
    assert 1 == len(said.splitlines())
    assert not {".partial", "Errno"} & set(said.split())


def test_show_counts_what_is_damaged(folder):
    """The sheet is written, and standard error says how many of its pictures are damaged."""
    data = bytearray((folder / "s.lmdb").read_bytes())
    data[data.index((folder / "pngs" / "0003.png").read_bytes()) + 60] ^= 1
    (folder / "s.lmdb").write_bytes(data)
    done = result_of("show", folder / "s.lmdb", "-o", folder / "sheet.png")

    assert "1 of the samples shown is damaged, e.g. 0003.png: damaged: differs from its checksum" in done.stderr
    assert "damaged" not in done.stdout


def test_info_lists_what_was_skipped(folder):
    """The line of info points to the list; the list has every key with its sentence, for machines too."""
    (folder / "pngs" / "empty.png").touch()
    store = folder / "skipped.lmdb"
    run("pack", folder / "pngs", store, "--on-error", "skip")

    assert "1 skipped (--skipped lists them)" in run("info", store)
    assert "empty.png  is empty (0 bytes)" in run("info", store, "--skipped")
    ledger = {"skipped": [{"key": "empty.png", "problem": "is empty (0 bytes)"}]}
    assert ledger == json.loads(run("info", store, "--json"))["ledger"]
    assert ledger == json.loads(run("info", store, "--json", "--skipped"))
    assert "nothing was skipped" in run("info", folder / "s.lmdb", "--skipped")


def test_info_of_a_foreign_tar_says_what_is_no_sample(tmp_path):
    """Its ledger is printed as that of our own stores is."""
    foreign_tar(tmp_path / "s.tar")
    with tarfile.open(tmp_path / "s.tar", "a") as archive:
        archive.addfile(tarfile.TarInfo("README"))

    assert "besides the samples: 1 skipped (--skipped lists them)" in run("info", tmp_path / "s.tar")
    assert "README  has no extension" in run("info", tmp_path / "s.tar", "--skipped")


def test_verify_says_what_is_wrong(folder):
    """Exit code 1, the sample's key in the table and in the JSON."""
    data = bytearray((folder / "s.lmdb").read_bytes())
    data[data.index((folder / "pngs" / "0003.png").read_bytes()) + 60] ^= 1
    (folder / "s.lmdb").write_bytes(data)

    output = run("verify", folder / "s.lmdb", code=1)
    assert "0003.png" in output
    assert "1 PROBLEM (listed above)" in output
    report = json.loads(run("verify", folder / "s.lmdb", "--json", code=1))
    assert (False, ["0003.png"]) == (report["ok"], [problem["key"] for problem in report["problems"]])


def test_unpack_with_labels(folder):
    """A label file beside the tree, when asked for."""
    run("unpack", folder / "s.lmdb", folder / "again", "--labels", folder / "again.csv")

    assert files_below(folder / "pngs") == files_below(folder / "again")
    assert "filename,label" == (folder / "again.csv").read_text().splitlines()[0]


def test_bench_io_of_different_sizes(tmp_path):
    """Pictures of different sizes are read with --crop, and without it the line says what to do."""
    (tmp_path / "pngs").mkdir()
    for side in (20, 30):
        Image.new("RGB", (side, side)).save(tmp_path / "pngs" / f"{side}.png")
    store = tmp_path / "s.lmdb"
    run("pack", tmp_path / "pngs", store)

    assert "different sizes" in run("bench", "io", store, code=1)
    assert 4 == json.loads(run("bench", "io", store, "--crop", 16, "--epochs", 2, "--json"))["samples"]


def test_bench_io(folder):
    """Every sample of every epoch is read."""
    result = json.loads(run("bench", "io", folder / "s.lmdb", "--batch-size", 2, "--epochs", 2, "--json"))

    assert 14 == result["samples"]
    assert "samples/s" in run("bench", "io", folder / "s.lmdb", "--shuffle", "--threads", 1)


def test_keys_cannot_move_the_cursor(tmp_path):
    """Control characters in names are shown, not sent."""
    flat(tmp_path / "pngs", 1)
    (tmp_path / "pngs" / "0000.png").rename(tmp_path / "pngs" / "a\x1b[2J.png")
    run("pack", tmp_path / "pngs", tmp_path / "s.lmdb")

    assert "\x1b" not in run("ls", tmp_path / "s.lmdb")
    assert "a\\x1b[2J" == printable("a\x1b[2J")


MAIN = "from fastio.cli import main; main()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_signal_leaves_nothing(tmp_path, warm_python, suffix, number):
    """Ctrl-C and SIGTERM in the middle: nothing of the store is left, the exit code says why, no traceback."""
    flat(tmp_path / "pngs", 30)
    script = (
        "import os, sys; from fastio.cli import main\n"
        "from fastio.converters import ListedSource; from fastio.converters.packing import pipeline\n"
        "pipeline.CHUNK_SAMPLES = 1\n"
        "begin = ListedSource.begin\n"
        "def stop(self, chunk, pool):\n"
        f"    if chunk.start == 15: os.kill(os.getpid(), {int(number)})\n"
        "    return begin(self, chunk, pool)\n"
        "ListedSource.begin = stop\n"
        f"sys.argv = ['fastio', 'pack', 'pngs', 's.{suffix}', '--jobs', '1']; main()"
    )
    done = warm_python.run(script, cwd=tmp_path)

    assert 128 + number == done.returncode, done.stderr
    assert ["pngs"] == [path.name for path in tmp_path.iterdir()]
    assert "Traceback" not in done.stderr
    if number == signal.SIGINT:
        assert "error: interrupted; the new store was not written" in done.stderr.splitlines()[-1]


INTERRUPTED = {  # the module and the function at whose call Ctrl-C comes
    "s.lmdb": [("pathlib", "Path.rename"), ("fastio.converters.packing.packer", "PackReport")],
    "s-%06d.tar": [("fastio.store.sets.seal", "read_set"), ("fastio.converters.packing.packer", "_report")],
}


@pytest.mark.parametrize(
    ("out", "module", "name"),
    [
        (out, *place)
        for out, places in INTERRUPTED.items()
        for place in [*places, ("fastio.converters.packing.advice", "packing_lines")]
    ],
)
def test_an_interrupt_when_the_store_is_there(tmp_path, warm_python, out, module, name):
    """Ctrl-C while the store gets its name, or after that: the store is there, and the last line says so."""
    flat(tmp_path / "pngs", 3)
    script = (
        "import importlib, os, signal, sys; from fastio.cli import main\n"
        f"*outer, name = '{name}'.split('.')\n"
        f"place = importlib.import_module('{module}')\n"
        "place = getattr(place, outer[0]) if outer else place\n"
        "real = getattr(place, name)\n"
        "def stop(*args, **options):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*args, **options)\n"
        "setattr(place, name, stop)\n"
        f"sys.argv = ['fastio', 'pack', 'pngs', '{out}', '--overwrite']; main()"
    )
    done = warm_python.run(script, cwd=tmp_path)

    assert 130 == done.returncode, done.stderr
    assert f"error: interrupted; {out}: the new store is complete under its name" == done.stderr.splitlines()[-1]
    assert [] == [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    with open_store(tmp_path / out) as store:
        assert 3 == len(store)


def test_a_terminal_that_is_full_when_the_store_is_there(tmp_path, warm_python):
    """A report that cannot be printed is an error, whose line says that the store is complete."""
    flat(tmp_path / "pngs", 3)
    done = warm_python.run(MAIN, "pack", "pngs", "s.h5", cwd=tmp_path, stdout=Path("/dev/full"))

    assert 1 == done.returncode
    expected = "error: system: No space left on device; s.h5: the new store is complete under its name"
    assert expected in done.stderr.splitlines()


def test_what_a_killed_pack_left_is_named(tmp_path, warm_python):
    """The next pack to that name removes it, and says so in a line of its own."""
    flat(tmp_path / "pngs", 3)
    (tmp_path / ".s.h5.partial-1-0").write_bytes(bytes(1000))
    done = warm_python.run(MAIN, "pack", "pngs", "s.h5", cwd=tmp_path)

    assert ".s.h5.partial-1-0: removed (1.0 kB), left by a process that was killed" in done.stderr.splitlines()
    assert ["pngs", "s.h5"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "said"),
    [("ls", "interrupted"), ("verify", "interrupted"), ("unpack", "interrupted; if the folder existed before")],
)
def test_what_an_interrupted_command_leaves(folder, monkeypatch, command, said):
    """Each says what is true of itself; one that only looks says nothing of files."""

    def interrupt(*_, **_options):
        raise KeyboardInterrupt

    for place in ("fastio.store.open_store", "fastio.store.beside.joined.open_store"):
        monkeypatch.setattr(place, interrupt)
    output = run(command, folder / "s.lmdb", *([folder / "out"] if command == "unpack" else []), code=130)

    assert output.startswith(f"error: {said}")
    assert (command == "unpack") == (";" in output)


@pytest.mark.parametrize(("command", "code"), [("ls", 0), ("info", 0), ("verify", 1)])
def test_a_closed_pipe_is_no_error(folder, command, code):
    """fastio ls | head ends quietly; only verify does not, whose exit code is a verdict that nobody has seen."""
    script = f"from fastio.cli import main; import sys; sys.argv = ['fastio', '{command}', 's.lmdb']; main()"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)

    assert (code, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1GB", 10**9),
        ("1.5 GB", 1_500_000_000),
        ("1GiB", 1 << 30),
        ("500MB", 500_000_000),
        ("64k", 64_000),
        ("7", 7),
        ("7B", 7),
    ],
)
def test_sizes(text, expected):
    """Sizes as people write them."""
    assert expected == SIZE.convert(text, None, None)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1XB", "1iB", "one"])
def test_sizes_that_are_none(text, tmp_path):
    """Refused as usage, with an example."""
    result = result_of("pack", tmp_path, "out-%06d.tar", "--shard-size", text, code=2)

    assert "not a size" in result.output


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (2e15, "2.0 PB"), (2e18, "2000.0 PB")],
)
def test_sizes_for_people(count, expected):
    """The unit changes before four digits."""
    assert expected == size(count)


def test_an_index_goes_into_a_folder(tmp_path: Path) -> None:
    """The name of a set object would become a folder that nothing opens."""
    wrong = result_of("index", tmp_path / "x.tar", "--to", tmp_path / "x.fastio-set", code=2)

    assert "expected a folder" in wrong.stderr
    assert not (tmp_path / "x.fastio-set").exists()
