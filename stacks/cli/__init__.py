"""The `knobless` command line: what a person types around the Pulumi program.

It owns the order of things (set up, build, plan, gate, apply, show) and every sentence a person reads. It
leaves every decision about objects to `spec`, `components` and `policies`, and all live numbers to the controllers.
"""
