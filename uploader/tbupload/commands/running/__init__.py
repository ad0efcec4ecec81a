"""Parts of `tbupload run`: the command as a child process, and its output."""
