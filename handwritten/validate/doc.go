// Package validate is the job of a person who has manifests in files and wants to
// know, without a cluster, whether the API server would take them: every
// document is checked against schema and rules of its kind, and every refusal
// is shown with file, line, field and rule.
//
// In go file names, folders or standard input; out comes a Report. The answers
// are those of generated/validation; this package finds the documents, and the
// place in the file that an answer is about. What is no fault but may surprise, such
// as an object that a file holds twice, is a note.
//
// It also knows the version of the program, which a person compares with that
// of the cluster.
package validate
