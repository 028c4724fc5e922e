complete --keep-order --exclusive --command kubectl-ipam --arguments "(COMPLETE=fish kubectl-ipam -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
