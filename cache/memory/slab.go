package memory

// slab holds elements by number, from 1. It grows by whole chunks, so that
// growing never moves what is there (but for the first chunk, which is small at
// first, so that a small board stays small). A number may stand for several
// Ts in a row, as many as width says.
//
// Numbers instead of pointers keep the garbage collector out: it sees a chunk
// as one object without pointers.
type slab[T any] struct {
	chunks [][]T
	width  int
	shift  uint // 1<<shift numbers a chunk
	last   uint32
	free   []uint32
	alloc  *allocator
}

// chunkBytes is about how large a chunk is.
const chunkBytes = 1 << 18

func newSlab[T any](width, elementBytes int, alloc *allocator) slab[T] {
	shift := uint(0)
	for elementBytes*width<<(shift+1) <= chunkBytes {
		shift++
	}
	return slab[T]{width: width, shift: shift, alloc: alloc}
}

// at returns the Ts of number i.
func (s *slab[T]) at(i uint32) []T {
	at := int(i&(1<<s.shift-1)) * s.width
	return s.chunks[i>>s.shift][at : at+s.width : at+s.width]
}

// take returns a number whose Ts are zero.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		clear(s.at(i))
		return i
	}
	s.last++
	chunk, within := int(s.last>>s.shift), int(s.last&(1<<s.shift-1))
	if chunk == len(s.chunks) {
		s.chunks = append(s.chunks, nil)
	}
	if need := (within + 1) * s.width; len(s.chunks[chunk]) < need {
		s.chunks[chunk] = grown(s.alloc, s.chunks[chunk], chunk == 0, need, s.width<<s.shift)
	}
	return s.last
}

// release gives a number back.
func (s *slab[T]) release(i uint32) { s.free = append(s.free, i) }

// used is how many numbers are taken.
func (s *slab[T]) used() int { return int(s.last) - len(s.free) }
