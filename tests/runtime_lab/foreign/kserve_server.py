"""A predictor as KServe's users write it: doubles its input, in its first protocol and in v2. Argument: the port."""

import sys

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Double(Model):
    def __init__(self) -> None:
        super().__init__("m")
        self.load()

    def load(self) -> bool:
        self.ready = True
        return self.ready

    def predict(self, payload, headers=None, response_headers=None):
        if isinstance(payload, InferRequest):
            given = payload.inputs[0]
            output = InferOutput(
                name="y", shape=list(given.shape), datatype=given.datatype, data=[2 * x for x in given.data]
            )
            return InferResponse(response_id=payload.id or "0", model_name=self.name, infer_outputs=[output])
        return {"predictions": [[2 * x for x in row] for row in payload["instances"]]}


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), enable_grpc=False, workers=1).start([Double()])
