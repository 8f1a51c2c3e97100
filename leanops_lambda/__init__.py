"""The Lambdas of the way through a Firehose: behind the queues, and inside the Firehose (docs/aws.md)."""
