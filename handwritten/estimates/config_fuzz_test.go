package estimates

import (
	"errors"
	"os"
	"testing"
)

// Whatever the files say, they are refused with a problem or estimated with parts
// that add up, and more context never needs less.
func FuzzReadModel(f *testing.F) {
	folders, err := os.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, folder := range folders {
		if folder.Name() == "fuzz" {
			continue
		}
		files := fixtureFiles(f, folder.Name())
		f.Add(files.Config, files.Index, []byte(`{"safetensors":{"total":5,"parameters":{"BF16":5}}}`), int64(4096), int64(4), int64(20000))
	}
	f.Add([]byte(`{"a":NaN,"hidden_size":-Infinity}`), []byte(`{"metadata":{"total_size":1e15}}`), []byte(`{}`), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, config, index, answer []byte, context, sequences, budget int64) {
		var problem *Problem
		totals, err := ReadTotals(answer)
		if err != nil && !errors.As(err, &problem) {
			t.Fatalf("untyped %v", err)
		}
		for _, files := range []Files{{Config: config}, {Config: config, Index: index}, {Config: config, Totals: totals}} {
			model, err := ReadModel(files)
			switch {
			case errors.As(err, &problem) && problem.Source != "" && problem.Rule != "":
				continue
			case err != nil:
				t.Fatalf("untyped %v", err)
			}
			request := Request{ContextWindow: context, MaxNumSeqs: sequences, BudgetMi: budget}
			got, err := model.Estimate(request)
			switch {
			case errors.As(err, &problem) && problem.Source == sourceRequest && problem.Field != "":
				continue
			case err != nil:
				t.Fatalf("untyped %v", err)
			}
			checkParts(t, got)
			if context > 1 {
				request.ContextWindow = context / 2
				if less, err := model.Estimate(request); err != nil || less.KVCacheMi > got.KVCacheMi || less.MinimumMi > got.MinimumMi {
					t.Fatalf("half of the context: %+v, %v; all of it: %+v", less, err, got)
				}
			}
		}
	})
}

func checkParts(t *testing.T, got *Estimate) {
	t.Helper()
	o := got.Offloading
	switch {
	case got.WeightsMi < 0 || got.WeightsMi > maxMi || got.KVCacheMi < 0 || got.KVCacheMi > maxMi || got.ReserveMi < reserveFloorMi:
		t.Fatalf("out of bounds: %+v", got)
	case got.MinimumMi != got.WeightsMi+got.KVCacheMi+got.ReserveMi || got.RecommendedMi != got.MinimumMi+got.RecommendedReserveMi:
		t.Fatalf("the parts do not add up: %+v", got)
	case got.Confidence == ConfidenceHigh && got.WeightsMi == 0:
		t.Fatalf("certain of nothing: %+v", got)
	case o.GPUMinimumMi > got.MinimumMi || o.GPUMinimumMi < got.KVCacheMi || o.RAMMinimumMi < vllmHostMemoryMi || o.RAMRecommendedMi < o.RAMMinimumMi:
		t.Fatalf("%+v", o)
	case got.CPUOffloadMi != nil && (*got.CPUOffloadMi < 0 || *got.CPUOffloadMi > got.WeightsMi || o.FitsVRAM != (*got.CPUOffloadMi == 0) && *got.CPUOffloadMi != got.MinimumMi-o.GPUMinimumMi):
		t.Fatalf("%d to offload: %+v, %+v", *got.CPUOffloadMi, got, o)
	}
}
