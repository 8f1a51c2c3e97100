"""Many tables in one Spark job: their files read and written by the workers, their metadata by whoever plans."""
