complete --keep-order --exclusive --command kubectl-calico --arguments "(COMPLETE=fish kubectl-calico -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
