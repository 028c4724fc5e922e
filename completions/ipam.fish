complete --keep-order --exclusive --command ipam --arguments "(COMPLETE=fish ipam -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
