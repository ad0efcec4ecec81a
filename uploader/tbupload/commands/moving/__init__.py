"""Parts of `tbupload move`: the workspace to move to, the copy, and what is compared."""
