"""The commands of ``scheduler-extender``: one module each."""
