package estimates

// offload adds what vLLM needs when weights stay in RAM.
//
// KV cache, reserve and embeddings have to lie on the GPU; the weights of the
// layers may stay in RAM, from where the GPU reads them. So
//
//	cpuOffloadMi = minimum - budget, from 0 to weights - embeddings
//
// is the weight budget of spec.local.cpuOffloadMi, which never covers the KV
// cache. The host needs it and 4096 Mi for vLLM itself, with headroom as E.5 has
// it: without offloading that makes the 6144 Mi of the engine catalog. On an
// unknown model everything counts as weights of layers.
func (m *Model) offload(out *Estimate, request Request) {
	pinned := int64(0)
	if m.dimensions != nil {
		pinned = min(toMi(m.dimensions.pinnedBytes()), out.WeightsMi)
	}
	movable := out.WeightsMi - pinned
	inRAM := movable
	if request.BudgetMi > 0 {
		inRAM = clamp(out.MinimumMi-request.BudgetMi, 0, movable)
		out.CPUOffloadMi = &inRAM
	}
	least := vllmHostMemoryMi + inRAM
	out.Offloading = &Offloading{
		RAMMinimumMi: least, RAMRecommendedMi: least + headroomOf(least, headroomFloorMi),
		RAMMaximumMi: request.Available.FreeRAMMi,
		GPUMinimumMi: out.MinimumMi - movable, GPURecommendedMi: out.RecommendedMi,
		FitsVRAM:  out.fits(request.BudgetMi),
		WeightsMi: out.WeightsMi, KVCacheMi: out.KVCacheMi, RuntimeMi: out.ReserveMi,
	}
	if request.BudgetMi > 0 && request.BudgetMi < out.Offloading.GPUMinimumMi {
		out.warn("the GPU budget of %d Mi is below the %d Mi without which the model cannot start, however much of it is in RAM",
			request.BudgetMi, out.Offloading.GPUMinimumMi)
	}
}

// fits tells that everything lies on the GPU at a budget, or, without one, in
// what is left of it. Unknown is no.
func (e *Estimate) fits(budget int64) bool {
	if budget == 0 && e.MaximumMi != nil {
		budget = *e.MaximumMi
	}
	return budget >= e.MinimumMi
}
