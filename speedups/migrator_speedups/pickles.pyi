from collections.abc import Callable
from typing import Any

class PickleReader:
    def __init__(
        self,
        table: type[Any],
        made: type[Any],
        global_: type[Any],
        resolve: Callable[[object, object], Any],
        make: Callable[[object, object], Any],
        converted: frozenset[str],
        shared: str,
    ) -> None: ...
    def read(self, data: bytes) -> tuple[Any] | None: ...
