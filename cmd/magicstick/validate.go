package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"magicstick.dev/operator/handwritten/validate"
)

// exitError chooses the exit code. Its message is empty when everything was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// ExitCode is the exit code of the program.
func (e *exitError) ExitCode() int { return e.code }

func newValidateCommand() *cobra.Command {
	var options validate.Options
	var output string
	cmd := &cobra.Command{
		Use:   "validate -f FILE... [FILE...]",
		Short: "Check manifests against schema and rules, without a cluster",
		Long: `Check manifests against schema and rules, without a cluster.

The answer is the one that the API server would give: types, bounds and enums of
the schema, the rules across fields, and unknown fields as under
--validate=strict. An object that a file holds twice is checked as an update, and a
status as a write to the status subresource; a note says so. Notes change nothing
about the exit code.

Exit code: 0 everything is valid, 1 something would be refused, 2 the check was not
possible (wrong flag, file not readable, no object found).`,
		Example: `  magicstick validate -f appliance.yaml
  magicstick validate -R -f manifests/ -o json
  kustomize build . | magicstick validate -f - --skip-unknown-kinds`,
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Files = append(options.Files, args...)
			options.Input = cmd.InOrStdin()
			report, err := validate.Run(options)
			if err != nil {
				return &exitError{2, err}
			}
			if err := writeResult(cmd.OutOrStdout(), output, report); err != nil {
				return &exitError{2, err}
			}
			if !report.Valid() {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&options.Files, "filename", "f", nil, "file or folder to check, - for standard input; may be repeated")
	flags.BoolVarP(&options.Recursive, "recursive", "R", false, "descend into the folders of a folder")
	flags.BoolVar(&options.SkipUnknownKinds, "skip-unknown-kinds", false, "pass over objects of other products instead of refusing them")
	addOutputFlag(cmd, &output)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{2, err} })
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// printable is a result that can be shown to a person or to a program.
type printable interface {
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "format of the answer: text or json")
	formats := cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("output", formats); err != nil {
		panic(err) // the flag is defined above
	}
}

func writeResult(w io.Writer, format string, result printable) error {
	switch format {
	case "text":
		return result.WriteText(w)
	case "json":
		return result.WriteJSON(w)
	default:
		return fmt.Errorf("reading the flag --output: %q is not one of text, json", format)
	}
}
