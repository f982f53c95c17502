from collections.abc import Callable, Mapping, Sequence
from typing import Any

ROLES: Mapping[str, int]

class Outlines:
    def __init__(
        self,
        learn: Callable[[bytes, tuple[int, ...]], tuple[Any, ...] | None],
        fields: Sequence[tuple[bytes, str]],
        longest: int,
    ) -> None: ...
