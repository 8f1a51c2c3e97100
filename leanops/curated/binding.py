"""Which columns of Standardized fill which column of a contract.

A column with a `source` is bound to that one field. Any other is bound to every field of its plain name, however deep
it stands and however it is written: `user.id`, `user_id` and `User.ID` are all `user_id`. A field that is an object
has no column, but those below it have, or the row says where it is.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from leanops.contracts.model import Contract, PayloadColumn
from leanops.standardized.flatten_plan import FlatColumn, Path, column_name


@dataclass(frozen=True)
class BoundColumn:
    """A column of a contract, and where a row of Standardized has what fills it."""

    column: PayloadColumn
    place: str | Path
    """The plain name, or the path, of the fields that it is bound to."""
    fields: tuple[str, ...]
    """The columns that fill it: those of a row that are not NULL, which must agree."""
    below: tuple[str, ...]
    """The columns of fields below it: where one of them is not NULL, the field is an object."""

    @property
    def is_unknown(self) -> bool:
        """Whether no message has had its field."""
        return not self.fields and not self.below


def bound_columns(contract: Contract, held: Iterable[FlatColumn]) -> list[BoundColumn]:
    """The contract's columns, bound to those that Standardized holds."""
    fields: defaultdict[str | Path, list[str]] = defaultdict(list)
    below: defaultdict[str | Path, list[str]] = defaultdict(list)
    for each in held:
        for place in (each.path, column_name(each.path)):
            fields[place].append(each.name)
        for level in range(1, len(each.path)):
            for place in (each.path[:level], column_name(each.path[:level])):
                below[place].append(each.name)
    bound = ((column, column.path or column.name) for column in contract.payload_columns)
    return [BoundColumn(column, place, tuple(fields[place]), tuple(below[place])) for column, place in bound]
