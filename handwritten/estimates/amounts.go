package estimates

import (
	"math"
	"math/bits"
)

const (
	// bytesPerMi is the size of one Mi.
	bytesPerMi = 1 << 20
	// maxMi bounds every amount of memory, in Mi: 16 TiB, as in the activations
	// (contract/rulings.md 1).
	maxMi = 1 << 24
)

// times multiplies amounts of zero and more; what does not fit is MaxInt64.
func times(factors ...int64) int64 {
	product := uint64(1)
	for _, factor := range factors {
		if factor <= 0 {
			return 0
		}
		high, low := bits.Mul64(product, uint64(factor))
		if high != 0 || low > math.MaxInt64 {
			product = math.MaxInt64
			continue
		}
		product = low
	}
	return int64(product)
}

// plus adds amounts of zero and more; what does not fit is MaxInt64.
func plus(amounts ...int64) int64 {
	sum := int64(0)
	for _, amount := range amounts {
		if amount > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += amount
	}
	return sum
}

// divideUp divides an amount of zero and more and rounds up.
func divideUp(amount, by int64) int64 {
	if amount%by == 0 {
		return amount / by
	}
	return amount/by + 1
}

// toMi turns bytes into Mi and rounds up.
func toMi(amount int64) int64 { return divideUp(amount, bytesPerMi) }

// percentOf is a share of an amount, rounded up.
func percentOf(percent, amount int64) int64 { return divideUp(times(percent, amount), 100) }

// clamp keeps an amount between two others.
func clamp(amount, low, high int64) int64 { return max(low, min(amount, high)) }
