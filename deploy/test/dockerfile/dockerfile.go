// Package dockerfile reads what a Dockerfile says about the image: which files it copies
// and how its container runs. Tests and the release compare with it, so that there is no
// second description of the image.
package dockerfile

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
)

// An Image is the content of the Dockerfile.
type Image struct {
	Build   []string // command lines of the build stage
	From    []string // base images, in order
	Copied  []instructions.CopyCommand
	Env     []string // NAME=VALUE
	Labels  map[string]string
	Dir     string
	User    string
	Volumes []string
	Exposed []string
	Stop    string
	Health  *dockerspec.HealthcheckConfig // Test[1:] is the command line
	Entry   []string
	Cmd     []string
}

// Read reads a Dockerfile with BuildKit's parser.
func Read(name string) (*Image, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	stages, _, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		return nil, err
	}
	img := &Image{Labels: map[string]string{}}
	for i, stage := range stages {
		img.From = append(img.From, stage.BaseName)
		for _, c := range stage.Commands {
			if i < len(stages)-1 {
				if run, ok := c.(*instructions.RunCommand); ok {
					img.Build = append(img.Build, strings.Join(run.CmdLine, " "))
				}
				continue
			}
			if err := img.add(c); err != nil {
				return nil, err
			}
		}
	}
	return img, nil
}

// add adds an instruction of the last stage.
func (img *Image) add(c instructions.Command) error {
	switch c := c.(type) {
	case *instructions.ArgCommand:
	case *instructions.LabelCommand:
		for _, kv := range c.Labels {
			img.Labels[kv.Key] = strings.Trim(kv.Value, `"`)
		}
	case *instructions.CopyCommand:
		img.Copied = append(img.Copied, *c)
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			img.Env = append(img.Env, kv.Key+"="+strings.Trim(kv.Value, `"`))
		}
	case *instructions.WorkdirCommand:
		img.Dir = c.Path
	case *instructions.UserCommand:
		img.User = c.User
	case *instructions.VolumeCommand:
		img.Volumes = append(img.Volumes, c.Volumes...)
	case *instructions.ExposeCommand:
		img.Exposed = append(img.Exposed, c.Ports...)
	case *instructions.StopSignalCommand:
		img.Stop = c.Signal
	case *instructions.HealthCheckCommand:
		if len(c.Health.Test) < 2 || c.Health.Test[0] != "CMD" {
			return fmt.Errorf("dockerfile: the health check %q needs a shell, but the image has none", c.Health.Test)
		}
		img.Health = c.Health
	case *instructions.EntrypointCommand:
		img.Entry = c.CmdLine
	case *instructions.CmdCommand:
		img.Cmd = c.CmdLine
	default:
		return fmt.Errorf("dockerfile: no support for %T", c)
	}
	return nil
}
