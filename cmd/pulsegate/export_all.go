package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

// check returns an error if flags do not fit together.
func (c *exportCommand) check() error {
	some := c.Prefix.String() != "" || c.Subject != ""
	switch {
	case c.Device.IsZero() == (!c.All && !some):
		return settings.Usagef("export requires either --device, or one of --all, --prefix and --subject")
	case !c.Device.IsZero() && (c.Signs != "" || c.OutDir != ""):
		return settings.Usagef("--signs and --out-dir require --all, --prefix or --subject")
	case c.Device.IsZero() && (c.Data != "" || c.From != 0 || c.To != nil || c.Format == "omh"):
		return settings.Usagef("--data, --from, --to and the format omh require --device")
	case c.Out != "" && c.OutDir != "":
		return settings.Usagef("--out and --out-dir exclude each other")
	}
	return nil
}

// changes writes what the flags select, all in one, until it has caught up with the server.
func (c *exportCommand) changes(ctx context.Context, out, stderr io.Writer, _ moment) error {
	client, err := c.connect(c.Target, stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	return c.fetchChanges(ctx, client, out, c.selection())
}

func (c *exportCommand) fetchChanges(ctx context.Context, client *transfer.Client, out io.Writer,
	sel transfer.ChangeSelection) error {
	if c.Format != "ndjson" {
		return transfer.DownloadChanges(ctx, client, out, sel, c.Format)
	}
	return transfer.Changes(ctx, client, sel, func(page *transfer.ChangesPage) error {
		return writeChanges(out, page.Changes)
	})
}

// eachDevice writes a file for each device. After an error, none is left.
func (c *exportCommand) eachDevice(ctx context.Context, stderr io.Writer) (err error) {
	client, err := c.connect(c.Target, stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := os.Mkdir(c.OutDir, 0o700); errors.Is(err, os.ErrExist) {
		return settings.Usagef("--out-dir: %s exists, and is not overwritten", c.OutDir)
	} else if err != nil {
		return fmt.Errorf("--out-dir: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(c.OutDir))
		}
	}()
	devices, err := c.devices(ctx, client)
	if err != nil {
		return err
	}
	for _, device := range devices {
		sel := c.selection()
		sel.Device, sel.Prefix = device, ""
		file, err := createOutput("--out-dir", filepath.Join(c.OutDir, device+"."+c.Format))
		if err != nil {
			return err
		}
		if err := file.write(func(w io.Writer) error { return c.fetchChanges(ctx, client, w, sel) }); err != nil {
			return err
		}
	}
	return nil
}

// devices returns the devices that the flags select, by name: those that the subject wears or wore, if they name one.
func (c *exportCommand) devices(ctx context.Context, client *transfer.Client) (names []string, err error) {
	add := func(device string) {
		if name, err := vitals.ParseName(device); err == nil && name.HasPrefix(&c.Prefix) {
			names = append(names, device)
		}
	}
	if c.Subject == "" {
		err = client.Devices(ctx, 0, func(page []transfer.Device) error {
			for i := range page {
				add(page[i].Name)
			}
			return nil
		})
		return names, err
	}
	err = transfer.Changes(ctx, client, c.selection(), func(page *transfer.ChangesPage) error {
		for _, text := range page.Changes {
			var change struct{ Kind, Device string }
			if json.Unmarshal(text, &change, json.MatchCaseInsensitiveNames(true)) == nil && change.Kind == "assigned" {
				add(change.Device)
			}
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), err
}
