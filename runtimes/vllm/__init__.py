"""vLLM's own server behind the serving interface, which runs inside it as a middleware.

`python -m runtimes.vllm` is the process that a pod watches: it holds the socket, answers probes while the model loads,
and runs `runtimes.vllm.server`, which is vLLM's server with the interface wrapped around its application.
"""
