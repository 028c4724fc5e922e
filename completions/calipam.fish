complete --keep-order --exclusive --command calipam --arguments "(COMPLETE=fish calipam -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
