package transfer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
)

// Paths of the admin listener.
const (
	BackupPath = "/admin/backup"
	ErasePath  = "/admin/erase"

	AssignPath      = "/admin/subject/assign"
	EndPath         = "/admin/subject/end"
	AssignmentsPath = "/admin/subject/list"
)

// backupBytesHeader equals admin.BytesHeader; a test checks that.
const backupBytesHeader = "Pulsegate-Backup-Bytes"

// Backup fetches a backup from the admin listener and passes it to receive, with the
// total size of its files, or 0 if unknown. It returns the error of receive.
func (c *Client) Backup(ctx context.Context, receive func(archive io.Reader, fileBytes int64) error) error {
	resp, err := c.stream(ctx, http.MethodPost, BackupPath, nil)
	if err != nil {
		return fmt.Errorf("fetch backup: %w", err)
	}
	defer resp.Body.Close()
	fileBytes, _ := strconv.ParseInt(resp.Header.Get(backupBytesHeader), 10, 64) // 0 after an error
	return receive(resp.Body, fileBytes)
}

// Erase asks the admin listener to erase a device, and returns how many readings it
// had. It has no timeout. If the server rejects, the error wraps a *Problem.
func (c *Client) Erase(ctx context.Context, device string) (readings int64, err error) {
	var answer struct {
		Erased int64 `json:"erased"`
	}
	if err := c.administer(ctx, ErasePath, map[string]string{"device": device}, &answer); err != nil {
		return 0, fmt.Errorf("erase device %s: %w", device, err)
	}
	return answer.Erased, nil
}

// A Correction says which values of a device are to be erased. Times are in RFC 3339.
type Correction struct {
	Device  string   `json:"device"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	Signs   []string `json:"signs,omitempty"`  // fields; empty means all
	Gateway string   `json:"gateway,omitzero"` // only readings that it has sent alone; empty means all
	Shared  bool     `json:"shared,omitzero"`  // with Gateway, also those that another gateway has completed
}

// Erase is like [Client.Erase] for values of a device. It returns how many readings had such values.
func (what *Correction) Erase(ctx context.Context, c *Client) (readings int64, err error) {
	var answer struct {
		Erased int64 `json:"erased"`
	}
	if err := c.administer(ctx, ErasePath, what, &answer); err != nil {
		return 0, fmt.Errorf("erase values of device %s: %w", what.Device, err)
	}
	return answer.Erased, nil
}

// A Preview is what [Correction.Erase] would erase.
type Preview struct {
	Gateway  string    `json:"gateway"` // of readings of one gateway
	Readings int64     `json:"readings"`
	First    string    `json:"first"` // times of the first and the last reading
	Last     string    `json:"last"`
	Shared   int64     `json:"shared"`   // readings that stay, because other gateways have completed them
	Gateways []Preview `json:"gateways"` // by name
}

// Preview returns what Erase would erase, and erases nothing.
func (what *Correction) Preview(ctx context.Context, c *Client) (p Preview, err error) {
	if err := c.administer(ctx, ErasePath, struct {
		Correction
		DryRun bool `json:"dry_run"`
	}{*what, true}, &p); err != nil {
		return p, fmt.Errorf("preview erasure of values of device %s: %w", what.Device, err)
	}
	for i := range p.Gateways {
		p.Gateways[i].Gateway = printable(p.Gateways[i].Gateway)
	}
	return p, nil
}

// EraseSubject is like Erase for what was measured of a subject. It also returns the number of the
// subject's assignments, which are erased, too.
func (c *Client) EraseSubject(ctx context.Context, subject string) (readings, assignments int64, err error) {
	var answer struct {
		Erased      int64 `json:"erased"`
		Assignments int64 `json:"assignments"`
	}
	if err := c.administer(ctx, ErasePath, map[string]string{"subject": subject}, &answer); err != nil {
		return 0, 0, fmt.Errorf("erase subject: %w", err)
	}
	return answer.Erased, answer.Assignments, nil
}

// An Assignment of a device to a subject. Times are in RFC 3339; an empty To means that it has not
// ended.
type Assignment struct {
	Device  string `json:"device"`
	Subject string `json:"subject,omitzero"`
	From    string `json:"from"`
	To      string `json:"to,omitzero"`
	By      string `json:"by,omitzero"` // who has made it: hand or hl7; only in answers
}

// Assign makes an assignment, and returns it as the server has it.
func (c *Client) Assign(ctx context.Context, a Assignment) (made Assignment, err error) {
	if err := c.administer(ctx, AssignPath, a, &made); err != nil {
		return made, fmt.Errorf("assign device %s: %w", a.Device, err)
	}
	return made, nil
}

// EndAssignment sets the end of an assignment, which its device and From name.
func (c *Client) EndAssignment(ctx context.Context, a Assignment) (ended Assignment, err error) {
	if err := c.administer(ctx, EndPath, a, &ended); err != nil {
		return ended, fmt.Errorf("end assignment of device %s: %w", a.Device, err)
	}
	return ended, nil
}

// Assignments calls visit with the assignments of a device or of a subject, or with all if both
// are empty, by device and beginning. It returns the error of visit.
func (c *Client) Assignments(ctx context.Context, device, subject string, visit func(Assignment) error) error {
	type request struct {
		Device  string      `json:"device,omitzero"`
		Subject string      `json:"subject,omitzero"`
		After   *Assignment `json:"after,omitzero"`
	}
	for asked := (request{Device: device, Subject: subject}); ; {
		var page struct {
			Assignments []Assignment `json:"assignments"`
			More        bool         `json:"more"`
		}
		if err := c.administer(ctx, AssignmentsPath, asked, &page); err != nil {
			return fmt.Errorf("list assignments: %w", err)
		}
		for _, a := range page.Assignments {
			a = Assignment{printable(a.Device), printable(a.Subject), printable(a.From), printable(a.To), printable(a.By)}
			if err := visit(a); err != nil {
				return err
			}
		}
		if !page.More || len(page.Assignments) == 0 {
			return nil
		}
		last := page.Assignments[len(page.Assignments)-1]
		asked.After = &Assignment{Device: last.Device, From: last.From}
	}
}

// administer sends a request to the admin listener, and reads its answer.
func (c *Client) administer(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	resp, err := c.ask(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return readAnswer(resp, answer)
}
