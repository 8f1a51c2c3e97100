"""From a queue's messages to what lands in RAW: read, judge, classify, and never lose one."""
