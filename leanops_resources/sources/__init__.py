"""Where messages come from: a folder of files, or queues."""
