"""Runs whose process is gone are ended: they would keep a place in the queue, and hold back their topics, for ever.

The code server notices when a run of its own dies. Nobody notices when it dies with the code server, as when the
machine goes down, or when a `leanops tick` is killed. Every run says in its log which process it is.
"""

import dagster as dg
import psutil

_GOING_ON = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


@dg.sensor(
    name="lost_runs",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends runs whose process is gone, so that what they have not built is built by another.",
)
def lost_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Look at all runs that are said to go on."""
    lost = end_lost_runs(context.instance)
    return dg.SkipReason(f"Ended {', '.join(lost)}: their processes are gone." if lost else "No run is lost.")


def end_lost_runs(instance: dg.DagsterInstance) -> list[str]:
    """End the runs whose process is gone; which there were."""
    lost = []
    for run in instance.get_runs(dg.RunsFilter(statuses=_GOING_ON)):
        said = _last_process(instance, run.run_id)
        if said and not _is_there(*said):
            instance.report_run_failed(run, f"The process of this run, {said[0]}, is gone: it was killed.")
            lost.append(run.run_id)
    return lost


def _last_process(instance: dg.DagsterInstance, run_id: str) -> tuple[int, float] | None:
    """The process that a run said last that it is, and when it said so."""
    for entry in reversed(instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)):
        event = entry.dagster_event
        if event and "pid" in event.engine_event_data.metadata:
            return int(str(event.engine_event_data.metadata["pid"].value)), entry.timestamp
    return None


def _is_there(pid: int, at: float) -> bool:
    """Whether the process of that moment is still there. Its id may have been used again."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= at and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
