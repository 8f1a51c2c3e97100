"""What every unit test stands on: no settings from outside, no traces left behind, threads that start together."""

import multiprocessing
import resource
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, Protocol

import hypothesis
import pytest

from leanops.home import Home

hypothesis.settings.register_profile("unit", deadline=None, database=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("unit")


class Together(Protocol):
    """Calls that begin at the same moment, each in a thread of its own; their results, in order."""

    def __call__(self, calls: Sequence[Callable[[], Any]]) -> list[Any]: ...


PROCESSES = 4


class InProcesses(Protocol):
    """A function at the same moment in several processes, each with arguments of its own; their results, in order."""

    def __call__(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]: ...


NoRoomBeyond = Callable[[int], AbstractContextManager[None]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").prepare()


@pytest.fixture
def together() -> Together:
    def run(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        start = Barrier(len(calls))

        def begin(call: Callable[[], Any]) -> Any:
            start.wait(timeout=30)
            return call()

        with ThreadPoolExecutor(max_workers=len(calls)) as pool:
            return [future.result(timeout=60) for future in [pool.submit(begin, call) for call in calls]]

    return run


@pytest.fixture
def no_room_beyond() -> NoRoomBeyond:
    """While it lasts no file of this process may grow beyond so many bytes, as on a disk that is full."""

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit


_start: Any = None


def _remember_start(start: Any) -> None:
    global _start  # noqa: PLW0603 - how a worker process is handed something that cannot be sent later
    _start = start


def _begin(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    _start.wait(timeout=60)
    try:
        return function(*arguments)
    except Exception:  # noqa: BLE001 - whatever it was, its trace is what the test has to show
        raise AssertionError(traceback.format_exc()) from None


@pytest.fixture(scope="session")
def in_processes() -> Iterator[InProcesses]:
    context = multiprocessing.get_context("forkserver")
    # Iceberg takes seconds to import: once for all the processes.
    context.set_forkserver_preload(["tests.draining"])
    start = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, context, initializer=_remember_start, initargs=(start,)) as pool:

        def run(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
            assert len(arguments) == PROCESSES
            return [each.result(timeout=120) for each in [pool.submit(_begin, function, own) for own in arguments]]

        yield run
