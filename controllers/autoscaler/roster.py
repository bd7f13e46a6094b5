"""The endpoints that there are: each object read once for as long as it does not change.

Its one idea: ten thousand objects are looked through every second, and hardly any has changed; nor is one that can't
be read complained of more than once.
"""

import logging
from collections.abc import Mapping

from controllers.autoscaler.view import Endpoint, endpoint_of
from controllers.kube import Object
from controllers.kube.fields import at
from controllers.kube.store import Key

log = logging.getLogger(__name__)


class Roster:
    def __init__(self) -> None:
        self._read: dict[Key, tuple[Object, Endpoint | None]] = {}

    def endpoints(self, objects: Mapping[Key, Object]) -> list[tuple[Endpoint, Object]]:
        """Without those that are being deleted or can't be read."""
        self._read = {key: self._view(key, obj) for key, obj in objects.items()}
        return [(endpoint, obj) for obj, endpoint in self._read.values() if endpoint is not None]

    def _view(self, key: Key, obj: Object) -> tuple[Object, Endpoint | None]:
        held = self._read.get(key)
        if held is not None and held[0] is obj:
            return held
        if at(obj, "metadata", "deletionTimestamp") is not None:
            return obj, None
        try:
            return obj, endpoint_of(obj)
        except (KeyError, ValueError, TypeError) as error:
            log.warning("endpoint not readable", extra={"endpoint": key, "error": str(error)})
            return obj, None
