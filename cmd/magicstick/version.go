package main

import (
	"github.com/spf13/cobra"

	"magicstick.dev/operator/handwritten/validate"
)

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which program this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeResult(cmd.OutOrStdout(), output, validate.ReadBuildInfo())
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}
