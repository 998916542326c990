package estimates

// Budget is the memory that an activation has been promised.
type Budget struct {
	// Mi is the budget of one replica in Mi.
	Mi int64
	// MaxReplicas is how many of them may run at once; 0 counts as 1.
	MaxReplicas int64
}

// Planned adds up budgets, each as often as it may run: an activation with three
// replicas needs three times its vram (contract/appliance.md H49). An Estimate
// itself is about one replica, as vram and memoryRequiredMi are. Budgets below
// zero count nothing; a sum beyond 16 TiB is 16 TiB.
func Planned(budgets ...Budget) int64 {
	sum := int64(0)
	for _, budget := range budgets {
		sum = plus(sum, times(budget.Mi, max(budget.MaxReplicas, 1)))
	}
	return min(sum, maxMi)
}

// freeOf is what is left of free memory after what is planned, or nil where free
// memory is unknown: an unknown maximum is not zero (contract/appliance.md E.5).
func freeOf(free *int64, planned int64) *int64 {
	if free == nil {
		return nil
	}
	left := max(*free-planned, 0)
	return &left
}
