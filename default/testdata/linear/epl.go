package main

import _ "github.com/easyparallel/epl/default"
