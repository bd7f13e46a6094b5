"""The gateway's control plane: what the cluster holds -> one checked snapshot -> a live HAProxy.

Pure: `observed`, `snapshot`, `assignment`, `desired`, `diff`, `render` (of `answers`, `shapes`, `openai`, `access_log`,
`retries`), `status`. At the edge: `runtime_api` (HAProxy's command socket), `files`, `converge`, `control`. Its one
idea: HAProxy is told the difference between what is declared and what it says it does, so a crash on either side
leaves nothing to repair by hand.
"""
