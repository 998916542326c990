package kube

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Pass carries out what a controller has decided over one of our own objects,
// in the order that every controller of the house keeps: finalizer, side
// effects, status, event. T is the kind, such as *ModelActivation.
//
// A controller fills one in per pass and returns from Reconcile with
//
//	return kube.Outcome(ctx, pass.CarryOut(ctx, object))
type Pass[T client.Object] struct {
	// Client writes finalizer and status.
	Client client.Client
	// Recorder records the event of a changed condition; nil records none.
	Recorder events.EventRecorder

	// Finalizer guards the side effects. AddFinalizer writes it before them;
	// DropFinalizer takes it off after them, and no status is written then.
	Finalizer                   string
	AddFinalizer, DropFinalizer bool

	// Effects makes the side effects. failure is what the finalizer met, nil as
	// a rule: without its finalizer nothing may be made, but what has to be shut
	// still is. It returns failure or what it met itself. nil makes nothing.
	Effects func(ctx context.Context, failure error) error
	// Tell picks the failures that belong into the status, because a person must
	// read them; nil means IsRefused. They are returned all the same, so that the
	// pass is made again with a growing pause. All others leave the status alone.
	Tell func(failure error) bool
	// Status puts the new status into the object. failure is one that Tell picked,
	// or nil.
	Status func(object T, failure error)

	// Conditions finds the conditions of the object, Summary is the type whose
	// change makes an event, Failed tells whether that is a warning.
	Conditions func(object T) []metav1.Condition
	Summary    string
	Failed     func(object T) bool
}

// CarryOut makes the calls. object is as it was read and becomes what was written.
func (p Pass[T]) CarryOut(ctx context.Context, object T) error {
	var failure error
	if p.AddFinalizer {
		if _, failure = EnsureFinalizer(ctx, p.Client, object, p.Finalizer); apierrors.IsNotFound(failure) {
			return nil // the object is gone
		}
	}
	if p.Effects != nil {
		failure = p.Effects(ctx, failure)
	}
	tell := p.Tell
	if tell == nil {
		tell = IsRefused
	}
	if failure != nil && (IsStale(failure) || !tell(failure)) {
		return failure
	}
	if failure == nil && p.DropFinalizer {
		return DropFinalizer(ctx, p.Client, object, p.Finalizer)
	}
	before, ok := object.DeepCopyObject().(T)
	if !ok {
		return errors.New("carrying out a pass: the copy of " + Describe(object) + " has another type")
	}
	p.Status(object, failure)
	written, err := PatchStatus(ctx, p.Client, before, object)
	switch {
	case IsStale(err):
		return err // the next pass meets the failure again
	case err != nil:
		return errors.Join(failure, client.IgnoreNotFound(err))
	}
	if written {
		Notify(p.Recorder, object, FindCondition(p.Conditions(before), p.Summary), FindCondition(p.Conditions(object), p.Summary), p.Failed(object))
	}
	return failure
}

// staleRetry is the pause after an answer that says that the cache was behind.
const staleRetry = 100 * time.Millisecond

// Outcome is what Reconcile returns after a pass. That the cache was behind is
// no failure: it is looked again soon, without a growing pause.
func Outcome(ctx context.Context, err error) (reconcile.Result, error) {
	if IsStale(err) {
		log.FromContext(ctx).V(1).Info("cache was behind, looking again", "cause", err.Error())
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return reconcile.Result{}, err
}

// RefusedMessage is what a status says after an answer of the API server that
// will not get better by itself.
func RefusedMessage(failure error) string {
	return "The API server refused a change: " + Refusal(failure)
}
