package passes

// RunTable runs the passes of another table.
var RunTable = run
