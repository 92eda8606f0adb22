"""What only one operating system has stands in one file for it: native/src/platform/ and fastio/machine/."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLATFORM = ROOT / "native" / "src" / "platform"

# Headers and calls that POSIX does not have, of Linux and of macOS.
LINUX = (
    r"<(asm|linux)/|<sys/(auxv|epoll|eventfd|inotify|prctl|random|sendfile|statfs|syscall|sysinfo|vfs)\.h>|<malloc\.h>"
    r"|\b(gettid|getauxval|io_uring\w*|memfd_create|sched_[gs]etaffinity|splice|prctl|syscall|epoll_\w+|eventfd"
    r"|copy_file_range|sendfile|fallocate|posix_fallocate|posix_fadvise|pthread_getcpuclockid|pthread_setname_np"
    r"|pthread_setaffinity_np|readahead|statx|mremap|pipe2|accept4|dup3|malloc_trim|secure_getenv)\s*\("
    r"|\b(O_DIRECT|O_PATH|O_TMPFILE|RUSAGE_THREAD|MAP_POPULATE|MAP_ANONYMOUS|MADV_(HUGEPAGE|POPULATE_\w+)|RWF_\w+|st_mtim)\b"
)
PYTHON = (
    r"\bos\.(sched_\w+|posix_fadvise|POSIX_FADV_\w+|posix_fallocate|memfd_create|O_DIRECT|O_PATH|O_TMPFILE|eventfd|splice"
    r"|copy_file_range|sendfile)\b|\bmmap\.MAP_(NORESERVE|POPULATE|HUGETLB)\b|\bfcntl\.F_(SETPIPE_SZ|ADD_SEALS)\b"
)
DARWIN = r"<mach/|<sys/sysctl\.h>|\b(sysctlbyname|pthread_threadid_np|thread_info)\s*\(|\b(F_RDADVISE|st_mtimespec)\b"


def code(path: Path) -> str:
    """What the compiler sees of a file, but for strings."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def test_the_core_asks_an_operating_system_in_one_file_for_each() -> None:
    """Outside of them, what is compiled is C++ and POSIX; the other glibc of wheels is Linux's by its name."""
    elsewhere = [
        f"{path.relative_to(ROOT)}: {found.group(0)}"
        for path in sorted((ROOT / "native").rglob("*"))
        if path.suffix in {".cpp", ".h"} and path.parent != PLATFORM and path.name != "old_glibc.cpp"
        for found in re.finditer(f"{LINUX}|{DARWIN}", code(path))
    ]

    assert elsewhere == []


def test_each_platform_answers_all_that_the_header_asks() -> None:
    """One function of the header that a file lacks would be noticed by the linker of that system alone."""
    asked = set(re.findall(r"(\w+)\([^)]*\) noexcept;", code(PLATFORM / "platform.h")))
    answers = {
        path.name: set(re.findall(r"^\w[\w: ]* (\w+)\([^)]*\) noexcept \{", code(path), re.MULTILINE))
        for path in PLATFORM.glob("*.cpp")
    }

    assert len(asked) == 9
    assert answers == {"linux.cpp": asked, "darwin.cpp": asked}


def test_the_files_of_platforms_have_what_is_looked_for() -> None:
    """A pattern that finds nothing would find nothing elsewhere either."""
    assert re.search(LINUX, code(PLATFORM / "linux.cpp"))
    assert re.search(DARWIN, code(PLATFORM / "darwin.cpp"))


def test_python_asks_an_operating_system_in_one_module() -> None:
    """Elsewhere, a name of ``os`` that only Linux has would be an AttributeError on macOS."""
    modules = [*(ROOT / "fastio").rglob("*.py"), *(ROOT / "converters").rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in modules if re.search(PYTHON, path.read_text())}

    assert found == {"fastio/machine/system.py"}
