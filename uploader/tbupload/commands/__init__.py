"""The commands of `tbupload`, and their output."""
