"""A service as BentoML's users write it: doubles its input, at a path of its own."""

import bentoml


@bentoml.service(traffic={"timeout": 30})
class Double:
    @bentoml.api
    def double(self, rows: list[float]) -> list[float]:
        return [2 * x for x in rows]
