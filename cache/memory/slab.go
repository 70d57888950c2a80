package memory

// slab holds elements, numbered from 1. Each element is width values of T. Chunks never move,
// except that the first chunk moves when it grows. Elements refer to each other by number, not by
// pointer, so the garbage collector does not scan them.
type slab[T any] struct {
	chunks [][]T
	width  int
	shift  uint // a chunk has 1<<shift elements
	last   uint32
	free   []uint32
	alloc  *allocator
}

const chunkBytes = 1 << 18

func newSlab[T any](width, bytesPerT int, alloc *allocator) slab[T] {
	shift := uint(0)
	for bytesPerT*width<<(shift+1) <= chunkBytes {
		shift++
	}
	return slab[T]{width: width, shift: shift, alloc: alloc}
}

func (s *slab[T]) element(i uint32) []T {
	start := int(i&(1<<s.shift-1)) * s.width
	return s.chunks[i>>s.shift][start : start+s.width : start+s.width]
}

// take allocates a zero element and returns its number.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		clear(s.element(i))
		return i
	}
	s.last++
	chunk, offset := int(s.last>>s.shift), int(s.last&(1<<s.shift-1))
	if chunk == len(s.chunks) {
		s.chunks = append(s.chunks, nil)
	}
	if need := (offset + 1) * s.width; len(s.chunks[chunk]) < need {
		s.chunks[chunk] = grown(s.alloc, s.chunks[chunk], chunk == 0, need, s.width<<s.shift)
	}
	return s.last
}

func (s *slab[T]) release(i uint32) { s.free = append(s.free, i) }
