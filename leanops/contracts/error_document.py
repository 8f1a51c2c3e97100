"""`error.json`: why a contract was refused, for programs and for people who have no terminal."""

import json

from leanops.errors import LeanOpsError, Problem, ProblemsError


def error_document(error: LeanOpsError) -> bytes:
    """Every problem with its path, what was found, what is allowed, and the fix where it is known.

    A contract may be refused for something that is not written in it: then that is one problem of the whole.
    """
    document: dict[str, object] = {}
    problems: tuple[Problem, ...] = (Problem("$", error.problem),)
    if isinstance(error, ProblemsError):
        document["file"], problems = error.where, error.problems
    document |= {"problems": [problem.document() for problem in problems], "hint": error.hint}
    # A file's name may hold bytes that are no text: those are written as escapes, which JSON has too.
    return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "backslashreplace")
