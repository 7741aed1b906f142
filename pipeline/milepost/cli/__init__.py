"""The `milepost` command: thin commands over the JobMaster. Nothing heavy is imported until a command needs it."""
