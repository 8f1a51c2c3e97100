"""One topic's failure is its own: a job over many topics that fails is tried again without the one that broke it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leanops.batch.blame import blamed_in
from leanops.errors import RowsFailed, StepTimedOut

Result = TypeVar("Result")


@dataclass(frozen=True)
class Jobs:
    """Where the jobs of a batch run: a session, opened by whoever asks first, and how long a job may take."""

    sessions: Callable[[], SparkSession]
    limit: "Callable[[Sequence[str], int], AbstractContextManager[object]]" = lambda *_: nullcontext()
    """Interrupts a job over these topics that takes too long, by how often they were parted before."""

    def isolated(
        self, topics: Sequence[str], job: Callable[[Sequence[str]], Mapping[str, Result]], parted: int = 0
    ) -> dict[str, Result | Exception]:
        """What the job has made of each topic, or why it could not.

        A worker that fails names its topic, and the others are tried again without it. Where none is named, as when a
        worker process dies, they are halved until the one that breaks the job is alone. When the session is lost no
        topic is to blame, and nothing is tried again.
        """
        if not topics:
            return {}
        try:
            with self.limit(topics, parted):
                return dict(job(topics))
        except (PySparkException, StepTimedOut) as error:
            if not isinstance(error, StepTimedOut) and not answers(self.sessions()):
                raise
            blamed, what = blamed_in(str(error)) or ("", "")
            if blamed in topics:
                failed: dict[str, Result | Exception] = {blamed: rows_failed(blamed, what)}
                return failed | self.isolated([each for each in topics if each != blamed], job, parted)
            if len(topics) == 1:
                return {topics[0]: error}
        results: dict[str, Result | Exception] = {}
        for part in _halves(topics):
            results |= self.isolated(part, job, parted + 1)
        return results


def rows_failed(topic: str, what: str) -> RowsFailed:
    """What is raised for a topic that a worker has failed on."""
    return RowsFailed(f"The rows of {topic} could not be worked on: {what}", "What was built before stands as it was.")


def answers(session: SparkSession) -> bool:
    """Whether a session's server is there, and knows the session."""
    try:
        session.conf.get("spark.sql.session.timeZone")
    except Exception:  # noqa: BLE001 - whatever it says, it is no answer
        return False
    return True


def _halves(topics: Sequence[str]) -> list[Sequence[str]]:
    middle = len(topics) // 2
    return [topics[:middle], topics[middle:]]
