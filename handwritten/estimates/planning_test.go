package estimates

import (
	"math"
	"testing"
)

// H49: a budget counts as often as the activation may run.
func TestPlannedCountsReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		budgets []Budget
		want    int64
	}{
		"nothing":             {nil, 0},
		"one":                 {[]Budget{{Mi: 24062, MaxReplicas: 1}}, 24062},
		"replicas left out":   {[]Budget{{Mi: 24062}}, 24062},
		"three replicas":      {[]Budget{{Mi: 24062, MaxReplicas: 3}, {Mi: 5120, MaxReplicas: 1}}, 3*24062 + 5120},
		"below zero":          {[]Budget{{Mi: -5, MaxReplicas: 1}, {Mi: 5, MaxReplicas: -1}}, 5},
		"more than fits":      {[]Budget{{Mi: math.MaxInt64, MaxReplicas: math.MaxInt64}, {Mi: 1, MaxReplicas: 1}}, maxMi},
		"many that are large": {[]Budget{{Mi: math.MaxInt64 - 1}, {Mi: math.MaxInt64 - 1}, {Mi: math.MaxInt64 - 1}}, maxMi},
	} {
		if got := Planned(test.budgets...); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestAmountsSaturate(t *testing.T) {
	const most = math.MaxInt64
	for name, test := range map[string][2]int64{
		"a product":              {times(3, 4, 5), 60},
		"a product with nothing": {times(most, most, 0), 0},
		"a negative factor":      {times(7, -1), 0},
		"a product at the edge":  {times(1<<31, 1<<31), 1 << 62},
		"a product beyond":       {times(1<<32, 1<<31), most},
		"a product far beyond":   {times(most, most, most), most},
		"a sum":                  {plus(3, 4), 7},
		"a sum beyond":           {plus(most, 1, most), most},
		"a quotient":             {divideUp(8, 4), 2},
		"a quotient rounded up":  {divideUp(9, 4), 3},
		"the largest quotient":   {divideUp(most, 2), 1 << 62},
		"one byte":               {toMi(1), 1},
		"nothing":                {toMi(0), 0},
		"a share":                {percentOf(8, 101), 9},
	} {
		if test[0] != test[1] {
			t.Errorf("%s: %d, want %d", name, test[0], test[1])
		}
	}
}

func TestMaximumIsUnknownNotZero(t *testing.T) {
	free := int64(1000)
	if got := freeOf(nil, 5); got != nil {
		t.Errorf("unknown is %d", *got)
	}
	if got := freeOf(&free, 300); *got != 700 {
		t.Errorf("free without planned is %d", *got)
	}
	if got := freeOf(&free, 1300); *got != 0 {
		t.Errorf("more planned than free is %d", *got)
	}
	if free != 1000 {
		t.Error("the caller's number changed")
	}
}
