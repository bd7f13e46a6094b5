"""What `pulumi` runs, in the folder that Pulumi.yaml calls `main`."""

from stacks.program import run

run()
