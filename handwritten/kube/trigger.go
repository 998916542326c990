package kube

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Trigger is a source of a controller that enqueues requests when it is told to,
// for events that are no objects: a kind appeared, a catalog was read again.
// The zero value is ready to use.
type Trigger struct {
	mutex sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Start is called by the controller.
func (t *Trigger) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.queue = queue
	return nil
}

// Enqueue adds requests. Before the controller has started nothing needs to be
// added: it looks at every object when it starts.
func (t *Trigger) Enqueue(requests ...reconcile.Request) {
	t.mutex.Lock()
	queue := t.queue
	t.mutex.Unlock()
	if queue == nil {
		return
	}
	for _, request := range requests {
		queue.Add(request)
	}
}
