"""The only place that runs Slurm: its command line tools behind a port, and the job_submit plugin."""
