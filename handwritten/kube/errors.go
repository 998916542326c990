package kube

import (
	"errors"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsStale reports an error that only says that the cache was behind: somebody
// wrote in between, or made an object that was not there. The cure is to look
// again, not to complain. That an object is gone is not among them: whether a
// NotFound is about the object itself or about the place for a new one, and
// what follows, only the caller knows.
func IsStale(err error) bool {
	return apierrors.IsConflict(err)
}

// IsRefused reports an answer that will not change by asking again: the API
// server understood the request and refused its content, or its sender. It
// belongs into the status of the object that asked; everything else is retried
// with a growing pause and leaves the status alone.
func IsRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// Refusal is the sentence of the API server without the wrapping of the
// client, so that it can stand in a status message.
func Refusal(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		answer := status.Status()
		if answer.Message != "" && answer.Status == metav1.StatusFailure {
			return Sanitize(answer.Message)
		}
	}
	return Sanitize(err.Error())
}

func typeName(value any) string {
	t := reflect.TypeOf(value)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "object"
	}
	return t.Name()
}
