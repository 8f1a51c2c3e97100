"""Tables of cases that several suites share."""
