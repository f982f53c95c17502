from collections.abc import Callable
from typing import Any

class PickledJobs:
    def __init__(
        self, learn: Callable[..., tuple[Any, ...] | None], offset: Callable[[str, bytes], int | None]
    ) -> None: ...
