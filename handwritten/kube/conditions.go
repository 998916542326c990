package kube

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxConditionMessage is the bound of conditions[].message in bytes
	// (contract/rulings.md 1). The schema counts characters, so bytes are the
	// stricter reading.
	MaxConditionMessage = 32768
	// MaxStatusMessage is the bound of status.message in bytes (contract/rulings.md 1).
	MaxStatusMessage = 1024
	// MaxReason is the bound of conditions[].reason in bytes.
	MaxReason = 1024
)

// SetCondition puts one condition into the list and reports whether the list
// changed. lastTransitionTime moves to now only when the status flips; reason,
// message and observedGeneration follow on their own, so a controller that
// finds the same facts twice writes the same bytes twice.
func SetCondition(conditions *[]metav1.Condition, condition metav1.Condition, now time.Time) bool {
	condition.Message = Truncate(condition.Message, MaxConditionMessage)
	condition.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	return meta.SetStatusCondition(conditions, condition)
}

// FindCondition returns the condition of that type, nil when there is none.
func FindCondition(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(conditions, conditionType)
}

// Truncate cuts a text to at most limit bytes at a rune boundary and marks the cut.
func Truncate(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const mark = "…"
	if limit < len(mark) {
		return ""
	}
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

var (
	reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
	urlPattern    = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)
	tokenPattern  = regexp.MustCompile(`\b(hf_|sk-|ghp_|github_pat_|glpat-|xox[abp]-)[A-Za-z0-9_-]{6,}|\b(?i:(bearer) +)[A-Za-z0-9._~+/-]{6,}=*`)
)

// ValidReason returns the reason when it fits the schema of a condition and the
// fallback otherwise. Reasons of foreign objects pass through it: an odd one
// must not make our status unwritable.
func ValidReason(reason, fallback string) string {
	if len(reason) > MaxReason || !reasonPattern.MatchString(reason) {
		return fallback
	}
	return reason
}

// Sanitize removes user names, passwords and queries from the URLs in a text,
// and access tokens of a known form, because messages of other programs may
// carry them.
func Sanitize(text string) string {
	text = tokenPattern.ReplaceAllString(text, "${1}${2}[removed]")
	return urlPattern.ReplaceAllStringFunc(text, func(found string) string {
		scheme, rest, _ := strings.Cut(found, "://")
		authority, path := rest, ""
		if at := strings.IndexAny(rest, "/?#"); at >= 0 {
			authority, path = rest[:at], rest[at:]
		}
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			authority = authority[at+1:]
		}
		if at := strings.IndexAny(path, "?#"); at >= 0 {
			path = path[:at]
		}
		return scheme + "://" + authority + path
	})
}
