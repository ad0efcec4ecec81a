"""Parts of `tbupload upload`: the experiment, its record, watched processes, dry runs."""
