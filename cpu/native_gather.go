package cpu

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() {
	natives[ir.OpGather] = gatherRows
	natives[ir.OpScatterSum] = scatterRows
}

// isRows tells whether indices name whole rows along the first axis of a tensor, one index each.
func isRows(table, indices *ir.Value, vectorAxis int, first []int) bool {
	rank := indices.Shape.Rank()
	one := vectorAxis == rank || vectorAxis == rank-1 && dimsOf(indices)[rank-1] == 1
	return table.Shape.Rank() > 0 && one && slices.Equal(first, []int{0}) && indexReader(indices.Shape.DType) != nil
}

// indexReader reads index i of memory.
func indexReader(d dtypes.DType) func(p unsafe.Pointer, i int) int {
	switch d {
	case dtypes.Int32:
		return func(p unsafe.Pointer, i int) int { return int(*(*int32)(unsafe.Add(p, i*4))) }
	case dtypes.Int64:
		return func(p unsafe.Pointer, i int) int { return int(*(*int64)(unsafe.Add(p, i*8))) }
	case dtypes.Uint32:
		return func(p unsafe.Pointer, i int) int { return int(*(*uint32)(unsafe.Add(p, i*4))) }
	case dtypes.Uint8:
		return func(p unsafe.Pointer, i int) int { return int(*(*uint8)(unsafe.Add(p, i))) }
	}
	return nil
}

// trailing tells whether axes are the last ones of a tensor, in order.
func trailing(axes []int, s shapes.Shape) bool {
	for i, a := range axes {
		if a != s.Rank()-len(axes)+i {
			return false
		}
	}
	return true
}

// outside ends a task with an error.
func outside(op *ir.Op, index, rows int) {
	panic(fmt.Sprintf("index %d of %s is outside 0…%d", index, op, rows-1))
}

// gatherRows copies rows of a table: an embedding.
func gatherRows(op *ir.Op) nativeFunc {
	a, table, indices, out := op.Attrs.(*ir.Gather), op.Inputs[0], op.Inputs[1], op.Outputs[0]
	if !isRows(table, indices, a.IndexVectorAxis, a.StartIndexMap) || !slices.Equal(a.CollapsedSliceAxes, []int{0}) ||
		!slices.Equal(a.SliceSizes[1:], dimsOf(table)[1:]) || a.SliceSizes[0] != 1 || !trailing(a.OffsetOutputAxes, out.Shape) {
		return nil
	}
	read := indexReader(indices.Shape.DType)
	rows, n := dimsOf(table)[0], indices.Shape.Size()
	row := product(dimsOf(table)[1:]) * table.Shape.DType.Size()
	tasks := max(1, min(n, n*row/moved))
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		return team.Run(tasks, func(_ *pool.Worker, t int) {
			for i := t * n / tasks; i < (t+1)*n/tasks; i++ {
				k := read(in[1], i)
				if k < 0 || k >= rows {
					outside(op, k, rows)
				}
				copyStrided(unsafe.Add(out[0], i*row), unsafe.Add(in[0], k*row), row, 1, 1)
			}
		})
	}
}

// scatterRows adds rows to those of a table: the gradient of an embedding. Threads share out columns, so that every
// element is added up in the order of the indices.
func scatterRows(op *ir.Op) nativeFunc {
	a, table, indices, updates := op.Attrs.(*ir.ScatterSum), op.Inputs[0], op.Inputs[1], op.Inputs[2]
	d := table.Shape.DType
	add := kernel.Binary("Add", d, 0)
	if !isRows(table, indices, a.IndexVectorAxis, a.ScatterAxesToOperandAxes) || !slices.Equal(a.InsertedWindowAxes, []int{0}) ||
		!trailing(a.UpdateWindowAxes, updates.Shape) || len(a.UpdateWindowAxes) != table.Shape.Rank()-1 || add == nil ||
		updates.Shape.DType != d {
		return nil
	}
	read := indexReader(indices.Shape.DType)
	rows, n := dimsOf(table)[0], indices.Shape.Size()
	cols, size := product(dimsOf(table)[1:]), d.Size()
	if updates.Shape.Size() != n*cols {
		return nil
	}
	bytes := rows * cols * size
	copies := max(1, min(64, bytes/moved))
	tasks := max(1, min(cols/16, n*cols*size/moved))
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		err := team.Run(copies, func(_ *pool.Worker, t int) {
			from, to := t*bytes/copies, (t+1)*bytes/copies
			copyStrided(unsafe.Add(out[0], from), unsafe.Add(in[0], from), to-from, 1, 1)
		})
		if err != nil {
			return err
		}
		return team.Run(tasks, func(w *pool.Worker, t int) {
			from, to := t*cols/tasks, (t+1)*cols/tasks
			x := &w.Args
			x.Rows, x.Cols = 1, to-from
			for i := range n {
				k := read(in[1], i)
				if k < 0 || k >= rows {
					outside(op, k, rows)
				}
				x.D = unsafe.Add(out[0], (k*cols+from)*size)
				x.A, x.B = x.D, unsafe.Add(in[2], (i*cols+from)*size)
				add(x)
			}
		})
	}
}
