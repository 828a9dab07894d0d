// Command release writes what a release has besides archives and packages: the image as
// an OCI archive, without a container engine, and the list of what is linked in (SBOM).
// The same input makes the same bytes. The script deploy/release calls it.
//
//	release image -version 1.2.3 -revision COMMIT -epoch SECONDS -out FILE linux/amd64=DIR…
//	release sbom -version 1.2.3 -epoch SECONDS -licences FILE -out FILE PROGRAM…
//
// DIR has the files pulsegate, LICENSE and THIRD-PARTY-NOTICES for a platform. The
// Dockerfile says what the image consists of.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// options are the flags of both commands.
type options struct {
	version, revision, dockerfile, licences, out string
	created                                      time.Time
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("a command is missing: image or sbom")
	}
	var opt options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&opt.version, "version", "", "version of the release")
	flags.StringVar(&opt.revision, "revision", "", "commit of the release")
	flags.StringVar(&opt.dockerfile, "dockerfile", "Dockerfile", "the Dockerfile")
	flags.StringVar(&opt.licences, "licences", "docs/dependencies.md", "page with a table of modules and their licences")
	flags.StringVar(&opt.out, "out", "", "file to write")
	epoch := flags.Int64("epoch", 0, "time of the release, in seconds since 1970")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	opt.created = time.Unix(*epoch, 0).UTC()
	var text []byte
	var err error
	switch args[0] {
	case "image":
		text, err = imageArchive(&opt, flags.Args())
	case "sbom":
		text, err = sbom(&opt, flags.Args())
	default:
		err = fmt.Errorf("%s is not a command", args[0])
	}
	if err != nil {
		return err
	}
	return os.WriteFile(opt.out, text, 0o644)
}
