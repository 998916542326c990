package modelindex

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

const (
	// callers is how many calls are made to LiteLLM at a time.
	callers = 4
	// changesPerPass bounds one pass, so that a model that stops answering does not
	// wait behind a thousand new ones.
	changesPerPass = 128
)

// outcome is what came of asking LiteLLM.
type outcome struct {
	// deployments that LiteLLM has now.
	deployments []Deployment
	// problem with LiteLLM as a whole; deployments are not known then.
	problem string
	// troubles with single models.
	troubles []Trouble
	// more changes are left for the next pass.
	more bool
}

// complete tells whether the index can be made of it.
func (o outcome) complete() bool { return o.problem == "" && !o.more }

// effort is what was tried to bring LiteLLM to what is desired. It lasts until
// nothing is left to try, over several passes when there is much to do.
type effort struct {
	// refused by LiteLLM, by ID.
	refused map[string]Trouble
	// tries by ID: what an update did not change is made anew.
	tries map[string]int
	// made anew, by ID.
	made map[string]bool
}

// maxTries of one deployment: an update, and making it anew.
const maxTries = 2

// sync brings LiteLLM to what is desired, a part of it when it is much.
func (r *Reconciler) sync(ctx context.Context, desired Desired, masterKey string) outcome {
	lite := LiteLLM{BaseURL: r.Settings.LiteLLMBaseURL, MasterKey: masterKey, Timeout: r.Settings.CallTimeout, HTTP: r.HTTP}
	if r.state.memory.Accepted == nil {
		r.state.memory.Accepted = map[string]string{}
	}
	if r.state.effort == nil {
		r.state.memory.Updated = map[string]bool{}
		r.state.effort = &effort{refused: map[string]Trouble{}, tries: map[string]int{}, made: map[string]bool{}}
	}
	for budget := changesPerPass; ; {
		deployments, err := lite.Deployments(ctx)
		if err != nil {
			return r.fail(err)
		}
		r.accept(deployments, desired, masterKey)
		plan := Sync(deployments, desired, masterKey, r.state.memory)
		untried := r.state.effort.untried(plan.Changes)
		switch {
		case len(untried) == 0:
			result := outcome{deployments: deployments, troubles: plan.Troubles}
			for _, change := range plan.Changes {
				result.troubles = append(result.troubles, unfinished(change, r.state.effort.refused))
			}
			r.state.effort = nil
			r.state.memory.forget(deployments)
			return result
		case budget <= 0:
			return outcome{more: true}
		}
		part := untried[:min(budget, len(untried))]
		budget -= len(part)
		if err := r.make(ctx, lite, part); err != nil {
			return r.fail(err)
		}
	}
}

// forget what was accepted of deployments that are gone.
func (m *Memory) forget(present []Deployment) {
	known := map[string]bool{}
	for _, deployment := range present {
		known[deployment.ID()] = true
	}
	maps.DeleteFunc(m.Accepted, func(id, _ string) bool { return !known[id] })
}

// fail ends the effort: LiteLLM does not work at the moment.
func (r *Reconciler) fail(err error) outcome {
	r.state.effort = nil
	return outcome{problem: sentence(err)}
}

func (e *effort) untried(changes []Change) []Change {
	return slices.DeleteFunc(slices.Clone(changes), func(change Change) bool {
		_, refused := e.refused[change.ID]
		return refused || e.tries[change.ID] >= maxTries
	})
}

// accept remembers how LiteLLM shows what it has just taken, so that words of its
// own are not corrected for ever.
func (r *Reconciler) accept(deployments []Deployment, desired Desired, masterKey string) {
	for _, deployment := range deployments {
		record := desired.Records[deployment.Name]
		if record != nil && r.state.effort.made[deployment.ID()] && deployment.Info[infoRevision] == revision(record, masterKey) {
			r.state.memory.Accepted[deployment.ID()] = Shown(deployment)
		}
	}
}

func unfinished(change Change, refused map[string]Trouble) Trouble {
	if trouble, known := refused[change.ID]; known {
		return trouble
	}
	trouble := Trouble{Name: change.ID, Message: "LiteLLM did not take the change"}
	if change.Record != nil {
		trouble.Name, trouble.Activation = change.Record.Name, change.Record.Activation
	}
	return trouble
}

// make carries changes out, several at a time within one verb. What LiteLLM
// refuses is noted and does not stop the others; a LiteLLM that does not answer
// ends it.
func (r *Reconciler) make(ctx context.Context, lite LiteLLM, changes []Change) error {
	for start := 0; start < len(changes); {
		end := start
		for end < len(changes) && changes[end].Verb == changes[start].Verb {
			end++
		}
		if err := r.makeAll(ctx, lite, changes[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func (r *Reconciler) makeAll(ctx context.Context, lite LiteLLM, changes []Change) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var mutex sync.Mutex
	var broken error
	work := make(chan Change)
	for range min(callers, len(changes)) {
		group.Go(func() {
			for change := range work {
				err := carryOut(ctx, lite, change)
				mutex.Lock()
				r.note(change)
				switch {
				case err == nil:
				case isRefusal(err):
					trouble := unfinished(change, nil)
					trouble.Message = sentence(err)
					r.state.effort.refused[change.ID] = trouble
				case broken == nil:
					broken = err
					cancel()
				}
				mutex.Unlock()
			}
		})
	}
	for _, change := range changes {
		if ctx.Err() != nil {
			break
		}
		work <- change
	}
	close(work)
	group.Wait()
	return broken
}

func (r *Reconciler) note(change Change) {
	r.state.effort.tries[change.ID]++
	r.state.effort.made[change.ID] = change.Verb == Replace || change.Verb == Add
	r.state.memory.Updated[change.ID] = change.Verb == Update
}

func carryOut(ctx context.Context, lite LiteLLM, change Change) error {
	switch change.Verb {
	case Remove:
		return lite.Delete(ctx, change.ID)
	case Update:
		return lite.Update(ctx, Wanted(change.Record, change.ID, lite.MasterKey))
	case Replace:
		// One that cannot be deleted is told so by the next call.
		if err := lite.Delete(ctx, change.ID); err != nil && !isRefusal(err) {
			return err
		}
		return lite.Add(ctx, Wanted(change.Record, change.ID, lite.MasterKey))
	case Add:
		return lite.Add(ctx, Wanted(change.Record, change.ID, lite.MasterKey))
	}
	return errors.New("asking LiteLLM: an unknown change")
}
