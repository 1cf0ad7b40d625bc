package gemm

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/cpu/pool"
)

func numbers[T element](r *rand.Rand, n int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = T(r.NormFloat64())
	}
	return s
}

func ptr[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// naive computes a product element by element, in float64.
func naive[T element](p *Product, a, b []T) []T {
	c := make([]T, p.Entries()*p.M*p.CRow)
	for e := range p.Entries() {
		oa, ob, oc := p.offsets(e)
		for i := range p.M {
			for j := range p.N {
				var sum float64
				for k := range p.K {
					sum += float64(a[oa+i*p.A.Row+k*p.A.Col]) * float64(b[ob+k*p.B.Row+j*p.B.Col])
				}
				c[oc+i*p.CRow+j] = T(sum)
			}
		}
	}
	return c
}

// layouts are the strides of an operand of r×c elements.
func layouts(r, c int) []Matrix { return []Matrix{{c, 1}, {1, r}, {2 * c, 2}, {c + 3, 1}, {0, 1}} }

func check[T element](t *testing.T, d dtypes.DType, tolerance float64) {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := []int{1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 40, 65, 100}
	teams := []*pool.Pool{pool.New(1), pool.New(3)}
	defer teams[0].Close()
	defer teams[1].Close()
	for range 150 {
		pick := func() int { return sizes[r.IntN(len(sizes))] }
		p := &Product{DType: d, M: pick(), N: pick(), K: pick()}
		if r.IntN(6) == 0 {
			p.K += 500
		}
		if r.IntN(20) == 0 {
			p.K = 0
		}
		p.A, p.B = layouts(p.M, p.K)[r.IntN(5)], layouts(p.K, p.N)[r.IntN(4)]
		p.CRow = p.N + r.IntN(2)*5
		a, b := numbers[T](r, 4*(p.M+1)*(2*p.K+4)), numbers[T](r, 4*(p.K+1)*(2*p.N+4))
		if r.IntN(3) == 0 {
			p.Batch = []Batch{{Size: 2, A: 2 * p.M, B: 0, C: 2 * p.M * p.CRow}, {Size: 2, A: p.M, B: p.N, C: p.M * p.CRow}}
		}
		want := naive(p, a, b)
		var first []T
		for _, team := range teams {
			c := numbers[T](r, len(want)+8)
			before := append([]T(nil), c...)
			if err := p.Run(team, ptr(a), ptr(b), ptr(c)); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if p.outside(i) {
					if c[i] != before[i] {
						t.Fatalf("%+v: element %d beside the result was written", *p, i)
					}
					continue
				}
				if math.Abs(float64(c[i]-want[i])) > tolerance*math.Sqrt(float64(p.K+1)) {
					t.Fatalf("%+v: element %d is %v, not %v", *p, i, c[i], want[i])
				}
				if first != nil && first[i] != c[i] {
					t.Fatalf("%+v: element %d depends on the number of threads", *p, i)
				}
			}
			first = c
		}
	}
}

// outside tells whether an element lies between the rows of C.
func (p *Product) outside(i int) bool { return i%p.CRow >= p.N }

func TestProductsOfAnyStridesAndSizes(t *testing.T) {
	best := isa.Best()
	defer use(isa.Current())
	for l := isa.Portable; l <= best; l++ {
		t.Run(l.String(), func(t *testing.T) {
			use(l)
			check[float32](t, dtypes.Float32, 1e-5)
			check[float64](t, dtypes.Float64, 1e-13)
		})
	}
}
