"""Several experiments on one page: how they are named in its address, and how they are read as one."""
